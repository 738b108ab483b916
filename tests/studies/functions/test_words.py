"""The words of the functions study: each number computed again, planted heads named, refused functions told as refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import xarray as xr
from map_rules import map_rules
from synthetic.functions import EIGHT, ELEVEN, REASON, functions_dataset

from headwise.describe import Description, Number
from headwise.studies.present import describe, figure_of

HEAD = re.compile(r"L(\d+)H(\d+)")
NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")
SIZES = {
    "default": {}, "two": {"functions": EIGHT[:2], "refused": ()}, "eleven": {"functions": ELEVEN},
    "small": {"layers": 2, "heads": 3}, "all refused": {"refused": EIGHT}, "seed": {"seed": 4, "refused": ()},
}  # fmt: skip


def owners(ds: xr.Dataset) -> np.ndarray:
    """(layer, head): how many functions have the head up to their elbow."""
    return ds["chosen"].sum("function").values


def top(ds: xr.Dataset, name: str) -> tuple[int, np.ndarray]:
    values = np.sort(ds["magnitude"].sel(function=name).values.ravel().astype(float))
    return max(1, round(0.05 * values.size)), values


def gini(values: np.ndarray) -> float:
    return float(np.abs(values[:, None] - values[None]).sum() / (2 * values.size**2 * values.mean()))


def fullest(one: xr.Dataset) -> np.ndarray:
    """The layers that no other has more heads than."""
    counts = one["chosen"].sum("head").values
    return np.array([not (counts > count).any() for count in counts])


def third(ds: xr.Dataset, name: str, index: int) -> float:
    chosen = ds["chosen"].sel(function=name).values
    return 100 * float(np.array_split(chosen, 3)[index].sum() / chosen.sum())


def correlations(ds: xr.Dataset) -> dict[tuple[str, str], float]:
    kept = ds.isel(function=~ds["refused"].values)
    names = [str(name) for name in kept["function"].values]
    found = np.corrcoef(kept["magnitude"].values.reshape(len(names), -1).astype(float))
    return {(names[i], names[j]): found[i, j] for i, j in combinations(range(len(names)), 2)}


def of_function(what: str, name: str, ds: xr.Dataset) -> float:
    """A number that a function has."""
    if what == "correlation":
        one, other = name.split(" | ")
        found = correlations(ds)
        return found[(one, other)] if (one, other) in found else found[(other, one)]
    one = ds.sel(function=name)
    kind, *rest = what.split()
    magnitude = one["magnitude"].astype(float)
    rules: dict[str, Callable[..., float]] = {
        "magnitude": lambda head: magnitude.values[tuple(map(int, HEAD.fullmatch(head).groups()))],  # type: ignore[union-attr]
        "importance_sd": lambda head: one["importance_sd"].values[tuple(map(int, HEAD.fullmatch(head).groups()))],  # type: ignore[union-attr]
        "alone": lambda: 100 * float((one["single_head_q"] < 0.05).mean()),
        "elbow": lambda: int(one["elbow"]),
        "elbow-share": lambda: 100 * int(one["elbow"]) / magnitude.size,
        "measured": lambda: magnitude.size,
        "mass": lambda: 100 * magnitude.values[one["chosen"].values].sum() / magnitude.values.sum(),
        "exclusive": lambda: (one["chosen"].values & (owners(ds) == 1)).sum(),
        "beyond": lambda: int((one["q"] < 0.05).sum()),
        "own": lambda: int((one["own_q"] < 0.05).sum()),
        "third": lambda index: third(ds, name, int(index)),
        "peak": lambda layer: int(layer) if fullest(one)[int(layer)] else -1,
        "fullest": lambda: fullest(one).sum(),
        "top-heads": lambda: top(ds, name)[0],
        "top-share": lambda: 100 * top(ds, name)[1][-top(ds, name)[0] :].sum() / top(ds, name)[1].sum(),
        "gini": lambda: gini(top(ds, name)[1]),
    }
    return float(rules[kind](*rest)) if kind in rules else float(one[kind])


def shares(ds: xr.Dataset, of: str) -> np.ndarray:
    """What every function has, told by its ends."""
    return (ds["single_head_q"] < 0.05).mean(("layer", "head")).values if of == "alone" else ds[of].values


def recomputed(number: Number, ds: xr.Dataset) -> float:
    what, of, name = number.source.partition(" of ")
    if of:
        found = of_function(what, name, ds)
        return 100 * found if what == "accuracy" and number.text.endswith("%") else found
    kind, *rest = number.source.split()
    values = ds["magnitude"].values
    finite = values[np.isfinite(values)]
    counts = owners(ds)
    known = ds["rank_correlation"].values[np.isfinite(ds["rank_correlation"].values)]
    rules: dict[str, Callable[..., float]] = map_rules(
        lambda key: ds["magnitude"].sel(function=key.replace("_", " ")).values.astype(float)
    ) | {
        "probe_accuracy": lambda: float(ds["probe_accuracy"]),
        "layers": lambda: ds.sizes["layer"],
        "heads": lambda: ds.sizes["head"],
        "functions": lambda: ds.sizes["function"],
        "refused": lambda: int(ds["refused"].sum()),
        "steps": lambda: ds.sizes["example"],
        "chains": lambda: len(set(ds["chain"].values)),
        "all": lambda split: int(ds[split].sum()),
        "right": lambda: 100 * float(ds["right"].mean()),
        "seeds": lambda: ds.sizes["seed"],
        "cap": lambda: figure_of("functions", ds).scales["magnitude"].high,
        "clipped": lambda: (finite > figure_of("functions", ds).scales["magnitude"].high).sum(),
        "clipped-share": lambda: 100 * (finite > figure_of("functions", ds).scales["magnitude"].high).mean(),
        "over-half": lambda: 100 * float((finite > figure_of("functions", ds).scales["magnitude"].high / 2).mean()),
        "over-published": lambda: 100 * float((finite > 0.001).mean()),
        "mean": lambda name: float(ds[name].mean()),
        "peak": lambda name: float(ds[name].mean("function").max()),
        "peak-layer": lambda name: int(ds[name].mean("function").values.argmax()),
        "worded": lambda: int(ds["wording_by_layer"].notnull().all("layer").sum()),
        "worded-higher": lambda: int(
            (ds["wording_by_layer"].mean("function") >= ds["function_by_layer"].mean("function")).sum()
        ),
        "shuffles": lambda: int(ds.attrs["shuffles"]),
        "least-q": lambda: 1 / 21,
        "mapped": lambda: int((~ds["refused"]).sum()),
        "maps-beyond": lambda: int((ds["map_p"] < 0.05).sum()),
        "half-cap": lambda: figure_of("functions", ds).scales["magnitude"].high / 2,
        "mean-agreement": lambda: float(np.nanmean(ds["agreement"].values)),
        "cells": lambda: finite.size,
        "total": lambda: ds.sizes["layer"] * ds.sizes["head"],
        "owned": lambda: (counts > 0).sum(),
        "exclusive": lambda: (counts == 1).sum(),
        "shared": lambda: (counts > 1).sum(),
        "mean-correlation": lambda: float(np.mean(list(correlations(ds).values()))),
        "mean-rank_correlation": lambda: float(known.mean()),
        "sure": lambda: int((ds["rank_correlation_low"] > 0).sum()),
        "ranked": lambda: known.size,
        "fewest": lambda: int(ds["held_out"].min()),
        "tied-alone": lambda: (ds["single_head_accuracy"] == ds["single_head_accuracy"].max()).sum() - 1,
        "least": lambda of: (shares(ds, of) == np.nanmin(shares(ds, of))).sum(),
        "most": lambda of: (shares(ds, of) == np.nanmax(shares(ds, of))).sum(),
    }
    if kind in ("constant", "edge"):
        return number.value
    if kind.startswith("single_head_accuracy"):
        assert rest[0] == f"L{ds['single_head_accuracy'].values.argmax() // ds.sizes['head']}H" + str(
            ds["single_head_accuracy"].values.argmax() % ds.sizes["head"]
        )
        return float(ds[kind].values.flat[ds["single_head_accuracy"].values.argmax()])
    return float(rules[kind](*rest)) if kind in rules else float(ds[kind])


def stripped(words: Description) -> str:
    text = words.text() + words.short()
    text = (
        text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "")
        .replace("(5 %)", "")
        .replace("95 %", "")
        .replace(REASON, "")
    )
    return HEAD.sub("", text)


@pytest.mark.parametrize("size", SIZES)
def test_every_number_is_in_the_data(size: str) -> None:
    ds = functions_dataset(**SIZES[size])
    words = describe("functions", ds)
    known = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    said = Counter(NUMBER.findall(stripped(words)))
    assert said.total() > 40
    assert not said - known
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, ds), rel=1e-4, abs=1e-6), number
    assert "not known" not in words.text() and "nan" not in words.text().lower().split()


def test_planted_heads_are_named() -> None:
    words = describe("functions", functions_dataset())
    retrieval = next(line for line in words.detail if line.startswith("Retrieval (low order):"))
    assert "Most important: L2H1 (0.02 ±" in retrieval and "L3H0 (0.012 ±" in retrieval
    assert "6 of 270 heads (2.2 %) up to the elbow" in retrieval
    assert "5 of them in no other function" in retrieval
    assert "By thirds of the layers 100 %, 0 % and 0 %" in retrieval
    inference = next(line for line in words.detail if line.startswith("Inference (high order):"))
    assert "most in layer 13." in inference
    said = "\n".join(words.observations)
    assert "1 to several: L2H1 (Knowledge Recall, Retrieval)." in said
    assert "the most similar maps are those of Knowledge Recall and Retrieval" in said


def test_a_refused_function_is_told_as_refused() -> None:
    words = describe("functions", functions_dataset())
    line = next(line for line in words.detail if line.startswith("Semantic Understanding"))
    assert line.endswith(f"No map: {REASON}.") and not HEAD.search(line)
    of_maps = [
        line for line in words.observations if "probe on one head" not in line
    ]  # probes on single heads need no map
    assert not any("Semantic Understanding" in line for line in of_maps)
    nothing = describe("functions", functions_dataset(refused=EIGHT))
    assert not any(HEAD.search(line) for line in nothing.detail)


def test_the_answers_form_is_told_where_it_would_do() -> None:
    ds = functions_dataset()
    said = "\n".join(describe("functions", ds).observations)
    assert (
        "or exceeds it, for Knowledge Recall (0.85) and Retrieval (0.90): there the map may show the form of answers"
        in said
    )
    ds["confound_auroc"][:] = 0.5
    assert "for no function does its AUROC reach the interval" in describe("functions", ds).text()


def test_clipping_is_told_as_the_figure_has_it() -> None:
    ds = functions_dataset()
    scale = figure_of("functions", ds).scales["magnitude"]
    over = int((ds["magnitude"] > scale.high).sum())
    line = next(line for line in describe("functions", ds).axes if "colour scale" in line)
    assert f"ends at {scale.high:g}; {over} cells" in line
    ds["magnitude"] = ds["magnitude"].clip(max=scale.high / 2)
    assert "no cell lies beyond it" in describe("functions", ds).text()


def test_a_model_that_fails_most_steps_is_told_once() -> None:
    ds = functions_dataset()
    ds["accuracy"][:] = np.linspace(0.1, 0.4, 8)
    assert (
        "fewer than half of the steps of every function correctly, 10 % (Retrieval) to 40 % (Decision-making)."
        in " ".join(describe("functions", ds).caveats)
    )


def test_what_was_left_out_is_told() -> None:
    reason = "Induction has 3 steps, fewer than 20"
    ds = functions_dataset().assign_attrs(left_out=json.dumps({"Induction": reason}))
    assert f"Left out: {reason}." in describe("functions", ds).overview
    assert "Left out" not in describe("functions", functions_dataset()).text()


def test_a_label_that_is_no_function_stands_next_to_the_functions() -> None:
    """By construction the wording is .1 above the function in the first layer and .1 below it in the last."""
    ds = functions_dataset()
    text = describe("functions", ds).text()
    assert "decoded from single heads with an AUROC of 0.73 on average over 7 cognitive functions" not in text
    assert "decoded from single heads with an AUROC of 0.73 on average over 7 functions and all layers" in text
    assert "in 15 of 30 layers: that a function can be decoded from a head is no evidence" in text
    better = ds.assign(wording_by_layer=ds["wording_by_layer"] - 0.05)
    assert "no evidence" not in describe("functions", better).text()
    old = ds.drop_vars(["wording_by_layer", "map_p"])
    text = describe("functions", old).text()
    assert "older version, which measured no label" in text and "whose null was too easy" in text
