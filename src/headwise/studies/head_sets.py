"""Which heads does each study name? Head sets, each with the map that it is a selection of.

A study declares its sets by ``head_sets`` in its spec: a function from its Dataset to `HeadSetMap`s (its ``heads.py``).
Where a study makes a claim (a category, an elbow), that is the set. Where it tests every head, nearly all heads may be
significant in a large sample, and a set of nearly all heads overlaps everything: then the set is the significant part of the
strongest tenth (`strongest`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER
from headwise.studies.registry import datasets as dataset_specs

SET_SHARE = 0.1  # of the measured heads


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
    """All head sets of an atlas, in the order of the studies, and sentences about those that were left out."""
    found: list[HeadSetMap] = []
    for name, spec in dataset_specs().items():
        if name in datasets and (make := spec.load("head_sets")) is not None:
            found += make(datasets[name])
    usable = [one for one in found if np.isfinite(one.strength).any()]
    out = [f"{one.study} {one.label}: the study has no map of it" for one in found if one not in usable]
    return usable, out


def layer_head(array: xr.DataArray, *first: str) -> np.ndarray:
    """(first..., layer, head) as floats."""
    return array.transpose(*first, LAYER, HEAD).values.astype(float)


def strongest(strength: np.ndarray, passed: np.ndarray) -> np.ndarray:
    """The tenth with the largest strength, of these those that passed."""
    measured = np.isfinite(strength)
    count = max(1, round(SET_SHARE * int(measured.sum())))
    order = np.argsort(np.where(measured, -strength, np.inf), axis=None, kind="stable")[:count]
    member = np.zeros(strength.size, dtype=bool)
    member[order] = True
    return member.reshape(strength.shape) & passed & measured


def set_key(study: str, name: str) -> str:
    """The key of a set: "functions.Knowledge_Recall"."""
    word = re.sub(r"\W+", "_", name).strip("_")
    return f"{study}.{word}"
