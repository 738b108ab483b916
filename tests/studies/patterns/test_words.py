"""The words of the patterns study: each number computed again, planted heads named, no change told as none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from map_rules import map_rules
from synthetic.patterns import CUT, MOVED, TOKENS, patterns_dataset

from headwise.describe import Description, Number
from headwise.studies.present import describe

HEAD = re.compile(r"L(\d+)H(\d+)")
NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")
NAMES = (  # numbers that are part of a definition, or of a name
    "SmolLM2-135M-Instruct", "95 % interval", "95 % of shuffled maps", "less than 1", "1 less the",
    "|i - j| <= 1", "i - j >= 2",
    "(1: the same, 0: disjoint)", "weights over 0.3 with", "with weight over 0.01", "L0H0",
)  # fmt: skip


@pytest.fixture(scope="module")
def two() -> xr.Dataset:
    return patterns_dataset(12, 8)


def at(values: xr.DataArray, name: str) -> float:
    layer, head = (int(part) for part in HEAD.fullmatch(name).groups())  # type: ignore[union-attr]
    return float(values.isel(layer=layer, head=head))


def ended(ds: xr.Dataset, name: str, end: str) -> xr.DataArray:
    return ds[f"{name}_{end}" if end else name]


def leaves_out(ds: xr.Dataset) -> xr.DataArray:
    """Whether an interval of a change has 0 outside."""
    return (ds["change_low"] > 0) | (ds["change_high"] < 0)


def tied(values: xr.DataArray) -> int:
    """How many are as large as the third largest, beyond the three that are named."""
    every = np.sort(values.values[np.isfinite(values.values)])[::-1]
    return int(np.isclose(every[3:], every[2], rtol=1e-6).sum())


def recomputed(number: Number, ds: xr.Dataset) -> float:
    """The same number, from the data alone."""
    words = number.source.split()
    end = words.pop(0) if words[0] in ("low", "high") else ""
    kind, *rest = words
    diagonal = ds["value"].sel(statistic="diagonal") > 0.5
    sure = (ds["q"] < 0.05) if "q" in ds else None

    def moved(one: int) -> int:
        return int((diagonal[one] & ~diagonal[1 - one] & sure.sel(statistic="diagonal")).sum())  # type: ignore[union-attr]

    def grid(key: str) -> np.ndarray:
        return (ds["similarity"] if key == "similarity" else ds["value"][0].sel(statistic=key)).values.astype(float)

    rules: dict[str, Callable[..., float]] = map_rules(grid) | {
        "anomalies-below": lambda key: below(grid(key)),
        "layers": lambda: ds.sizes["layer"],
        "heads": lambda: ds.sizes["head"],
        "total": lambda: ds.sizes["layer"] * ds.sizes["head"],
        "prompts": lambda: ds.sizes["example"],
        "tokens": lambda: 128,
        "shown": lambda: len(TOKENS),
        "texts": lambda: 20,
        "tests": lambda: ds["q"].notnull().sum(),
        "whole": lambda place, key: ended(ds, "whole", end).isel(condition=int(place)).sel(feature=key),
        "whole-percent": lambda place, key: 100 * ds["whole"].isel(condition=int(place)).sel(feature=key),
        "whole-change": lambda key: ended(ds, "whole_change", end).sel(feature=key),
        "whole-p": lambda key: ds["whole_p"].sel(feature=key),
        "between": lambda name: ended(ds, f"whole_{name}", end),
        "between-percent": lambda name: 100 * ended(ds, f"whole_{name}", end),
        "uniform": lambda key: ds["uniform"].sel(statistic=key).mean(),
        "dominant": lambda place: diagonal[int(place)].sum(),
        "dominant-percent": lambda place: 100 * diagonal[int(place)].mean(),
        "peaked": lambda place: (ds["peaked"][int(place)] >= 0.5).sum(),
        "tested": lambda key: ds["q"].sel(statistic=key).notnull().sum(),
        "changed": lambda key: sure.sel(statistic=key).sum(),  # type: ignore[union-attr]
        "up": lambda key: ((ds["change"] > 0) & sure).sel(statistic=key).sum(),
        "clear": lambda key: (sure & leaves_out(ds)).sel(statistic=key).sum(),  # type: ignore[operator]
        "tied": lambda key: tied(-ds["similarity"] if key == "similarity" else ds["value"][0].sel(statistic=key)),
        "tied-change": lambda key: tied(abs(ds["change"]).where(sure & leaves_out(ds)).sel(statistic=key)),
        "moved": lambda way: moved(0 if way == "off" else 1),
        "at": lambda *what: (
            at(ds["similarity"], what[1]) if what[0] == "similarity"
            else at(ended(ds, "change", end).sel(statistic=what[1]), what[2]) if what[0] == "change"
            else at(ds["value"][0].sel(statistic=what[1]), what[2])
        ),
    }  # fmt: skip
    return number.value if kind in ("constant", "edge") else float(rules[kind](*rest))


def below(values: np.ndarray) -> int:
    """Heads far below the median of their layer and the two next to it."""
    count = 0
    for layer, row in enumerate(values):
        around = values[max(layer - 1, 0) : layer + 2].ravel()
        spread = 1.4826 * np.median(np.abs(around - np.median(around)))
        count += int((row < np.median(around) - 6 * spread).sum()) if spread > 0 else 0
    return count


def check_numbers(words: Description, ds: xr.Dataset) -> None:
    """Every number of the text is kept, and every kept number is right."""
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, ds), rel=1e-5, abs=1e-9), number
    text = f"{words.text()} {words.short()}"
    for name in NAMES:
        text = text.replace(name, " ")
    text = text.replace("".join(TOKENS[1:]), " ")
    written = Counter(NUMBER.findall(HEAD.sub(" ", text)))
    kept = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    assert not written - kept, written - kept


@pytest.mark.parametrize("both", [True, False])
def test_every_number_is_computed(both: bool) -> None:
    dataset = patterns_dataset(12, 8, two=both)
    check_numbers(describe("patterns", dataset), dataset)


def test_what_was_planted_is_said(two: xr.Dataset) -> None:
    words = describe("patterns", two)
    observations = " ".join(words.observations)
    assert f"1 head (L{MOVED[0]}H{MOVED[1]}) moved off the diagonal and 0 heads onto it" in observations
    most = re.search(r"The heads that changed most: (.*?)\.\s", observations + " ")
    assert most is not None
    named = set(HEAD.findall(most[1]))
    assert named == {(str(layer), str(head)) for layer, head in (MOVED, *CUT)}
    assert "are not in the second; of the second's" in observations
    assert "Kullback-Leibler" in observations and "p < 0.001" in observations


def test_the_short_form_tells_the_comparison(two: xr.Dataset) -> None:
    short = describe("patterns", two).short()
    assert "Sparse SmolLM2-135M-Instruct drops" in short
    assert "its loss changes by 0.0" in short and "not significantly" not in short
    alone = describe("patterns", patterns_dataset(4, 3, two=False)).short()
    assert "Sparse" not in alone and "loss" not in alone


def test_sinks_of_a_gated_model_are_told_to_be_unfair(two: xr.Dataset) -> None:
    unfair = "cannot be compared fairly between a dense and a sparse model"
    gated = two.copy()
    gated["whole"] = gated["whole"].copy()
    gated["whole"].loc[{"condition": "reference", "feature": "mass"}] = 0.4
    assert unfair in " ".join(describe("patterns", gated).caveats)
    assert "counts as no attention" in " ".join(describe("patterns", gated).axes)
    assert unfair not in " ".join(describe("patterns", patterns_dataset(4, 3, two=False)).caveats)


def test_two_alike_models_have_nothing_to_tell(two: xr.Dataset) -> None:
    same = two.copy()
    for name in ("change", "change_low", "change_high", "whole_change", "whole_change_low", "whole_change_high"):
        same[name] = xr.zeros_like(same[name])
    for name in ("p", "q", "whole_p"):
        same[name] = xr.ones_like(same[name])
    same["value"] = same["value"].isel(condition=[0, 0]).assign_coords(condition=["model", "reference"])
    words = describe("patterns", same)
    assert "No head moved off the diagonal or onto it" in words.text()
    assert "No number of all heads together changed" in words.text()
    assert all(line.endswith("None changed.") for line in words.detail)


def test_few_prompts_of_few_texts_are_told(two: xr.Dataset) -> None:
    few = two.isel(example=slice(0, 12))
    few.attrs["provenance"] = few.attrs["provenance"].replace('"size": 32', '"size": 12, "texts": 5')
    caveats = " ".join(describe("patterns", few).caveats)
    assert "The 12 prompts were cut from 5 texts" in caveats
    assert "Fewer than 30 prompts" in caveats


def test_heads_that_look_nowhere_do_not_spoil_the_words(two: xr.Dataset) -> None:
    blind = two.copy(deep=True)
    for name in ("value", "low", "high"):
        blind[name].loc[{"condition": "reference", "statistic": ["diagonal", "entropy"], "layer": 3, "head": 2}] = (
            np.nan
        )
    for name in ("change", "change_low", "change_high", "p", "q"):
        blind[name].loc[{"statistic": ["diagonal", "entropy"], "layer": 3, "head": 2}] = np.nan
    text = describe("patterns", blind).text()
    assert "nan" not in text and "not known" not in text
