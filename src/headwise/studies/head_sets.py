"""Which heads does each study name? Head sets, each with the map that it is a selection of.

A study declares its sets by ``head_sets`` in its spec. Where it makes a claim (a role, a category), that is the set: a
function from its Dataset to `HeadSetMap`s. Where it tests every head, nearly all heads may be significant in a large sample,
and a set of nearly all heads overlaps everything: then the set is the significant part of the strongest tenth
(`StrongestHeads`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headwise.core.dims import HEAD, LAYER
from headwise.studies.registry import datasets as dataset_specs

if TYPE_CHECKING:
    import xarray as xr

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


@dataclass(frozen=True)
class StrongestHeads:
    """Head sets by one rule: the strongest tenth of the heads, of these those that pass a test. One set per entry of a dim.

    Examples:
        >>> import xarray as xr
        >>> effect, q = xr.DataArray([[0.1, 0.9]], dims=("layer", "head")), xr.DataArray([[0.9, 0.01]], dims=("layer", "head"))
        >>> sets = StrongestHeads("mine", "the strongest tenth, with q < 0.05", ("effect", "q"), lambda effect, q: q < 0.05,
        ...                       name="effect", label="Effect")
        >>> [(one.key, one.member.tolist()) for one in sets(xr.Dataset({"effect": effect, "q": q}))]
        [('mine.effect', [[False, True]])]
    """

    study: str
    rule: str  # in words
    reads: tuple[str, ...]  # variables that the next two take, in double precision
    passed: Callable[..., np.ndarray]  # which heads pass the test
    strength: Callable[..., np.ndarray] = lambda *read: read[0]
    per: str = ""  # dim; empty: one set
    at: Mapping[str, str] = field(
        default_factory=dict
    )  # dim -> the entry that is used, or the first where there is none
    only: tuple[str, ...] = ()  # entries of ``per``, in this order; empty: all
    name: str = ""  # of the one set
    label: str = "{}"  # {} is the label of the entry

    def __call__(self, dataset: xr.Dataset) -> Iterator[HeadSetMap]:
        """The sets of a Dataset."""
        for dim, entry in self.at.items():
            entries = dataset[dim].values.astype(str).tolist()
            dataset = dataset.isel({dim: entries.index(entry) if entry in entries else 0})
        read = [layer_head(dataset[name], *([self.per] if self.per else [])) for name in self.reads]
        strength, passed = self.strength(*read), self.passed(*read)
        if not self.per:
            yield self._set(self.name, self.label, strength, passed)
            return
        entries = dataset[self.per].values.astype(str).tolist()
        for entry in (one for one in self.only or entries if one in entries):
            index = entries.index(entry)
            yield self._set(entry, self.label.format(dataset["label"].values[index]), strength[index], passed[index])

    def _set(self, name: str, label: str, strength: np.ndarray, passed: np.ndarray) -> HeadSetMap:
        member = strongest(strength, passed)
        return HeadSetMap(set_key(self.study, name), self.study, label, self.rule, strength, member)


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
