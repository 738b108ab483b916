"""Do wrong and right answers differ beyond what the question explains? Comparisons within strata only.

A stratum is a set of answers that share a confounder: the same topic and difficulty, for example, or the same length. Wrong
and right answers are compared within a stratum and never across, so a head that follows the topic alone shows nothing.

``van_elteren_maps``: van Elteren's test (Bulletin of the International Statistical Institute 37, 1960), the stratified
Wilcoxon test with the most power against a common shift. With the mid-rank R of an answer among the N_s of its stratum,

    a = (R - (N_s + 1) / 2) / (N_s + 1),     T = Σ of a over the wrong answers
    var T = Σ_s w_s r_s / (N_s (N_s - 1)) Σ_{i in s} a_i²,     z = T / sqrt(var T),     p = 2 Φ(-|z|)

for w_s wrong and r_s right answers of the stratum; mid-ranks account for ties. Scores sum to 0 within a stratum, so a
stratum with a single class contributes nothing. With one stratum it is the Mann-Whitney test without correction for continuity.

``auroc_within``: P(wrong > right) + ties / 2 over all pairs of a wrong and a right answer *of one stratum*,

    A = Σ_s w_s r_s A_s / Σ_s w_s r_s

with DeLong's interval (``auroc``) stratum by stratum. An answer's placement is the share of the other class that it is ordered
correctly against; with one answer in a class, the variance of placements cannot be estimated within the stratum. Strata with
fewer than `MIN_PER_CLASS_FOR_OWN_AUROC` answers of a class are therefore centred on A instead of A_s, and their variance is
multiplied by (N_s + 1) / (N_s + 4), which corrects the bias exactly when A = 1/2. On normal data (1,500 draws; 60 strata of 2
to 14 answers, or 150 of 3; A from .5 to .8) the interval covers the truth in 94 to 96 %.

NaN leaves an answer out of that cell. A cell with fewer than `MIN_PER_CELL` answers of a class in strata that have both is
NaN. Cost: two sorts per cell and stratum; 500 answers x 3,240 cells in about a second. Strata must be made without
looking at the labels (``headwise.studies.question_controls``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from headwise.core.dims import EXAMPLE
from headwise.core.errors import DataError
from headwise.stats.auroc import Auroc, auroc_interval, influence_variance
from headwise.stats.blas import single_threaded_blas
from headwise.stats.rank_tests import MAP_DIMS, MIN_PER_CELL, compare_cells, missing_patterns
from headwise.stats.ranks import placements, ranks
from headwise.stats.validation import MIN_PER_CLASS, Labels, as_groups, as_labels, as_named

__all__ = ["auroc_within", "informative", "significant_shares", "stratified_scores", "van_elteren_maps"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_PER_CLASS_FOR_OWN_AUROC = 10  # answers of each class with which placements are centred on the stratum's own AUROC

_DEFINITIONS = {
    "p": "two-sided van Elteren test, wrong against right answers of the same stratum",
    "q": "Benjamini-Hochberg over all tested cells of the map",
    "auroc": "P(wrong > right) + P(equal) / 2 over pairs of the same stratum",
    "low": "lower end of the 95 % interval of auroc (DeLong by stratum, logit scale)",
    "high": "upper end of the 95 % interval of auroc (DeLong by stratum, logit scale)",
    "n_wrong": "wrong answers in strata that have both classes",
    "n_right": "right answers in strata that have both classes",
}


def informative(wrong: Labels, strata: Ints) -> Labels:
    """(example,): whether the answer's stratum has both classes.

    >>> informative(np.array([True, False, True, True]), np.array([0, 0, 1, 1]))
    array([ True,  True, False, False])
    """
    n_wrong, size = np.bincount(strata, wrong), np.bincount(strata)
    return ((n_wrong > 0) & (n_wrong < size))[strata]


# ---- every head at once ---------------------------------------------------------------------------------------------


def van_elteren_maps(
    values: ArrayLike | xr.DataArray,
    labels: ArrayLike,
    strata: ArrayLike,
    *,
    dims: Sequence[str] | None = None,
    maps: Sequence[str] = MAP_DIMS,
    min_per_class: int = MIN_PER_CLASS,
    min_per_cell: int = MIN_PER_CELL,
) -> xr.Dataset:
    """Do wrong and right answers of the same stratum differ? Every head and feature at once.

    Args:
        values: (example, ...), an xarray.DataArray, or an array whose dims are named by ``dims``.
        labels: (example,), True for wrong answers.
        strata: (example,), such as the topic of the question; numbers or texts.
        dims: names of the dims, where ``values`` has none; by default (example, layer, head).
        maps: dims that index separate maps; q-values are computed within each.
        min_per_class: answers of each class that are required.
        min_per_cell: answers of each class, in strata that have both, below which a cell is not tested.

    Returns:
        p, q, auroc within strata with its interval, and counts, per cell; in ``attrs`` the strata that have both classes
        (``n_strata``) and the answers in them (``n_used``).

    Examples:
        Head 0 follows the topic, as the errors do; head 1 follows the errors.

        >>> generator = np.random.default_rng(0)
        >>> topic = np.arange(200) % 2
        >>> wrong = generator.random(200) < np.where(topic == 1, 0.8, 0.2)
        >>> values = generator.normal(size=(200, 1, 2)) + np.stack([topic, wrong], axis=-1)[:, None]
        >>> found = van_elteren_maps(values, wrong, topic)
        >>> found.q.values < 0.05
        array([[False,  True]])
        >>> round(float(found.auroc.sel(layer=0, head=1)), 2), found.attrs["n_strata"]
        (0.69, 2)
    """
    array = as_named(values, dims)
    wrong = as_labels(labels, rows=array.sizes[EXAMPLE], min_per_class=min_per_class)
    stratum = _as_strata(strata, len(wrong))

    def compare(part: Floats, rows: Ints) -> tuple[Floats, Auroc]:
        here, inside = wrong[rows], np.unique(stratum[rows], return_inverse=True)[1]
        return _van_elteren(part, here, inside), _area(part, here, inside)

    dataset = compare_cells(
        array, wrong, compare, maps=maps, min_per_cell=min_per_cell,
        usable=lambda rows: rows[informative(wrong[rows], stratum[rows])] if len(rows) else rows,
    )  # fmt: skip
    for name, text in _DEFINITIONS.items():
        dataset[name].attrs = {"definition": text}
    used = informative(wrong, stratum)
    return dataset[list(_DEFINITIONS)].assign_attrs(n_used=int(used.sum()), n_strata=len(np.unique(stratum[used])))


def _as_strata(strata: ArrayLike, rows: int) -> Ints:
    found = as_groups(strata, rows)
    if found is None:
        raise DataError("The stratified test needs strata; give one per answer, such as the topic of its question.")
    return found


def _van_elteren(table: Floats, wrong: Labels, strata: Ints) -> Floats:
    scores, spread = _centred(table, strata)
    n_wrong = np.bincount(strata, wrong)
    pairs = n_wrong * (np.bincount(strata) - n_wrong)
    variance = pairs @ spread
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(variance > 0, np.abs(scores[wrong].sum(axis=0)) / np.sqrt(variance), 0.0)
    return np.minimum(2 * scipy.special.ndtr(-z), 1.0)


def _centred(table: Floats, strata: Ints) -> tuple[Floats, Floats]:
    """The scores a (example, cell), and per stratum and cell Σ a² / (N_s (N_s - 1)); strata are numbered from 0."""
    scores, spread = np.zeros(table.shape), np.zeros((int(strata.max(initial=-1)) + 1, table.shape[1]))
    for stratum, rows in _rows_by_stratum(strata):
        n = len(rows)
        if n > 1:
            scores[rows] = (ranks(table[rows]) - (n + 1) / 2) / (n + 1)
            spread[stratum] = np.square(scores[rows]).sum(axis=0) / (n * (n - 1))
    return scores, spread


def _rows_by_stratum(strata: Ints) -> Iterator[tuple[int, Ints]]:
    order = np.argsort(strata, kind="stable")
    start = 0
    for stratum, end in enumerate(np.cumsum(np.bincount(strata))):
        if end > start:
            yield stratum, order[start:end]
        start = end


# ---- the effect -----------------------------------------------------------------------------------------------------


def auroc_within(
    scores: ArrayLike,
    labels: ArrayLike,
    strata: ArrayLike,
    *,
    groups: NDArray[np.int64] | None = None,
    inflation: float = 1.0,
) -> Auroc:
    """How well does a score tell wrong from right answers *of the same stratum*? With its interval.

    Args:
        scores: (example, ...), larger meaning wrong.
        labels: (example,), True for wrong answers.
        strata: (example,), such as the topic of the question; only answers of the same stratum are compared.
        groups: (example,), whole numbers from 0: examples of one group are not independent, and the interval is wider.
        inflation: factor on the variance, for scores learnt by cross-validation (see `auroc_by_fold`).

    Returns:
        The area, its interval, and what each example contributes to its variance, for `delong_test` against another
        score of the same answers and strata; NaN where no stratum has both classes.

    Examples:
        The score depends only on the topic.

        >>> topic = np.repeat([0, 1], 40)
        >>> wrong = np.arange(80) % 4 < np.where(topic == 1, 3, 1)
        >>> float(auroc_within(topic, wrong, topic).value), round(float(auroc_within(topic, wrong, np.zeros(80)).value), 2)
        (0.5, 0.75)
    """
    table = np.asarray(scores, dtype=np.float64)
    wrong = as_labels(labels, rows=len(table), min_per_class=1)
    stratum = _as_strata(strata, len(wrong))
    rows = np.flatnonzero(informative(wrong, stratum))
    influence = np.zeros(table.shape)
    if len(rows) == 0:
        nothing = np.full(table.shape[1:], np.nan)
        return Auroc(nothing, nothing, nothing, influence, inflation)
    inside = np.unique(stratum[rows], return_inverse=True)[1]
    some = None if groups is None else groups[rows]
    found = _area(table[rows], wrong[rows], inside, groups=some, inflation=inflation)
    influence[rows] = found.influence
    return found._replace(influence=influence)


def _area(
    table: Floats, wrong: Labels, strata: Ints, *, groups: NDArray[np.int64] | None = None, inflation: float = 1.0
) -> Auroc:
    """AUROC within strata, which are numbered from 0 and all have both classes."""
    placed = np.empty(table.shape)
    n_wrong, size = np.bincount(strata, wrong), np.bincount(strata)
    pairs = n_wrong * (size - n_wrong)
    weight = pairs / pairs.sum()
    areas = np.empty((len(size), *table.shape[1:]))
    for stratum, rows in _rows_by_stratum(strata):
        placed[rows] = share = placements(table[rows], wrong[rows]).share
        areas[stratum] = share[wrong[rows]].mean(axis=0)
    value = np.tensordot(pairs, areas, axes=1) / pairs.sum()
    own = np.minimum(n_wrong, size - n_wrong) >= MIN_PER_CLASS_FOR_OWN_AUROC
    n_class = np.where(wrong, n_wrong[strata], (size - n_wrong)[strata])
    scale = np.where(own[strata], 1 / np.sqrt(n_class * np.maximum(n_class - 1, 1)), 1 / n_class)
    scale = scale * np.where(own, 1.0, np.sqrt((size + 1) / (size + 4)))[strata] * weight[strata]
    centre = np.where(own.reshape(-1, *[1] * (table.ndim - 1)), areas, value)
    influence = (placed - centre[strata]) * scale.reshape(-1, *[1] * (table.ndim - 1))
    variance = inflation * influence_variance(influence, groups)
    low, high = auroc_interval(value, variance, int(min(wrong.sum(), (~wrong).sum())))
    return Auroc(value, low, high, influence, inflation)


# ---- shuffled labels (``permutation``) ------------------------------------------------------------------------------


class StratifiedScores(NamedTuple):
    """The cells of a map, ready for any labels: one entry per pattern of missing answers."""

    rows: Ints
    """the examples that have a value"""
    strata: Ints
    """of those, numbered from 0"""
    scores: Floats
    """(row, cell): van Elteren's scores"""
    spread: Floats
    """(stratum, cell): Σ a² / (N_s (N_s - 1))"""


