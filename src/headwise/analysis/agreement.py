"""Do the studies of an atlas agree on which heads matter? Every head set of one study against every set of the others.

    found = agreement(atlas)
    found.pair("relations.knowledge", "functions.Knowledge_Recall")

Steps: make the head sets (`headsets`); keep the heads that all their maps measured; test overlap and rank correlation of all
pairs across studies (`evidence`), against heads shuffled over the whole model and within layers. The second is what counts:
two maps that both grow with depth overlap more than chance without having anything else to do with each other.

Cost: seconds. This module does not know how anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.analysis.head_sets import HeadMap, head_maps
from headwise.analysis.jsonable import to_jsonable
from headwise.analysis.permutation import Evidence, Heads, bands, evidence_of, odds_ratio, ranks, within
from headwise.atlas import Atlas
from headwise.atlas.head_table import check_same_model
from headwise.core.dims import head_name
from headwise.core.errors import DataError, StudyError, did_you_mean
from headwise.core.markup import card, paragraph, table
from headwise.figures.origin import model_name, origin_of, small_print

__all__ = ["AGREEMENT", "Agreement", "Pair", "SetFact", "agreement", "agreement_of"]

AGREEMENT = "agreement"  # what ``show`` and ``describe`` call it; no study has this name
PERMUTATIONS = 10_000
LEAST_SHARE = 0.5  # of the heads, for a map to be kept


def agreement(atlas: Atlas, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Agreement:
    """Do the studies of an atlas name the same heads? All pairs of head sets across studies.

    Args:
        atlas: with at least two studies of heads.
        permutations: shuffles a test.
        seed: of the shuffles.

    Returns:
        Overlap and rank correlation of every pair, against heads shuffled over the model and within layers.

    Examples:
        >>> found = agreement(atlas, permutations=200)
        >>> [one.key for one in found.sets][:3]
        ['relations.algorithmic', 'relations.knowledge', 'relations.linguistic']
        >>> pair = found.pair("relations.knowledge", "profile.previous")
        >>> pair.count, round(pair.expected, 1), pair.q < 0.05  # heads in both, those that chance gives, and no more
        (0, 0.3, False)
    """
    return agreement_of({study: atlas[study] for study in atlas.studies}, permutations=permutations, seed=seed)


def agreement_of(datasets: Mapping[str, xr.Dataset], *, permutations: int = PERMUTATIONS, seed: int = 0) -> Agreement:
    """The same, of Datasets in memory."""
    check_same_model(datasets)
    maps, left_out = _usable(datasets)
    origin = origin_of(datasets[maps[0].study])
    there = np.logical_and.reduce([np.isfinite(one.strength) for one in maps])
    names, heads, how = _heads(there, int(origin.get("model", {}).get("kv_heads") or 0))
    if len(names) < there.size:
        left_out.append(f"{there.size - len(names)} heads, which not all of these studies measured")
    pairs = [(i, j) for i, j in combinations(range(len(maps)), 2) if maps[i].study != maps[j].study]
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    sets = np.stack([one.member[there] for one in maps]).astype(float)
    strength = np.stack([one.strength[there] for one in maps])
    sides = {"overlap": sets, "rank": ranks(strength)}
    left = within(strength, heads.band)
    found = {
        (kind, inside): evidence_of(first, second, side, heads, permutations, seed, inside=inside)
        for kind, side in sides.items()
        for inside in (True, False)
    }
    return Agreement(
        model=model_name(origin) or "the model",
        heads=len(names),
        sets=tuple(_fact(one, sets[place], names) for place, one in enumerate(maps)),
        pairs=tuple(
            _pair(place, maps, (i, j), sets, names, found, float(left[i] @ left[j]))
            for place, (i, j) in enumerate(pairs)
        ),
        permutations=permutations,
        seed=seed,
        shuffled=how,
        by_chance=found["overlap", True].by_chance,
        correlation_by_chance=found["rank", True].by_chance,
        left_out=tuple(left_out),
        provenance=small_print(
            {"model": origin.get("model", {}), "seed": seed, "environment": origin.get("environment", {})}
        ),
    )


def _usable(datasets: Mapping[str, xr.Dataset]) -> tuple[list[HeadMap], list[str]]:
    maps, left_out = head_maps(datasets)
    shape = tuple(max((one.strength.shape[axis] for one in maps), default=0) for axis in (0, 1))
    kept = [one for one in maps if np.isfinite(one.strength).sum() >= LEAST_SHARE * shape[0] * shape[1]]
    left_out += [f"{one.study} {one.label}: under half of the heads were measured" for one in maps if one not in kept]
    if len({one.study for one in kept}) < 2:
        has = ", ".join(sorted({one.study for one in kept})) or "none"
        raise StudyError(
            f"Agreement needs two studies that name heads, and of these the atlas has {has}; "
            "add one with headwise build --studies profile,relations."
        )
    return [_padded(one, shape) for one in kept], left_out


def _padded(one: HeadMap, shape: tuple[int, ...]) -> HeadMap:
    """On the grid of the largest map; what is beyond its own was not measured."""
    if one.strength.shape == shape:
        return one
    rows, columns = one.strength.shape
    wider = ((0, shape[0] - rows), (0, shape[1] - columns))
    strength, member = np.pad(one.strength, wider, constant_values=np.nan), np.pad(one.member, wider)
    return HeadMap(one.key, one.study, one.label, one.rule, strength, member)


def _heads(there: np.ndarray, kv_heads: int) -> tuple[list[str], Heads, str]:
    """The names of the heads that are there, how they may be shuffled, and that in words."""
    layer, head = np.nonzero(there)
    shared = there.shape[1] // kv_heads if kv_heads and there.shape[1] % kv_heads == 0 else 1
    band = bands(layer)
    where = "within layers" if len(np.unique(band)) == len(np.unique(layer)) else "within bands of adjacent layers"
    together = f", the {shared} heads that share keys and values staying together" if shared > 1 else ""
    names = [head_name(int(row), int(column)) for row, column in zip(layer, head, strict=True)]
    return names, Heads(band, layer * there.shape[1] + head // shared), f"{where}{together}"


def _fact(one: HeadMap, member: np.ndarray, names: Sequence[str]) -> SetFact:
    return SetFact(
        one.key, one.study, one.label, one.rule, tuple(names[int(place)] for place in np.flatnonzero(member))
    )


def _pair(
    place: int,
    maps: Sequence[HeadMap],
    sides: tuple[int, int],
    sets: np.ndarray,
    names: Sequence[str],
    found: Mapping[tuple[str, bool], Evidence],
    within_layers: float,
) -> Pair:
    one, other = sets[sides[0]], sets[sides[1]]
    both = np.flatnonzero(one * other)
    overlap, rank = found["overlap", True], found["rank", True]
    overlap_all, rank_all = found["overlap", False], found["rank", False]
    return Pair(
        first=maps[sides[0]].key,
        second=maps[sides[1]].key,
        first_size=int(one.sum()),
        second_size=int(other.sum()),
        count=len(both),
        shared=tuple(names[int(head)] for head in both),
        expected=float(overlap.expected[place]),
        expected_low=float(overlap.low[place]),
        expected_high=float(overlap.high[place]),
        expected_all=float(one.sum() * other.sum() / len(names)),
        odds_ratio=odds_ratio(len(both), one.sum(), other.sum(), len(names))
        if one.any() and other.any()
        else float("nan"),
        p=float(overlap.p[place]),
        q=float(overlap.q[place]),
        p_all=float(overlap_all.p[place]),
        q_all=float(overlap_all.q[place]),
        correlation=float(rank.observed[place]),
        correlation_expected=float(rank.expected[place]),
        correlation_within=within_layers,
        correlation_p=float(rank.p[place]),
        correlation_q=float(rank.q[place]),
        correlation_p_all=float(rank_all.p[place]),
        correlation_q_all=float(rank_all.q[place]),
    )


SHOWN = 12  # pairs in a notebook's cell
HEADER = ("heads of", "and of", "in both", "expected", "q of overlap", "correlation within layers", "q of correlation")


@dataclass(frozen=True)
class SetFact:
    """A set of heads that one study names, and the map it was cut from."""

    key: str
    """"relations.knowledge" """
    study: str
    label: str
    """for a reader, "Knowledge" """
    rule: str
    """which heads are in, in words"""
    heads: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Two head sets of two studies. ``_all``: against heads shuffled over the whole model; else within their layers."""

    first: str
    second: str
    first_size: int
    second_size: int
    count: int
    """heads in both"""
    shared: tuple[str, ...]
    expected: float
    """mean overlap with heads shuffled within layers"""
    expected_low: float
    """95 % of the shuffles give from expected_low to expected_high"""
    expected_high: float
    expected_all: float
    odds_ratio: float
    """of the 2 x 2 table, 0.5 added to each cell; NaN where a set is empty"""
    p: float
    """NaN where a set is empty, or where shuffling within layers never changes the overlap"""
    q: float
    p_all: float
    q_all: float
    correlation: float
    """Spearman, of the two maps over all heads"""
    correlation_expected: float
    """its mean with heads shuffled within layers: what depth alone gives"""
    correlation_within: float
    """the same of ranks with the mean of their layer taken off: what depth does not explain"""
    correlation_p: float
    """of the correlation within layers: depth's part is the same in every shuffle"""
    correlation_q: float
    correlation_p_all: float
    correlation_q_all: float


