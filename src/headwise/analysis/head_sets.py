"""Which heads does each study name? Head sets, each with the map that it is a selection of.

| study | one set per | its heads | its map |
|---|---|---|---|
| relations | category | those the study puts in it, by either sign | the highest score of the category's relations |
| functions | function | those up to the elbow with q < 0.05 | magnitude of the importance |
| spectral | feature, whole text | the strongest tenth, with q < 0.05 | distance of the AUROC from 0.5 |
| probing | (one) | the best tenth, with q < 0.05 | AUROC of the head's probe |
| profile | previous, induction, duplicate, sink, delimiter | the highest tenth, with the interval over a uniform head | value |
| circuits | task | the strongest tenth, with the interval off 0 | size of the effect |

Where a study makes a claim (a category, an elbow), that is the set. Where it tests every head, nearly all heads may be
significant in a large sample, and a set of nearly all heads overlaps everything: then the set is the significant part of the
strongest tenth. A study outside this table declares its sets by ``head_sets`` in its spec: a function from its Dataset to
`HeadSetMap`s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.core.dims import CATEGORY, FEATURE, FUNCTION, HEAD, LAYER, PART, RELATION, STATISTIC, TASK
from headwise.studies.registry import dataset_spec

__all__ = ["HeadSetMap", "head_set_maps"]

SET_SHARE = 0.1  # of the measured heads
PROFILE_SETS = ("previous", "induction", "duplicate", "sink", "delimiter")


@dataclass(frozen=True, eq=False)
class HeadSetMap:
    """A set of heads and the map that it is a selection of; both (layer, head)."""

    key: str
    study: str
    label: str
    rule: str
    strength: np.ndarray
    """NaN where a head was not measured"""
    member: np.ndarray


def head_set_maps(datasets: Mapping[str, xr.Dataset]) -> tuple[list[HeadSetMap], list[str]]:
    """All head sets of an atlas, and sentences about those that were left out."""
    makers = {study: make for study, make in _TABLE.items() if study in datasets}
    for study in datasets:
        if (spec := dataset_spec(study)) is not None and (declared := spec.load("head_sets")) is not None:
            makers[study] = declared
    found = [each for study, make in makers.items() for each in make(datasets[study])]
    usable = [one for one in found if np.isfinite(one.strength).any()]
    out = [f"{one.study} {one.label}: the study has no map of it" for one in found if one not in usable]
    return usable, out


def _relations(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    scores = np.fmax(*(_map(dataset[sign], RELATION) for sign in ("score", "suppression")))
    member = (dataset["member"] | dataset["member_suppression"]).transpose(CATEGORY, LAYER, HEAD).values
    owner = dataset["category_of"].values.astype(str)
    for index, name in enumerate(dataset[CATEGORY].values.astype(str)):
        if not (owner == name).any():
            continue
        strength = np.fmax.reduce(scores[owner == name], axis=0)
        rule = (
            f"over {100 * float(dataset.attrs['threshold']):g} % of the pairs of one of its relations, by the weights"
        )
        yield HeadSetMap(f"relations.{name}", "relations", name.capitalize(), rule, strength, member[index])


def _functions(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    strength = _map(dataset["magnitude"], FUNCTION)
    member = (dataset["chosen"] & dataset["beyond_null"]).transpose(FUNCTION, LAYER, HEAD).values
    for index, name in enumerate(dataset[FUNCTION].values.astype(str)):
        rule = "up to the elbow of importance, with q < 0.05"
        yield HeadSetMap(f"functions.{_word(name)}", "functions", name, rule, strength[index], member[index])


def _spectral(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    parts = dataset[PART].values.astype(str).tolist()
    whole = dataset.sel({PART: "whole" if "whole" in parts else parts[0]})
    strength = np.abs(_map(whole["effect"], FEATURE) - 0.5)
    passed = _map(whole["q"], FEATURE) < 0.05
    for index, name in enumerate(dataset[FEATURE].values.astype(str)):
        label = str(dataset["label"].values[index])
        rule = "the strongest tenth by |AUROC - 0.5| of wrong against correct answers, with q < 0.05"
        member = _strongest(strength[index], passed[index])
        yield HeadSetMap(f"spectral.{name}", "spectral", label, rule, strength[index], member)


def _probing(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    strength = _map(dataset["head_auroc"])
    member = _strongest(strength, _map(dataset["head_q"]) < 0.05)
    rule = "the best tenth by AUROC of a probe on the head's output, with q < 0.05"
    yield HeadSetMap("probing.head_auroc", "probing", "Probe on a head", rule, strength, member)


def _profile(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    known = dataset[STATISTIC].values.astype(str).tolist()
    values, low, uniform = (_map(dataset[name], STATISTIC) for name in ("value", "low", "uniform"))
    for name in (each for each in PROFILE_SETS if each in known):
        index = known.index(name)
        rule = "the highest tenth, with the interval over a uniform head"
        member = _strongest(values[index], low[index] > uniform[index])
        label = str(dataset["label"].values[index])
        yield HeadSetMap(f"profile.{name}", "profile", label, rule, values[index], member)


def _circuits(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    effect, low, high = (_map(dataset[name], TASK) for name in ("effect", "effect_low", "effect_high"))
    for index, name in enumerate(dataset[TASK].values.astype(str)):
        strength = np.abs(effect[index])
        member = _strongest(strength, (low[index] > 0) | (high[index] < 0))
        rule = "the strongest tenth by effect, with the interval off 0"
        label = str(dataset["label"].values[index])
        yield HeadSetMap(f"circuits.{_word(name)}", "circuits", label, rule, strength, member)


_TABLE: Mapping[str, Callable[[xr.Dataset], Iterator[HeadSetMap]]] = {
    "relations": _relations,
    "functions": _functions,
    "circuits": _circuits,
    "spectral": _spectral,
    "probing": _probing,
    "profile": _profile,
}


def _map(array: xr.DataArray, *first: str) -> np.ndarray:
    return array.transpose(*first, LAYER, HEAD).values.astype(float)


def _strongest(strength: np.ndarray, passed: np.ndarray) -> np.ndarray:
    """The tenth with the largest strength, of these those that passed."""
    measured = np.isfinite(strength)
    count = max(1, round(SET_SHARE * int(measured.sum())))
    order = np.argsort(np.where(measured, -strength, np.inf), axis=None, kind="stable")[:count]
    member = np.zeros(strength.size, dtype=bool)
    member[order] = True
    return member.reshape(strength.shape) & passed & measured


def _word(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")
