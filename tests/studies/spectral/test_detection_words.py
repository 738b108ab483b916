"""The words of the detection study: each number recomputed from the data, nothing claimed that is not there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from headwise.describe import Description, Number
from headwise.studies.present import describe

NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")


def row(ds: xr.Dataset, variable: str, name: str) -> float:
    return float(ds[variable].sel(detector=name))


def fitted(ds: xr.Dataset) -> xr.Dataset:
    return ds.sel(detector=ds["kind"] != "score")


def moved(ds: xr.Dataset, what: str, name: str) -> float:
    grid = ds["transfer"].sel(detector=name).to_series().dropna().reset_index()
    others, same = grid["trained_on"] == "others", grid["trained_on"] == grid["topic"]
    rows = {"others": others, "inside": same, "across": ~others & ~same}[what]
    return float(grid.loc[rows, "transfer"].mean())


def recomputed(number: Number, ds: xr.Dataset) -> float:
    """The same number, from the data alone."""
    kind, *rest = number.source.split()
    plain = ("auroc", "auroc_low", "auroc_high", "gain", "gain_low", "gain_high", "paper")
    if kind in plain:
        return row(ds, kind, *rest)
    rules: dict[str, Callable[..., float]] = {
        "kind": lambda which: (ds["kind"] == which).sum(),
        "wrong": lambda: ds["wrong"].sum(),
        "correct": lambda: (~ds["wrong"]).sum(),
        "rarer": lambda: min(int(ds["wrong"].sum()), int((~ds["wrong"]).sum())),
        "folds": lambda: ds.sizes["fold"],
        "rows": lambda: ds["auroc"].notnull().sum(),
        "all-rows": lambda: ds.sizes["detector"],
        "precision": lambda name: 100 * row(ds, "precision", name),
        "recall": lambda name: 100 * row(ds, "recall", name),
        "over-length": lambda: (fitted(ds)["auroc_low"] > row(ds, "auroc", "length")).sum(),
        "fitted": lambda: fitted(ds).sizes["detector"],
        "away": lambda one, other: abs(row(ds, "auroc", one) - row(ds, "auroc", other)),
        "by_k": lambda name, k: ds["by_k"].sel(detector=name, rank=int(k)),
        "by_layer": lambda name, layer: ds["by_layer"].sel(detector=name, layer=int(layer)),
        "by_size": lambda name, size: ds["by_size"].sel(detector=name, size=int(size)),
        "layer-count": lambda name: ds["by_layer"].sel(detector=name).notnull().sum(),
        "step": lambda name: ds["by_size"].sel(detector=name).diff("size")[-1],
        **{what: lambda name, what=what: moved(ds, what, name) for what in ("inside", "across", "others")},
    }
    if kind in ("constant", "edge"):
        return number.value
    return float(rules[kind](*rest))


def stripped(words: Description, ds: xr.Dataset) -> str:
    text = words.text() + words.short()
    for label in ds["label"].values:
        text = text.replace(str(label), "")
    return text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "").replace("95 %", "")


@pytest.mark.parametrize(
    "options", [{}, {"signal": 0.0}, {"details": False}, {"examples": 120, "seed": 4}, {"layers": 2, "signal": 2.0}]
)
def test_every_number_is_in_the_data(make_detection: Callable[..., xr.Dataset], options: dict[str, object]) -> None:
    dataset = make_detection(**options)
    words = describe("detection", dataset)
    kept = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    said = Counter(NUMBER.findall(stripped(words, dataset)))
    assert said.total() > 30
    assert not said - kept
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, dataset), rel=1e-5, abs=1e-6), number
    assert "not known" not in words.text()


def test_best_order_and_length_are_reported(detection: xr.Dataset) -> None:
    words = describe("detection", detection)
    said = "\n".join(words.observations)
    assert words.observations[0].startswith(
        "The best detector is Combined (ours), with an AUROC of 0.847 (0.802 to 0.892)."
    )
    assert "The published order AttnScore < AttnEigvals < LapEigvals holds here" in said
    assert "Length alone reaches an AUROC of 0.632" in said
    assert "5 of 5 fitted detectors have their whole interval above that" in said
    assert "length alone reaches 0.632" in words.short()
    best = int(detection["by_layer"].sel(detector="LapEigvals").argmax("layer"))
    assert f"LapEigvals is best in layer {best} " in said
    assert "all layers together give" in said
    assert len(words.detail) == 9


def test_another_order_is_said_so(detection: xr.Dataset) -> None:
    detection["auroc"].loc[{"detector": "AttnScore"}] = 0.9
    said = "\n".join(describe("detection", detection).observations)
    assert "The published order AttnScore < AttnEigvals < LapEigvals does not hold here: 0.9, 0.8 and 0.827." in said
    said = "\n".join(describe("detection", detection.drop_sel(detector="AttnScore")).observations)
    assert "published order" not in said


@pytest.mark.parametrize("seed", range(6))
def test_a_table_that_knows_nothing(make_detection: Callable[..., xr.Dataset], seed: int) -> None:
    words = describe("detection", make_detection(signal=0.0, seed=seed))
    assert words.observations[0].startswith(
        "No detector is significantly better than chance after correction for 9 detectors;"
    )
    assert "None is significantly better than chance" in words.short()
    text = "\n".join(words.observations)
    for claim in ("The best detector", "eigenvalues per head", "On one layer alone", "Across topics"):
        assert claim not in text
    assert "Length alone" in text


def test_length_that_is_not_there_is_missed(detection: xr.Dataset) -> None:
    words = describe("detection", detection.drop_sel(detector="length").assign_attrs(reference=""))
    assert "The answer's length is not in this table" in "\n".join(words.observations)
    assert "Minus that of" not in words.text()
    assert "length alone" not in words.short()


def test_a_chosen_layer_is_not_compared_with_all(detection: xr.Dataset) -> None:
    words = describe("detection", detection.sel(detector=["hidden", "length"]))
    line = next(line for line in words.observations if line.startswith("On one layer alone"))
    assert "all layers together" not in line


def test_missing_values_and_attributes(detection: xr.Dataset) -> None:
    for name in ("auroc", "auroc_low", "auroc_high"):
        detection[name].loc[{"detector": "AttnLogDet"}] = np.nan
    words = describe("detection", detection.drop_attrs().drop_vars(["kind", "label", "gain"]))
    assert "wrong answers of the model" in words.overview[0]
    assert not any(line.startswith("AttnLogDet") for line in words.detail)
    detection["auroc"][:] = np.nan
    words = describe("detection", detection)
    assert words.detail == words.observations == ()


def test_it_reads_well(detection: xr.Dataset) -> None:
    words = describe("detection", detection)
    assert list(words.sections()) == ["Overview", "Axes and scale", "Detail", "Key observations", "Caveats"]
    assert "  " not in words.text()
    assert ".." not in words.text()
    one = describe("detection", detection.sel(detector=["LapEigvals"])).text()
    assert "by 1 fitted detector, on" in one
    assert "best of" not in one.replace("best of 30 layers", "")
