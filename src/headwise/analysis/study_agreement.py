"""Do the studies of an atlas agree on which heads matter? Every head set of one study against every set of the others.

    found = agreement(atlas)                    # Agreement
    found.pair("relations.knowledge", "functions.Knowledge_Recall").q
    agreement_figure(found), describe_agreement(found), found.to_dict()

Steps: make the head sets (`studies.head_sets`); keep the heads that every map measured; test overlap and rank correlation of
all pairs across studies (`permutation`), against heads permuted over the whole model and within layers. The second is the one
to read: two maps that both grow with depth overlap more than chance without any other relation.

Where the atlas has the study `causal`, `Agreement.needed` says of every set of the other studies how many of its heads the
model needs more than matched heads, and how its map correlates with the causal column. These comparisons are planned, so
their q-values are over the sets alone.

Cost: seconds.
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

from headwise.analysis.permutation import (
    HeadStrata,
    PermutationResult,
    layer_strata,
    odds_ratio,
    permutation_test,
    rank_vectors_within,
)
from headwise.atlas import Atlas
from headwise.atlas.head_table import check_same_model
from headwise.core.dims import head_name
from headwise.core.errors import DataError, StudyError, did_you_mean, translate_content_errors
from headwise.core.markup import card, paragraph, table
from headwise.core.provenance import QUICK
from headwise.figures.payload import to_jsonable
from headwise.figures.provenance import is_quick, model_name, provenance_caption, provenance_of
from headwise.stats import benjamini_hochberg, wilson_interval
from headwise.stats.correlation import rank_vectors
from headwise.studies.causal.heads import ALL, MORE
from headwise.studies.head_sets import HeadSetMap, head_set_maps

PERMUTATIONS = 10_000
MIN_MEASURED_SHARE = 0.5  # of the heads; maps with fewer are left out


def agreement(atlas: Atlas, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Agreement:
    """Do the studies of an atlas name the same heads? All pairs of head sets across studies.

    Args:
        atlas: with at least two studies of heads.
        permutations: per test.
        seed: of the permutations.

    Returns:
        Overlap and rank correlation of every pair, against heads permuted over the model and within layers.

    Examples:
        >>> found = agreement(atlas, permutations=200)
        >>> [one.key for one in found.sets][:3]
        ['profile.previous', 'profile.induction', 'profile.duplicate']
        >>> pair = found.pair("relations.knowledge", "profile.previous")
        >>> pair.count, round(pair.expected, 1), pair.q < 0.05  # heads in both, expected by chance
        (0, 0.3, False)
    """
    datasets = atlas.datasets()
    with translate_content_errors(f"The atlas {atlas.location}"):
        return agreement_of(datasets, permutations=permutations, seed=seed)


def agreement_of(datasets: Mapping[str, xr.Dataset], *, permutations: int = PERMUTATIONS, seed: int = 0) -> Agreement:
    """The same for Datasets in memory."""
    check_same_model(datasets)
    maps, left_out = _usable(datasets)
    origin = provenance_of(datasets[maps[0].study])
    measured = np.logical_and.reduce([np.isfinite(one.strength) for one in maps])
    names, strata, how = permutation_strata(measured, int(origin.get("model", {}).get("kv_heads") or 0))
    if len(names) < measured.size:
        left_out.append(f"{measured.size - len(names)} heads that not all of these studies measured")
    pairs = [(i, j) for i, j in combinations(range(len(maps)), 2) if maps[i].study != maps[j].study]
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    sets = np.stack([one.member[measured] for one in maps]).astype(float)
    strength = np.stack([one.strength[measured] for one in maps])
    sides = {"overlap": sets, "rank": rank_vectors(strength)}
    within_layers = rank_vectors_within(strength, strata.stratum)
    found = {
        (kind, within): permutation_test(first, second, rows, strata, permutations, seed, within=within)
        for kind, rows in sides.items()
        for within in (True, False)
    }
    head_sets = tuple(_head_set(one, sets[index], names) for index, one in enumerate(maps))
    compared = tuple(
        _pair(index, maps, (i, j), sets, names, found, float(within_layers[i] @ within_layers[j]))
        for index, (i, j) in enumerate(pairs)
    )
    return Agreement(
        model=model_name(origin) or "the model",
        heads=len(names),
        sets=head_sets,
        pairs=compared,
        needed=_needed(head_sets, compared),
        permutations=permutations,
        seed=seed,
        permuted=how,
        by_chance=found["overlap", True].by_chance,
        correlation_by_chance=found["rank", True].by_chance,
        left_out=tuple(left_out),
        provenance=provenance_caption(
            {
                "model": origin.get("model", {}),
                "parameters": {QUICK: is_quick(origin)},
                "seed": seed,
                "environment": origin.get("environment", {}),
            }
        ),
    )


def _usable(datasets: Mapping[str, xr.Dataset]) -> tuple[list[HeadSetMap], list[str]]:
    maps, left_out = head_set_maps(datasets)
    shape = tuple(max((one.strength.shape[axis] for one in maps), default=0) for axis in (0, 1))
    usable = [one for one in maps if np.isfinite(one.strength).sum() >= MIN_MEASURED_SHARE * shape[0] * shape[1]]
    left_out += [f"{one.study} {one.label}: under half of the heads were measured" for one in maps if one not in usable]
    if len({one.study for one in usable}) < 2:
        has = ", ".join(sorted({one.study for one in usable})) or "none"
        raise StudyError(
            f"Agreement needs two studies with head sets; this atlas has {has}. "
            "Add one with headwise build --studies profile,relations."
        )
    return [_padded(one, shape) for one in usable], left_out


def _padded(one: HeadSetMap, shape: tuple[int, ...]) -> HeadSetMap:
    """On the grid of the largest map; NaN beyond its own."""
    if one.strength.shape == shape:
        return one
    rows, columns = one.strength.shape
    wider = ((0, shape[0] - rows), (0, shape[1] - columns))
    strength, member = np.pad(one.strength, wider, constant_values=np.nan), np.pad(one.member, wider)
    return HeadSetMap(one.key, one.study, one.label, one.rule, strength, member)


def permutation_strata(measured: np.ndarray, kv_heads: int) -> tuple[list[str], HeadStrata, str]:
    """The names of the measured heads, their strata, and how they are permuted, in words."""
    layer, head = np.nonzero(measured)
    shared = measured.shape[1] // kv_heads if kv_heads and measured.shape[1] % kv_heads == 0 else 1
    stratum = layer_strata(layer)
    where = "within layers" if len(np.unique(stratum)) == len(np.unique(layer)) else "within strata of adjacent layers"
    together = f", the {shared} heads that share keys and values kept together" if shared > 1 else ""
    names = [head_name(int(row), int(column)) for row, column in zip(layer, head, strict=True)]
    return names, HeadStrata(stratum, layer * measured.shape[1] + head // shared), f"{where}{together}"


def _head_set(one: HeadSetMap, member: np.ndarray, names: Sequence[str]) -> HeadSet:
    heads = tuple(names[int(index)] for index in np.flatnonzero(member))
    return HeadSet(one.key, one.study, one.label, one.rule, heads)


def _pair(
    index: int,
    maps: Sequence[HeadSetMap],
    sides: tuple[int, int],
    sets: np.ndarray,
    names: Sequence[str],
    found: Mapping[tuple[str, bool], PermutationResult],
    within_layers: float,
) -> AgreementPair:
    one, other = sets[sides[0]], sets[sides[1]]
    both = np.flatnonzero(one * other)
    overlap, rank = found["overlap", True], found["rank", True]
    overlap_all, rank_all = found["overlap", False], found["rank", False]
    return AgreementPair(
        first=maps[sides[0]].key,
        second=maps[sides[1]].key,
        first_size=int(one.sum()),
        second_size=int(other.sum()),
        count=len(both),
        shared=tuple(names[int(head)] for head in both),
        expected=float(overlap.expected[index]),
        expected_low=float(overlap.low[index]),
        expected_high=float(overlap.high[index]),
        expected_all=float(one.sum() * other.sum() / len(names)),
        odds_ratio=odds_ratio(len(both), one.sum(), other.sum(), len(names))
        if one.any() and other.any()
        else float("nan"),
        p=float(overlap.p[index]),
        q=float(overlap.q[index]),
        p_all=float(overlap_all.p[index]),
        q_all=float(overlap_all.q[index]),
        correlation=float(rank.observed[index]),
        correlation_expected=float(rank.expected[index]),
        correlation_within=within_layers,
        correlation_p=float(rank.p[index]),
        correlation_q=float(rank.q[index]),
        correlation_p_all=float(rank_all.p[index]),
        correlation_q_all=float(rank_all.q[index]),
    )


def _needed(sets: Sequence[HeadSet], pairs: Sequence[AgreementPair]) -> tuple[NeededHeads, ...]:
    """Every set of another study against the heads that the model needs; none where `causal` was not measured."""
    with_causal = {(pair.first, pair.second): pair for pair in pairs}
    with_causal |= {(pair.second, pair.first): pair for pair in pairs}
    rows = [
        (one, with_causal[one.key, MORE], with_causal[one.key, ALL])
        for one in sets
        if (one.key, MORE) in with_causal and (one.key, ALL) in with_causal
    ]
    q = benjamini_hochberg(np.array([more.p for _, more, _ in rows]))
    correlation_q = benjamini_hochberg(np.array([every.correlation_p for _, _, every in rows]))
    found = []
    for index, (one, more, every) in enumerate(rows):
        size = len(one.heads)
        share = more.count / size if size else math.nan
        low, high = wilson_interval(share, max(size, 1))
        found.append(
            NeededHeads(
                one.key, size, more.count, share, float(low), float(high), more.expected, more.p, float(q[index]),
                every.correlation_within, every.correlation_p, float(correlation_q[index]),
            )
        )  # fmt: skip
    return tuple(found)


MAX_ROWS = 12  # of a notebook's table
HEADER = ("heads of", "and of", "in both", "expected", "q of overlap", "correlation within layers", "q of correlation")


@dataclass(frozen=True)
class HeadSet:
    """A set of heads that one study names."""

    key: str
    """"relations.knowledge" """
    study: str
    label: str
    """for readers, "Knowledge" """
    rule: str
    """the criterion, in words"""
    heads: tuple[str, ...]


@dataclass(frozen=True)
class AgreementPair:
    """Two head sets of two studies. ``_all``: against heads permuted over the whole model; else within layers."""

    first: str
    second: str
    first_size: int
    second_size: int
    count: int
    """heads in both"""
    shared: tuple[str, ...]
    expected: float
    """mean overlap with heads permuted within layers"""
    expected_low: float
    """95 % of the permutations lie between expected_low and expected_high"""
    expected_high: float
    expected_all: float
    odds_ratio: float
    """of the 2 x 2 table, 0.5 added to each cell; NaN where a set is empty"""
    p: float
    """NaN where a set is empty, or where no permutation within layers changes the overlap"""
    q: float
    p_all: float
    q_all: float
    correlation: float
    """Spearman, of the two maps over all heads"""
    correlation_expected: float
    """its mean with heads permuted within layers: the part due to depth"""
    correlation_within: float
    """Spearman of ranks minus the mean of their layer: the part that depth does not explain"""
    correlation_p: float
    """of the correlation within layers: the part due to depth is the same in every permutation"""
    correlation_q: float
    correlation_p_all: float
    correlation_q_all: float


@dataclass(frozen=True)
class NeededHeads:
    """Does the model need the heads of a set? Against heads permuted within layers."""

    key: str
    heads: int
    more: int
    """of them, needed more than heads of their layer that write about as much"""
    share: float
    """NaN where the set is empty"""
    share_low: float
    """lower end of the 95 % interval (Wilson)"""
    share_high: float
    expected: float
    """mean number with heads permuted within layers"""
    p: float
    """NaN where the set is empty, or where no permutation within layers changes the number"""
    q: float
    """over the sets of other studies"""
    correlation: float
    """Spearman within layers, of the set's map and the rise of the loss on all tokens without each head"""
    correlation_p: float
    correlation_q: float
    """over the same sets"""


