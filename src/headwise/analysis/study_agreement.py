"""Do the studies of an atlas agree on which heads matter? Every head set of one study against every set of the others.

    found = agreement(atlas)                    # Agreement: a Dataset of sets by sets, and what was done
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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from headwise.analysis.permutation import (
    HeadStrata,
    layer_strata,
    odds_ratio,
    permutation_test,
    rank_vectors_within,
)
from headwise.atlas import Atlas
from headwise.atlas.head_table import check_same_model
from headwise.core.dims import HEAD_SET, OTHER_SET, PLACE, head_name
from headwise.core.errors import DataError, StudyError, did_you_mean, translate_content_errors
from headwise.core.markup import card, paragraph, table
from headwise.core.provenance import QUICK
from headwise.core.schema import Schema, Variable, annotate
from headwise.figures.payload import to_jsonable
from headwise.figures.provenance import is_quick, model_name, provenance_caption, provenance_of
from headwise.stats import benjamini_hochberg, wilson_interval
from headwise.stats.correlation import rank_vectors
from headwise.studies.causal.heads import ALL, MORE
from headwise.studies.head_sets import HeadSetMap, head_set_maps

PERMUTATIONS = 10_000
MIN_MEASURED_SHARE = 0.5  # of the heads; maps with fewer are left out
SETS = (HEAD_SET, OTHER_SET)
SCHEMA = Schema(
    "agreement",
    1,
    (
        Variable("member", (HEAD_SET, PLACE), "whether the set has the head"),
        Variable("count", SETS, "heads in both sets"),
        Variable("expected", SETS, "mean overlap with heads permuted within layers"),
        Variable("expected_low", SETS, "2.5th percentile of the overlap with heads permuted within layers"),
        Variable("expected_high", SETS, "97.5th percentile of the same"),
        Variable("expected_all", SETS, "mean overlap with heads permuted over the whole model"),
        Variable("odds_ratio", SETS, "of the 2 x 2 table, 0.5 added to each cell; NaN where a set is empty"),
        Variable("p", SETS, "of the overlap; NaN where no permutation within layers changes it"),
        Variable("q", SETS, "of the overlap, after Benjamini and Hochberg over all pairs"),
        Variable("p_all", SETS, "p of the overlap, heads permuted over the whole model"),
        Variable("q_all", SETS, "q of the overlap, heads permuted over the whole model"),
        Variable("correlation", SETS, "Spearman, of the two maps over all heads"),
        Variable("correlation_expected", SETS, "its mean with heads permuted within layers: the part due to depth"),
        Variable("correlation_within", SETS, "Spearman of ranks minus the mean of their layer: what depth does not explain"),
        Variable("correlation_p", SETS, "of the correlation within layers"),
        Variable("correlation_q", SETS, "q of the correlation within layers, over all pairs"),
        Variable("correlation_p_all", SETS, "p of the correlation, heads permuted over the whole model"),
        Variable("correlation_q_all", SETS, "q of the correlation, heads permuted over the whole model"),
    ),
)  # fmt: skip
PAIRED = tuple(one.name for one in SCHEMA.variables if one.dims == SETS)  # NaN within a study


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
        (0, 0.1, False)
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
    first, second = np.array(pairs).T
    sets = np.stack([one.member[measured] for one in maps]).astype(float)
    strength = np.stack([one.strength[measured] for one in maps])
    overlap, overlap_all, rank, rank_all = (
        permutation_test(first, second, rows, strata, permutations, seed, within=within)
        for rows in (sets, rank_vectors(strength))
        for within in (True, False)
    )
    size, count = sets.sum(1), (sets @ sets.T)[first, second]
    within_layers = rank_vectors_within(strength, strata.stratum)
    found = (
        count,
        *(overlap.expected, overlap.low, overlap.high, size[first] * size[second] / len(names)),
        odds_ratio(count, size[first], size[second], len(names)),
        *(overlap.p, overlap.q, overlap_all.p, overlap_all.q),
        *(rank.observed, rank.expected, (within_layers @ within_layers.T)[first, second]),
        *(rank.p, rank.q, rank_all.p, rank_all.q),
    )

    def matrix(values: np.ndarray) -> np.ndarray:
        grid = np.full((len(maps), len(maps)), np.nan)
        grid[first, second] = grid[second, first] = values
        return grid

    keys = [one.key for one in maps]
    dataset = xr.Dataset(
        {"member": ((HEAD_SET, PLACE), sets.astype(bool))}
        | {name: (SETS, matrix(values)) for name, values in zip(PAIRED, found, strict=True)},
        coords={HEAD_SET: keys, OTHER_SET: keys, PLACE: names}
        | {name: (HEAD_SET, [getattr(one, name) for one in maps]) for name in ("study", "label", "rule")},
    )
    caption = {key: origin.get(key, {}) for key in ("model", "environment")}
    return Agreement(
        dataset=annotate(dataset, SCHEMA),
        model=model_name(origin) or "the model",
        permutations=permutations,
        seed=seed,
        permuted=how,
        by_chance=overlap.by_chance,
        correlation_by_chance=rank.by_chance,
        left_out=tuple(left_out),
        provenance=provenance_caption(caption | {"parameters": {QUICK: is_quick(origin)}, "seed": seed}),
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
    wider = [(0, full - own) for full, own in zip(shape, one.strength.shape, strict=True)]
    return replace(one, strength=np.pad(one.strength, wider, constant_values=np.nan), member=np.pad(one.member, wider))


def permutation_strata(measured: np.ndarray, kv_heads: int) -> tuple[list[str], HeadStrata, str]:
    """The names of the measured heads, their strata, and how they are permuted, in words."""
    layer, head = np.nonzero(measured)
    shared = measured.shape[1] // kv_heads if kv_heads and measured.shape[1] % kv_heads == 0 else 1
    stratum = layer_strata(layer)
    where = "within layers" if len(np.unique(stratum)) == len(np.unique(layer)) else "within strata of adjacent layers"
    together = f", the {shared} heads that share keys and values kept together" if shared > 1 else ""
    names = [head_name(int(row), int(column)) for row, column in zip(layer, head, strict=True)]
    return names, HeadStrata(stratum, layer * measured.shape[1] + head // shared), f"{where}{together}"


MAX_ROWS = 12  # of a notebook's table
HEADER = ("heads of", "and of", "in both", "expected", "q of overlap", "correlation within layers", "q of correlation")


class HeadSet(NamedTuple):
    """A set of heads that one study names."""

    key: str
    """"relations.knowledge" """
    study: str
    label: str
    """for readers, "Knowledge" """
    rule: str
    """the criterion, in words"""
    heads: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Agreement:
    """All pairs of head sets of different studies. Made by `agreement`.

    Examples:
        >>> from headwise.analysis import agreement
        >>> found = agreement(atlas, permutations=200)
        >>> found
        <Agreement HuggingFaceTB/SmolLM2-135M-Instruct: 74 pairs of 15 head sets, 36 heads>
        >>> found.dataset["q"].dims, found.dataset["q"].long_name
        (('head_set', 'other_set'), 'of the overlap, after Benjamini and Hochberg over all pairs')
        >>> found.frame().shape[0] == len(found.pairs)
        True
    """

    dataset: xr.Dataset
    """the heads of every set, and every set against every other; NaN within a study; ``long_name`` says what a variable is"""
    model: str  # its name
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
    provenance: str = ""
    """model and versions on one line"""

    @property
    def heads(self) -> int:
        """Number of heads that all these studies measured."""
        return self.dataset.sizes[PLACE]

    @cached_property
    def sets(self) -> tuple[HeadSet, ...]:
        """The head sets."""
        data = self.dataset
        keys, studies, labels, rules = (data[name].values.tolist() for name in (HEAD_SET, "study", "label", "rule"))
        heads = (tuple(data[PLACE].values[row].tolist()) for row in data["member"].values)
        return tuple(map(HeadSet, keys, studies, labels, rules, heads))

    @cached_property
    def pairs(self) -> tuple[Any, ...]:
        """Every set against every set of another study: the rows of `frame`, as named tuples."""
        return tuple(self.frame().itertuples(index=False, name="AgreementPair"))

    @cached_property
    def needed(self) -> tuple[Any, ...]:
        """Does the model need the heads of a set? One named tuple per set of another study than `causal`, if that was measured.

        ``more`` of its ``heads`` are needed more than heads of their layer that write about as much: their ``share`` with its
        95 % interval (Wilson; NaN where the set is empty), the number ``expected`` with heads permuted within layers, p and q
        over these sets. ``correlation``, within layers, is that of the set's map and the rise of the loss on all tokens without
        each head.
        """
        data = self.dataset.isel({HEAD_SET: self.dataset["study"].values != "causal"})
        if not {MORE, ALL} <= set(self.dataset[HEAD_SET].values):
            return ()
        more, every = ({name: data[name].sel({OTHER_SET: key}).values for name in PAIRED} for key in (MORE, ALL))
        size = data["member"].sum(PLACE).values
        share = np.divide(more["count"], size, out=np.full(size.shape, np.nan), where=size > 0)
        low, high = wilson_interval(share, np.maximum(size, 1))
        columns = {
            "key": data[HEAD_SET].values, "heads": size, "more": more["count"].astype(int),
            "share": share, "share_low": low, "share_high": high,
            "expected": more["expected"], "p": more["p"], "q": benjamini_hochberg(more["p"]),
            "correlation": every["correlation_within"],
            "correlation_p": every["correlation_p"], "correlation_q": benjamini_hochberg(every["correlation_p"]),
        }  # fmt: skip
        return tuple(pd.DataFrame(columns).itertuples(index=False, name="NeededHeads"))

    def pair(self, first: str, second: str) -> Any:
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
        """One row per pair: both sets and their sizes, the heads in both, and the variables of ``dataset``."""
        data = self.dataset
        keys, study, member = (data[name].values for name in (HEAD_SET, "study", "member"))
        first, second = np.nonzero(np.triu(study[:, None] != study))
        size = member.sum(1)
        values = {name: data[name].values[first, second] for name in PAIRED}
        both = (data[PLACE].values[one].tolist() for one in member[first] & member[second])
        return pd.DataFrame(
            {"first": keys[first], "second": keys[second], "first_size": size[first], "second_size": size[second]}
            | {"count": values.pop("count").astype(int), "shared": list(map(tuple, both))}
            | values
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        names = (
            "model",
            "heads",
            "permutations",
            "seed",
            "permuted",
            "by_chance",
            "correlation_by_chance",
            "left_out",
            "provenance",
        )
        rows = {name: [one._asdict() for one in getattr(self, name)] for name in ("sets", "pairs", "needed")}
        found: dict[str, Any] = to_jsonable({name: getattr(self, name) for name in names} | rows)
        return found

    def __repr__(self) -> str:
        return f"<Agreement {self.model}: {len(self.pairs)} pairs of {len(self.sets)} head sets, {self.heads} heads>"

    def _repr_html_(self) -> str:
        smallest = self.frame()[["q", "correlation_q"]].min(axis=1).sort_values(kind="stable")
        rows = [_row(self.pairs[index]) for index in smallest.index[:MAX_ROWS]]
        note = (
            f"The {len(rows)} pairs with the smallest q of {len(self.pairs)}. Expected: heads permuted {self.permuted}."
        )
        body = table(rows, header=HEADER)
        return card(f"Agreement between studies of {self.model}", body, paragraph(note, quiet=True))


def _row(pair: Any) -> tuple[object, ...]:
    expected = f"{pair.expected:.2g} ({pair.expected_low:.2g} to {pair.expected_high:.2g})"
    numbers = (f"{q:.2g}" if math.isfinite(q) else "" for q in (pair.q, pair.correlation_within, pair.correlation_q))
    return (pair.first, pair.second, pair.count, expected, *numbers)
