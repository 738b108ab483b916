"""The words of the masking study: each number computed again, and no claim without its interval."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from synthetic.function_masking import FEW, REASON, function_masking_dataset
from synthetic.functions import EIGHT, ELEVEN

from headwise.describe import Description, Number
from headwise.studies.present import describe

NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")
SIZES = {
    "default": {}, "two": {"functions": EIGHT[:2], "left_out": ()}, "eleven": {"functions": ELEVEN},
    "no chains": {"chains": 0}, "older": {"ranked": False}, "none masked": {"left_out": EIGHT}, "not needed": {"needed": 0.0},
}  # fmt: skip


def masked(ds: xr.Dataset) -> xr.Dataset:
    names = [str(name) for name, why in zip(ds["function"].values, ds["reason"].values, strict=True) if not why]
    return ds.sel(masked=names, function=names)


def off_diagonal(values: np.ndarray) -> np.ndarray:
    found = values[~np.eye(len(values), dtype=bool)]
    return found[np.isfinite(found)]


def recomputed(number: Number, ds: xr.Dataset) -> float:
    what, of, name = number.source.partition(" of ")
    if of:
        kind, *step = what.split()
        if kind == "detectable":
            width = float(ds["mean_effect_high"].sel(function=name) - ds["mean_effect_low"].sel(function=name))
            return width / (2 * 1.959964) * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8))
        one = ds[kind].sel(function=name)
        return float(one.sel({one.dims[0]: float(step[0])}) if step else one)
    own = masked(ds)
    kind, *rest = number.source.split()
    effect, low = own["cross_effect"].values, own["cross_effect_low"].values
    needed = own["mean_effect_low"].values > 0
    if "mean_rank_p" in own:
        needed &= own["mean_rank_p"].values < 0.05
    augmented = ds.isel(function=ds["augment_reason"].values == "")
    raised = ((augmented["gain_low"] > 0) & (augmented["gain_over_random_low"] > 0)).isel(amount=slice(1, None))
    rules: dict[str, Callable[..., float]] = {
        "factor": lambda: ds.attrs["factor"],
        "size": lambda: ds.attrs["size"],
        "chains": lambda: ds.attrs["chains"],
        "draws": lambda: ds.sizes["draw"],
        "masked": lambda: own.sizes["function"],
        "functions": lambda: ds.sizes["function"],
        "removed": lambda count: int(count),
        "needed": lambda: needed.sum(),
        "spared": lambda: (own["mean_effect_high"].values < 0).sum(),
        "specific": lambda: (needed & (np.diag(low) > own["spill_high"].values)).sum(),
        "mean-own": lambda: np.diag(effect).mean(),
        "mean-others": lambda: off_diagonal(effect).mean(),
        "tops": lambda: sum(row[at] > np.nanmax(np.delete(row, at)) + 1e-6 for at, row in enumerate(effect)),
        "tied-tops": lambda: sum(abs(row[at] - np.nanmax(np.delete(row, at))) < 1e-6 for at, row in enumerate(effect)),
        "rows": lambda: len(effect),
        "sure-others": lambda: (off_diagonal(low) > 0).sum(),
        "cells-others": lambda: off_diagonal(effect).size,
        "overlap": lambda: 100 * off_diagonal(own["overlap"].values).mean(),
        "augmented": lambda: augmented.sizes["function"],
        "raised": lambda: int(raised.any("amount").sum()),
        "nanmin": lambda name: float(np.nanmin(ds[name])),
        "nanmax": lambda name: float(np.nanmax(ds[name])),
        "fewest": lambda: int(own["masked_steps"].min()),
    }
    if kind in ("constant", "edge"):
        return number.value
    return float(rules[kind](*rest)) if kind in rules else float(ds[kind])


def stripped(words: Description) -> str:
    text = words.text() + words.short()
    return (
        text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "").replace("95 %", "").replace("80 %", "").replace(FEW, "")
    )


@pytest.mark.parametrize("size", SIZES)
def test_every_number_is_in_the_data(size: str) -> None:
    ds = function_masking_dataset(**SIZES[size])
    words = describe("function_masking", ds)
    known = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    said = Counter(NUMBER.findall(stripped(words)))
    assert not said - known
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, ds), rel=1e-4, abs=1e-6), number
        assert number.text in words.text() + words.short()
    assert "not known" not in words.text() and "nan" not in words.text().lower().split()


def test_a_difference_is_told_only_where_the_interval_is() -> None:
    ds = function_masking_dataset()
    words = describe("function_masking", ds)
    lines = {line.split(":")[0]: line for line in words.detail}
    assert (
        "0.30 (0.24 to 0.36), averaged over all numbers of heads: significantly more than with control sets"
        in lines["Retrieval"]
    )
    assert "the interval is above zero at 4, 8, 16, 32 and 64" in lines["Retrieval"]
    assert "not significantly more than with control sets" in lines["Decision-making"]
    assert "the interval is above zero" not in lines["Decision-making"]
    assert "more than masking control sets in 5 of 7 functions: Knowledge Recall, Retrieval" in "\n".join(
        words.observations
    )
    ds["mean_effect_high"].loc[{"function": "Inference"}] = -0.01
    ds["mean_effect_low"].loc[{"function": "Inference"}] = -0.2
    text = describe("function_masking", ds).text()
    assert "It costs significantly less in 1: Inference." in text


def test_no_effect_is_told_as_none() -> None:
    words = describe("function_masking", function_masking_dataset(needed=0.0))
    assert (
        "In none of 7 functions does masking the function's heads cost significantly more than masking control sets."
        in words.text()
    )
    assert "none loses significantly more than with control sets" in words.short()


def test_the_headline_tells_that_nothing_is_corrected() -> None:
    ds = function_masking_dataset()
    words = describe("function_masking", ds)
    assert "(95 % intervals, not corrected): Knowledge Recall, Retrieval," in words.short()
    assert "significant" not in words.short()


def test_no_effect_is_not_called_specific() -> None:
    words = describe("function_masking", function_masking_dataset(needed=0.0))
    assert "own steps lose significantly more" not in words.text()


def test_a_handful_of_steps_decides_nothing() -> None:
    ds = function_masking_dataset()
    ds = ds.assign_coords(masked_steps=("function", np.where(ds["function"].values == "Retrieval", 1, 20)))
    words = describe("function_masking", ds)
    assert "1 of them is answered again." in words.text() and "too few steps for a conclusion." in words.text()
    assert "in 4 of 7 functions: Knowledge Recall" in words.text()


def test_chains_are_told_with_their_interval() -> None:
    ds = function_masking_dataset()
    assert "significant for Knowledge Recall, Retrieval and Syntactic" in describe("function_masking", ds).text()
    ds["chain_effect_low"] = ds["chain_effect_low"] - 1
    assert "; significant for none." in describe("function_masking", ds).text()


def test_heads_that_others_need_too_are_not_called_specific() -> None:
    ds = function_masking_dataset()
    ds["spill_high"][:] = 0.9
    assert (
        "in none of these do the function's own steps lose significantly more"
        in describe("function_masking", ds).text()
    )


def test_augmenting_needs_both_controls() -> None:
    ds = function_masking_dataset()
    assert "Augmenting raises the accuracy of none of 6 functions" in describe("function_masking", ds).text()
    ds["gain_low"].loc[{"function": "Retrieval", "amount": 2.0}] = 0.01
    assert "Augmenting raises the accuracy of none of 6 functions" in describe("function_masking", ds).text()
    ds["gain_over_random_low"].loc[{"function": "Retrieval", "amount": 2.0}] = 0.01
    assert "Augmenting raises the accuracy of 1 of 6 functions" in describe("function_masking", ds).text()


def test_what_was_not_done_is_told_with_its_reason() -> None:
    text = describe("function_masking", function_masking_dataset(chains=0)).text()
    assert f"Semantic Understanding was not masked: {REASON}." in text
    assert f"Not augmented: {FEW}." in text
    assert "The hierarchy was not tested: no held-out chain has" in text
    assert (
        "No function could be masked." in describe("function_masking", function_masking_dataset(left_out=EIGHT)).short()
    )