@dataclass(frozen=True)
class Agreement:
    """All pairs of head sets of different studies. Made by `agreement`.

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
    """measured by all these studies"""
    sets: tuple[HeadSet, ...]  # the head sets
    pairs: tuple[AgreementPair, ...]  # every set against every set of another study
    permutations: int  # per test
    seed: int  # of the permutations
    permuted: str
    """how heads were permuted, in words"""
    by_chance: float
    """mean number of pairs with q < 0.05 for overlap when one map is permuted within layers: should be near 0"""
    correlation_by_chance: float
    """the same for correlation"""
    left_out: tuple[str, ...] = ()
    """sentences"""
    needed: tuple[NeededHeads, ...] = ()
    """every set of the other studies against the study `causal`; empty where the atlas does not have it"""
    provenance: str = ""
    """model and versions on one line"""

    def pair(self, first: str, second: str) -> AgreementPair:
        """The pair of these two sets, in either order."""
        for one in self.pairs:
            if {one.first, one.second} == {first, second}:
                return one
        known = [one.key for one in self.sets]
        missing = next((key for key in (first, second) if key not in known), None)
        if missing is None:
            raise DataError(f"{first} and {second} belong to the same study; pairs are across studies.")
        raise DataError(f"There is no head set {missing!r}. {did_you_mean(missing, known)}")

    def frame(self) -> pd.DataFrame:
        """One row per pair."""
        return pd.DataFrame([to_jsonable(one) for one in self.pairs])

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = to_jsonable(self)
        return found

    def __repr__(self) -> str:
        return f"<Agreement {self.model}: {len(self.pairs)} pairs of {len(self.sets)} head sets, {self.heads} heads>"

    def _repr_html_(self) -> str:
        rows = [_row(one) for one in sorted(self.pairs, key=_smallest_q)[:MAX_ROWS]]
        note = (
            f"The {len(rows)} pairs with the smallest q of {len(self.pairs)}. Expected: heads permuted {self.permuted}."
        )
        return card(
            f"Agreement between studies of {self.model}", table(rows, header=HEADER), paragraph(note, quiet=True)
        )


def _smallest_q(pair: AgreementPair) -> float:
    """The smaller of the two q-values."""
    return min((q for q in (pair.q, pair.correlation_q) if math.isfinite(q)), default=math.inf)


def _row(pair: AgreementPair) -> tuple[object, ...]:
    expected = f"{pair.expected:.2g} ({pair.expected_low:.2g} to {pair.expected_high:.2g})"
    numbers = (f"{q:.2g}" if math.isfinite(q) else "" for q in (pair.q, pair.correlation_within, pair.correlation_q))
    return (pair.first, pair.second, pair.count, expected, *numbers)
