"""The words of the relation validation: each number computed again from the data."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm
from synthetic.relation_validation import relation_validation_dataset as make

from headwise.describe import Number
from headwise.studies.present import describe


def recomputed(number: Number, ds: xr.Dataset) -> float:
    kind, *rest = number.source.split()
    if kind.removesuffix("_low").removesuffix("_high") in ("pearson_forced", "pearson_natural"):
        return float(ds[kind].sel(relation=rest[0]))
    if kind.removesuffix("_low").removesuffix("_high") in ("effect", "spill", "rank_p", "rank_q"):
        return float(ds[kind].sel(task=rest[0]))
    if kind in ("own", "random"):
        return float(ds[kind].sel(task=rest[0], removed=int(rest[1])))
    rules = {
        "relations": lambda: ds.sizes["relation"],
        "tasks": lambda: ds.sizes["task"],
        "asked": lambda name: int(ds["asked"].sel(task=name)),
        "mean": lambda name: float(ds[name].mean()),
        "sure": lambda name: int((ds[f"pearson_{name}_low"] > 0).sum()),
        "known": lambda name: int(ds[f"pearson_{name}"].notnull().sum()),
        "detectable": lambda name: (
            float((ds["effect_high"] - ds["effect_low"]).sel(task=name))
            / (2 * 1.959964)
            * (norm.ppf(0.975) + norm.ppf(0.8))
        ),
        "needed": lambda: int(((ds["effect_low"] > 0) & (ds["rank_p"] < 0.05)).sum()),
        "specific": lambda: int(
            ((ds["effect_low"] > 0) & (ds["rank_p"] < 0.05) & (ds["effect_low"] > ds["spill_high"])).sum()
        ),
        "fewest": lambda _: int(ds["prompts"].min()),
        "unsolved": lambda _: 7,
        "tried": lambda _: 40,
    }
    return number.value if kind in ("removed", "edge") else rules[kind](*rest)


@pytest.mark.parametrize("options", [{}, {"tasks": 1}, {"tasks": 0}, {"layers": 3, "heads": 2, "seed": 4}])
def test_every_number_can_be_computed_again(options: dict[str, int]) -> None:
    ds = make(**options)
    words = describe("relation_validation", ds)
    assert len(words.numbers) > 20
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, ds), rel=1e-5, abs=1e-6), number
        assert number.text in words.text() + words.short()


def test_what_it_says_follows_the_numbers() -> None:
    ds = make()
    text = describe("relation_validation", ds).text()
    assert "costs more than ablating random ones in 3 of 4 tasks" in text
    assert "The model solves too few prompts of comparative (7 of 40)" in text
    ds["effect_low"][:] = -0.1
    text = describe("relation_validation", ds).text()
    assert (
        "In none of 4 tasks does ablating the relation's heads cost significantly more than ablating random ones"
        in text
    )
    assert "larger than the side effect" not in text


def test_the_headline_tells_natural_before_forced() -> None:
    ds = make()
    short = describe("relation_validation", ds).short()
    natural, forced = (f"{float(ds[f'pearson_{name}'].mean()):.2f}" for name in ("natural", "forced"))
    first = f"by {natural} with the attention as it is"
    assert first in short and f"and {forced} with all attention forced onto the source" in short[short.index(first) :]
    ds["pearson_natural"][:] = np.nan
    assert f"with texts by {forced} with all attention forced" in describe("relation_validation", ds).short()


def test_the_spill_decides_what_is_specific() -> None:
    ds = make()
    ds["spill_high"][:] = 0.9
    assert (
        "The effect is significantly larger than the side effect in none" in describe("relation_validation", ds).text()
    )


def test_relations_without_a_correlation_are_named() -> None:
    ds = make()
    for end in ("", "_low", "_high"):
        ds[f"pearson_forced{end}"].loc[{"relation": "plural"}] = np.nan
    text = describe("relation_validation", ds).text()
    assert "No correlation for plural" in text and "nan" not in text


def test_how_random_heads_were_drawn_is_told() -> None:
    ds = make()
    assert "drawn from all layers" in describe("relation_validation", ds).text()
    origin = json.loads(ds.attrs["provenance"]) | {"parameters": {"same_layers": True}}
    ds.attrs["provenance"] = json.dumps(origin)
    assert "drawn from the layers of the heads" in describe("relation_validation", ds).text()