@dataclass(frozen=True)
class Agreement:
    """All pairs of head sets of unlike studies. Made by `agreement`.

    Examples:
        >>> from headwise.analysis import agreement
        >>> found = agreement(atlas, permutations=200)
        >>> found
        <Agreement HuggingFaceTB/SmolLM2-135M-Instruct: 74 pairs of 15 head sets, 36 heads>
        >>> found.frame().shape[0] == len(found.pairs)
        True
    """

    model: str  # its name
    heads: int
    """that were measured by all these studies"""
    sets: tuple[SetFact, ...]  # the head sets
    pairs: tuple[Pair, ...]  # every set against every set of another study
    permutations: int  # shuffles a test
    seed: int  # of the shuffles
    shuffled: str
    """how heads were shuffled, in words"""
    by_chance: float
    """mean number of pairs whose overlap has q < 0.05 when one map is shuffled within layers: should be near 0"""
    correlation_by_chance: float
    """the same of the correlation"""
    left_out: tuple[str, ...] = ()
    """sentences"""
    provenance: str = ""
    """model and versions on one line"""

    def pair(self, first: str, second: str) -> Pair:
        """The pair of these two sets, in either order."""
        for one in self.pairs:
            if {one.first, one.second} == {first, second}:
                return one
        known = [one.key for one in self.sets]
        missing = next((key for key in (first, second) if key not in known), None)
        if missing is None:
            raise DataError(f"{first} and {second} are of one study; pairs are made across studies.")
        raise DataError(f"There is no head set {missing!r}. {did_you_mean(missing, known)}")

    def frame(self) -> pd.DataFrame:
        """One row a pair."""
        return pd.DataFrame([to_jsonable(one) for one in self.pairs])

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = to_jsonable(self)
        return found

    def __repr__(self) -> str:
        return f"<Agreement {self.model}: {len(self.pairs)} pairs of {len(self.sets)} head sets, {self.heads} heads>"

    def _repr_html_(self) -> str:
        rows = [_row(one) for one in sorted(self.pairs, key=_surprise)[:SHOWN]]
        note = (
            f"The {len(rows)} pairs with the smallest q of {len(self.pairs)}. Expected: heads shuffled {self.shuffled}."
        )
        return card(
            f"Agreement between studies of {self.model}", table(rows, header=HEADER), paragraph(note, quiet=True)
        )


def _surprise(pair: Pair) -> float:
    """The smaller q of the two, where there is one."""
    return min((q for q in (pair.q, pair.correlation_q) if math.isfinite(q)), default=math.inf)


def _row(pair: Pair) -> tuple[object, ...]:
    expected = f"{pair.expected:.2g} ({pair.expected_low:.2g} to {pair.expected_high:.2g})"
    numbers = (f"{q:.2g}" if math.isfinite(q) else "" for q in (pair.q, pair.correlation_within, pair.correlation_q))
    return (pair.first, pair.second, pair.count, expected, *numbers)