def stratified_scores(table: Floats, strata: Ints) -> list[StratifiedScores]:
    """The scores of a table (example, cell), computed once for all shuffles of the labels."""
    found = []
    for rows, cells in missing_patterns(table):
        inside = np.unique(strata[rows], return_inverse=True)[1]
        found.append(StratifiedScores(rows, inside, *_centred(table[np.ix_(rows, cells)], inside)))
    return found


@single_threaded_blas
def significant_shares(scores: Sequence[StratifiedScores], labels: Floats, alpha: float) -> Floats:
    """The share of tested cells with p < alpha in van Elteren's test, for each row of labels (shuffle, example)."""
    limit = -scipy.special.ndtri(alpha / 2)
    significant, tested = np.zeros(len(labels)), np.zeros(len(labels))
    for one in scores:
        if len(one.rows) == 0:
            continue
        here = labels[:, one.rows]
        n_wrong = here @ (one.strata[:, None] == np.arange(len(one.spread)))
        n_right = np.bincount(one.strata) - n_wrong
        both = (n_wrong > 0) & (n_right > 0)
        enough = np.minimum((n_wrong * both).sum(axis=1), (n_right * both).sum(axis=1)) >= MIN_PER_CELL
        deviation = np.sqrt((n_wrong * n_right) @ one.spread)
        above = np.abs(here @ one.scores) > limit * deviation + 1e-12
        significant += (above & enough[:, None]).sum(axis=1)
        tested += enough * one.scores.shape[1]
    return significant / np.maximum(tested, 1)
