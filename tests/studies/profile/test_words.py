"""The words of the profile study.

The heart is `test_every_number_is_in_the_data`: each number that stands in the text must be one the writer kept, and
each of these is computed again here, from the Dataset, by other code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from map_rules import map_rules

from headwise.core.errors import StudyError
from headwise.describe import Description, Number
from headwise.studies.present import describe

HEAD = re.compile(r"L(\d+)H(\d+)")
NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")


def flat(dataset: xr.Dataset, key: str, variable: str = "value") -> np.ndarray:
    values = dataset[variable].sel(statistic=key).values.astype(float).ravel()
    return values[np.isfinite(values)]


def at(dataset: xr.Dataset, key: str, name: str, variable: str = "value") -> float:
    layer, head = (int(part) for part in HEAD.fullmatch(name).groups())  # type: ignore[union-attr]
    return float(dataset[variable].sel(statistic=key, layer=layer, head=head))


def mean_uniform(dataset: xr.Dataset, key: str) -> float:
    return float(flat(dataset, key, "uniform").mean())


def in_role(dataset: xr.Dataset, key: str) -> np.ndarray:
    low, uniform = flat(dataset, key, "low"), flat(dataset, key, "uniform")
    return (low - uniform) / (1 - uniform) > 0.3


def ranks(dataset: xr.Dataset, key: str) -> pd.Series:
    return pd.Series(dataset["value"].sel(statistic=key).values.astype(float).ravel()).rank()


def thirds(dataset: xr.Dataset, key: str) -> list[np.ndarray]:
    return np.array_split(dataset["value"].sel(statistic=key).values.astype(float), 3)


def top(dataset: xr.Dataset, key: str, n: int) -> set[int]:
    return set(np.argsort(-dataset["value"].sel(statistic=key).values.ravel(), kind="stable")[:n].tolist())


def layer_means(dataset: xr.Dataset, key: str) -> pd.Series:
    return pd.Series(np.nanmean(dataset["value"].sel(statistic=key).values.astype(float), axis=1))


def gini(values: np.ndarray) -> float:
    return float(np.abs(values[:, None] - values[None, :]).mean() / (2 * values.mean()))


def top_share(values: np.ndarray) -> float:
    return float(100 * np.sort(values)[-round(0.05 * values.size) :].sum() / values.sum())


def unsettled(dataset: xr.Dataset) -> int:
    count = 0
    for key in dataset["statistic"].values:
        value, low, high = (dataset[name].sel(statistic=key).values.ravel() for name in ("value", "low", "high"))
        first, second = np.argsort(-value, kind="stable")[:2]
        count += bool(low[first] <= high[second])
    return count


def recomputed(number: Number, ds: xr.Dataset) -> float:
    """The same number, from the data alone."""
    kind, *rest = number.source.split()
    rules: dict[str, Callable[..., float]] = map_rules(lambda key: ds["value"].sel(statistic=key).values.astype(float)) | {
        "layers": lambda: ds.sizes["layer"],
        "heads": lambda: ds.sizes["head"],
        "total": lambda: ds.sizes["layer"] * ds.sizes["head"],
        "statistics": lambda: ds.sizes["statistic"],
        "examples": lambda key: int(np.isfinite(ds["per_example"].sel(statistic=key)[:, 0, 0]).sum()),
        "value": lambda key, name: at(ds, key, name),
        "low": lambda key, name: at(ds, key, name, "low"),
        "high": lambda key, name: at(ds, key, name, "high"),
        "baseline": lambda key: mean_uniform(ds, key),
        "uniform-percent": lambda key: 100 * mean_uniform(ds, key),
        "ratio": lambda key, name: at(ds, key, name) / mean_uniform(ds, key),
        "difference": lambda key, name: abs(at(ds, key, name) - mean_uniform(ds, key)),
        "min": lambda key: flat(ds, key).min(),
        "max": lambda key: flat(ds, key).max(),
        "median": lambda key: np.median(flat(ds, key)),
        "missing": lambda key: int(ds["value"].sel(statistic=key).isnull().sum()),
        "measured": lambda key: flat(ds, key).size,
        "over": lambda key, level: (flat(ds, key) > float(level)).sum(),
        "over-percent": lambda key, level: 100 * (flat(ds, key) > float(level)).mean(),
        "nearer": lambda: (flat(ds, "distance") < mean_uniform(ds, "distance")).sum(),
        "nearer-percent": lambda: 100 * (flat(ds, "distance") < mean_uniform(ds, "distance")).mean(),
        "role": lambda key: in_role(ds, key).sum(),
        "role-rest": lambda key: in_role(ds, key).sum() - 8,
        "few-heads": lambda: sum(top_share(flat(ds, str(key))) >= 25 for key in ds["statistic"].values),
        "many-heads": lambda: sum(top_share(flat(ds, str(key))) < 25 for key in ds["statistic"].values),
        "top-heads": lambda key: round(0.05 * flat(ds, key).size),
        "top-share": lambda key: top_share(flat(ds, key)),
        "gini": lambda key: gini(flat(ds, key)),
        "third": lambda key, index: np.nanmean(thirds(ds, key)[int(index)]),
        "third-share": lambda key, index: 100 * np.nansum(thirds(ds, key)[int(index)]) / flat(ds, key).sum(),
        "peak": lambda key: int(np.argmax(layer_means(ds, key))),
        "depth": lambda key: layer_means(ds, key).rank().corr(pd.Series(range(ds.sizes["layer"]))),
        "correlation": lambda one, other: ranks(ds, one).corr(ranks(ds, other)),
        "overlap": lambda one, other: len(top(ds, one, 10) & top(ds, other, 10)),
        "half-width": lambda key: np.median(flat(ds, key, "high") - flat(ds, key, "low")) / 2,
        "cells": lambda: int(np.isfinite(ds["value"]).sum()),
        "chance": lambda: round(int(np.isfinite(ds["value"]).sum()) / 20),
        "unsettled": lambda: unsettled(ds),
    }  # fmt: skip
    if kind in ("constant", "edge", "register", "registers"):  # the rules' own numbers, coordinates, and counted labels
        return number.value
    return float(rules[kind](*rest))


def stripped(words: Description, dataset: xr.Dataset) -> str:
    """The whole text without names: of the model, of statistics, of heads."""
    text = words.text() + words.short()
    for coord in ("label", "definition", "unit"):
        for name in dataset[coord].values:
            text = text.replace(str(name), "")
    text = text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "")
    return HEAD.sub("", text)


@pytest.mark.parametrize("shape", [(30, 9), (12, 12), (6, 4), (1, 1), (1, 12), (12, 1), (3, 2)])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_number_is_in_the_data(
    make_profile: Callable[..., xr.Dataset], shape: tuple[int, int], seed: int
) -> None:
    dataset = make_profile(*shape, seed=seed)
    words = describe("profile", dataset)
    kept = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    said = Counter(NUMBER.findall(stripped(words, dataset).replace("95 %", "")))  # the level of all intervals
    assert said.total() > 30
    assert not said - kept
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, dataset), rel=1e-5, abs=1e-6), number


def test_planted_heads_are_named(profile: xr.Dataset, planted: dict[str, list[tuple[int, int]]]) -> None:
    words = describe("profile", profile)
    said = "\n".join(words.observations)
    for noun, key in (("previous-token heads", "previous"), ("induction heads", "induction")):
        line = next(line for line in words.observations if noun in line)
        assert set(HEAD.findall(line)) == {(str(layer), str(head)) for layer, head in planted[key]}
    assert "1 duplicate-token head (whole 95 % interval, corrected for a uniform head, above 0.3): L5H1" in said
    assert any(
        line.startswith("First token (sink): weight on") and "L20H4" in line.split(",")[0] for line in words.detail
    )
    assert "L12H3" in words.short()


def test_absence_is_told(make_profile: Callable[..., xr.Dataset]) -> None:
    words = describe("profile", make_profile(3, 2))
    said = "\n".join(words.observations)
    assert re.search(
        r"No induction head \(whole 95 % interval, corrected for a uniform head, above 0.3\); the nearest to it is L\dH\d",
        said,
    )
    assert "rank" not in said  # too few heads for correlations
    assert "depth" not in said


def test_it_reads_in_five_sections(profile: xr.Dataset) -> None:
    words = describe("profile", profile)
    assert list(words.sections()) == [
        "Overview",
        "Axes and scale",
        "Detail",
        "Key observations",
        "Anomalies",
        "Interpretation",
        "Caveats",
    ]
    assert len(words.detail) == 11
    assert "60 examples of the data 'passages' (12 prose, 12 dialogue" in words.overview[1]
    assert words.overview[2] == "Induction and Duplicate token are means over 12 examples (repeats)."
    assert 1 <= words.short().count(". ") + 1 <= 2
    assert "  " not in words.text()
    assert ".." not in words.text()


def test_one_is_singular(make_profile: Callable[..., xr.Dataset]) -> None:
    text = describe("profile", make_profile(1, 1)).text()
    assert "11 statistics for its only head (1 layer of 1 head)" in text
    assert "X is Head 0, y is Layer 0." in text
    assert "The largest value is" in text
    assert not re.search(r"\b1 (heads|layers|cells|panels|examples)\b", text)


def test_trend_is_told_only_when_there_is_one(profile: xr.Dataset) -> None:
    assert any(
        line.startswith("First token (sink) rises with depth") for line in describe("profile", profile).observations
    )
    flat_profile = profile.copy(deep=True)
    flat_profile["value"][1] = 0.3
    told = describe("profile", flat_profile).observations
    assert not any(line.startswith("First token (sink) rises") for line in told)
    assert told[0].startswith("No head puts more than half")


def test_what_was_not_measured_is_said_so(profile: xr.Dataset) -> None:
    profile["value"].loc[{"statistic": "induction"}] = np.nan
    profile["value"].loc[{"statistic": "sink", "layer": 0, "head": 0}] = np.nan
    words = describe("profile", profile)
    assert words.detail[6].endswith("the earlier occurrence of this one. It was not measured.")
    assert "1 head was not measured." in words.detail[1]
    assert not any("nduction head" in line for line in words.observations)
    assert any(line.startswith("Duplicate token is measured on") for line in words.caveats)


def test_nothing_measured_does_not_break(profile: xr.Dataset) -> None:
    for name in ("value", "low", "high", "per_example"):
        profile[name][:] = np.nan
    words = describe("profile", profile)
    assert all(line.endswith("It was not measured.") for line in words.detail)
    assert words.observations == ()


def test_without_intervals_none_are_claimed(profile: xr.Dataset) -> None:
    profile["low"][:] = profile["high"][:] = np.nan
    words = describe("profile", profile)
    assert "95 %" not in words.text().replace("in 95 % of shuffled maps", "")
    assert "There are no intervals" in words.caveats[0]
    assert any(
        "2 induction heads (value, corrected for a uniform head, above 0.3)" in line for line in words.observations
    )


def test_without_examples_or_provenance(profile: xr.Dataset) -> None:
    words = describe("profile", profile.drop_vars("per_example").drop_attrs())
    assert "heads of the model attend" in words.overview[0]
    assert len(words.overview) == 1


def test_unknown_study(profile: xr.Dataset) -> None:
    with pytest.raises(StudyError, match=r"There are no words for the study 'profle'\. Did you mean 'profile'"):
        describe("profle", profile)
