"""Ties are told as ties, in the words of patterns, functions and masking; and functions stand in one order."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from synthetic.function_masking import function_masking_dataset
from synthetic.functions import functions_dataset
from synthetic.patterns import patterns_dataset

from headwise.describe.maps import strongest
from headwise.describe.phrases import best, others_as_large
from headwise.studies.functions.figure import PUBLISHED
from headwise.studies.present import describe, figure_of


def text_of(study: str, dataset: xr.Dataset) -> str:
    return describe(study, dataset).text()


def test_the_same_share_worked_out_in_two_ways_is_the_same() -> None:
    one, other = float(np.float32(1.0) - np.float32(0.8)), float(np.float32(0.2))
    assert one != other and best({"a": one, "b": other, "c": 0.1999}) == ["a", "b"]
    assert best({"a": float("nan"), "b": 0.0, "c": -0.0}) == ["b", "c"]
    assert best({"a": 0.000600, "b": 0.0006001}) == ["b"]


def test_heads_that_were_not_named_are_counted() -> None:
    values = xr.DataArray(np.array([[3.0, 2, 1], [1, 1, np.nan]]), dims=("layer", "head"))
    assert others_as_large(values, strongest(values, 3)) == 2
    assert others_as_large(values, strongest(values, 2)) == 0
    assert others_as_large(values, []) == 0


# ---- functions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "dataset"), [("functions", functions_dataset()), ("function_masking", function_masking_dataset())]
)
def test_words_and_figures_have_one_order(study: str, dataset: xr.Dataset) -> None:
    assert list(dataset["function"].values) != list(PUBLISHED)  # or nothing would be tested
    entries = [entry.split(" (")[0].split(":")[0].split(" was not")[0] for entry in describe(study, dataset).detail]
    assert entries == list(PUBLISHED)
    panels = [panel.key for panel in figure_of(study, dataset).panels if panel.key in PUBLISHED]
    assert panels == [name for name in PUBLISHED if name in panels]


def test_layers_with_as_many_heads_are_all_named() -> None:
    dataset = functions_dataset()
    name, layers = str(dataset["function"].values[0]), dataset.sizes["layer"]
    chosen = dataset["chosen"].sel(function=name)
    assert chosen.dims == ("layer", "head")
    for heads, told in (
        ([(1, 0), (1, 1), (4, 0), (4, 1), (2, 0)], "most in layers 1 and 4."),
        ([(1, 0), (1, 1), (2, 0)], "most in layer 1."),
        ([(layer, 0) for layer in range(layers)], f"in no layer most ({layers} tie)."),
    ):
        chosen[:] = False
        for layer, head in heads:
            chosen[layer, head] = True
        dataset["chosen"].loc[{"function": name}] = chosen
        entry = next(entry for entry in describe("functions", dataset).detail if entry.startswith(name))
        assert told in entry


def test_functions_and_heads_that_share_the_end_of_a_range() -> None:
    dataset = functions_dataset()
    dataset["single_head_q"][:] = 0.5
    names = [str(name) for name in dataset["function"].values]
    for name in names[:3]:
        dataset["single_head_q"].loc[{"function": name}] = 0.01
    dataset["single_head_accuracy"].values.flat[[3, 5]] = dataset["single_head_accuracy"].max() + 0.01
    said = text_of("functions", dataset)
    shared = [name for name in PUBLISHED if name in names[:3]]
    assert f"and 100 % ({shared[0]}, {shared[1]} and {shared[2]}) of the heads distinguish" in said
    assert "0 % (5 functions)" in said and "(tied with 1 other) predicts" in said


# ---- masking --------------------------------------------------------------------------------------------------------


def test_rows_whose_largest_loss_is_shared() -> None:
    dataset = function_masking_dataset()
    own = [str(name) for name in dataset["masked"].values if not dataset["reason"].sel(function=name).item()]
    dataset["cross_effect"][:] = 0.0
    for name in own:
        dataset["cross_effect"].loc[{"masked": name, "function": name}] = 0.4
    said = text_of("function_masking", dataset)
    assert f"largest of its row in {len(own)} of {len(own)} rows. Off" in said
    dataset["cross_effect"].loc[{"masked": own[0], "function": own[1]}] = 0.4
    said = text_of("function_masking", dataset)
    assert f"in {len(own) - 1} of {len(own)} rows, and tied with the largest in 1. Off" in said


def test_amounts_that_do_equally_well() -> None:
    dataset = function_masking_dataset()
    name = next(str(n) for n in dataset["function"].values if not dataset["augment_reason"].sel(function=n).item())
    amounts = [float(amount) for amount in dataset["amount"].values]
    dataset["gain"].loc[{"function": name}] = 0.0
    for amount in amounts[1:3]:
        dataset["gain"].loc[{"function": name, "amount": amount}] = 0.25
    entry = next(entry for entry in describe("function_masking", dataset).detail if entry.startswith(name))
    assert f"works equally well with alpha {amounts[1]:g} and {amounts[2]:g}: accuracy changes" in entry


# ---- patterns -------------------------------------------------------------------------------------------------------


def test_heads_are_named_where_test_and_interval_agree() -> None:
    dataset = patterns_dataset(6, 4)
    at = {"statistic": "peak"}
    for name, value in {"q": 0.5, "change": 0.0, "change_low": -0.1, "change_high": 0.1}.items():
        dataset[name].loc[at] = value
    for head, (change, low) in enumerate([(0.5, -0.01), (0.3, 0.2), (0.2, 0.1)]):
        here = {**at, "layer": 0, "head": head}
        dataset["q"].loc[here], dataset["change"].loc[here] = 0.01, change
        dataset["change_low"].loc[here], dataset["change_high"].loc[here] = low, 2 * change - low
    entry = next(entry for entry in describe("patterns", dataset).detail if entry.startswith("Peak"))
    assert (
        "3 changed, 3 upwards; most of the 2 whose interval excludes zero L0H1 (0.3, 0.2 to 0.4) and L0H2 (0.2, 0.1 to 0.3)."
        in entry
    )
    assert "L0H0 (0.5" not in entry
    dataset["change_low"].loc[at] = -1.0
    entry = next(entry for entry in describe("patterns", dataset).detail if entry.startswith("Peak"))
    assert "in each the interval of the mean change includes zero." in entry


def test_as_many_heads_as_share_a_value_are_counted() -> None:
    dataset = patterns_dataset(6, 4)
    dataset["value"].loc[{"statistic": "peak", "condition": "model"}] = 0.5
    entry = next(entry for entry in describe("patterns", dataset).detail if entry.startswith("Peak"))
    assert "Largest in L0H0 (0.5), L0H1 (0.5), L0H2 (0.5) and 21 others as large as the last." in entry


def test_a_loss_that_may_not_have_changed_is_told_so() -> None:
    dataset = patterns_dataset(4, 3)
    here = {"feature": "loss"}
    for sure, told in (
        (False, "its loss changes by 0.02 nats, not significantly."),
        (True, "its loss changes by 0.02 nats."),
    ):
        dataset["whole_change"].loc[here], dataset["whole_change_high"].loc[here] = 0.02, 0.05
        dataset["whole_change_low"].loc[here] = 0.01 if sure else -0.01
        assert told in describe("patterns", dataset).short()
