"""Permutation tests: what would be found if the labels carried no information?

``permutation_null``: how many heads would look significant? Heads are similar, so their p-values rise and fall together:
"80 % of heads have p < 0.05" cannot be judged by the 5 % that independent tests would give. The labels are shuffled B
times, and the share of cells with p < 0.05 counted each time. With the ranks of all cells in a matrix R (example x cell)
and the shuffled labels in S (shuffle x example), all rank sums are one product S R, and

    U = S R - n_wrong (n_wrong + 1) / 2,     z = (|U - n_wrong n_right / 2| - 1/2) / s     (ties in s, as scipy)

The permutation p of the observed share is (1 + #{shuffles with at least that share}) / (1 + B) (Phipson and Smyth,
Statistical Applications in Genetics and Molecular Biology 9, 2010). ``within`` shuffles only inside strata (a topic, a
length, a matched pair) and counts cells by van Elteren's test (``stratified``): the null is then "no difference beyond the
strata". The normal approximation is used for the observed share as well as for the shuffled ones; above 8 answers of a
class it is scipy's own p.

``shuffle_test``: which cells of a map lie beyond what shuffled labels give, when each shuffle is a whole refit and so there
are few: one p and one q per cell, with the shuffle as the unit.

Cost: one sort per cell and B x examples x cells multiplications; 500 x 2,000 x 200 in about half a second. Examples are
taken as exchangeable (within strata): several answers to one question are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from headwise.core.dims import EXAMPLE
from headwise.core.errors import StudyError
from headwise.stats.blas import single_threaded_blas
from headwise.stats.multiple_testing import benjamini_hochberg, within_map_dims
from headwise.stats.rank_tests import MAP_DIMS, MIN_PER_CELL, missing_patterns
from headwise.stats.ranks import ranks
from headwise.stats.stratified import significant_shares, stratified_scores
from headwise.stats.validation import MIN_PER_CLASS, Labels, as_groups, as_labels, as_named

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_SHUFFLES = 200  # the 5 % tail then rests on ten shuffles
_NUMBERS_PER_BLOCK = 4_000_000  # of shuffles x cells
_MIN_NULL, _TINY = 3, 1e-12  # shuffles that have a spread; a deviation that is none


# ---- shuffles -------------------------------------------------------------------------------------------------------


def permuted_rows(strata: ArrayLike, generator: np.random.Generator) -> Ints:
    """(row,): an order of the rows in which each takes the place of a random one of its own stratum.

    >>> permuted_rows([0, 0, 0, 1, 1], np.random.default_rng(0))
    array([2, 0, 1, 4, 3])
    """
    strata = np.asarray(strata)
    order = np.empty(len(strata), dtype=np.int64)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        order[rows] = rows[generator.permutation(len(rows))]
    return order


def permuted_labels(labels: ArrayLike, strata: ArrayLike, *, sets: int, seed: int = 0) -> Labels:
    """(set, row): labels in random order within each stratum (a fold), which so keeps its share of wrong answers.

    >>> permuted_labels([True, True, False, False], [0, 1, 0, 1], sets=2).sum(axis=1)
    array([2, 2])
    """
    wrong, generator = np.asarray(labels, dtype=bool), np.random.default_rng(seed)
    shuffled = [wrong[permuted_rows(strata, generator)] for _ in range(sets)]
    return np.array(shuffled, dtype=bool).reshape(sets, len(wrong))


# ---- which cells lie beyond few shuffles? ---------------------------------------------------------------------------


class ShuffleTest(NamedTuple):
    """Maps against shuffled labels. Made by `shuffle_test`.

    Examples:
        >>> null = np.random.default_rng(0).normal(size=(40, 4))
        >>> bool(shuffle_test([0.1, 9.0, -0.3, 8.0], null).map_p < 0.05)
        True
    """

    p: Floats
    """(*maps, cell): share of the map's standardised nulls that are as large"""
    q: Floats
    """(*maps, cell): Benjamini-Hochberg within the map, and nowhere below the map's own p"""
    map_p: Floats
    """(*maps,): is anything in this map? At least 1 / (1 + shuffles)"""


def shuffle_test(observed: ArrayLike, null: ArrayLike, *, two_sided: bool = False) -> ShuffleTest:
    """Which cells of a map exceed what shuffled labels give, from 20 to some hundred shuffles?

    Each value is standardised by its own cell's values in the *other* shuffles, so that a null value has no advantage over
    the observed one, and all cells of the map lend each other their nulls:

        z_c = (observed_c - mean_s null_sc) / sd_s null_sc,     z_sc likewise, by the shuffles other than s
        p_c = (1 + #{z_sc' >= z_c}) / (1 + shuffles x cells),   |z| where two-sided

    Cells of one shuffle share its labels, so S shuffles are S observations, however many cells there are. The map as a
    whole is therefore tested by its rank among the shuffles: every shuffle in turn takes the place of the observed map
    (which joins the others), m is the smallest Benjamini-Hochberg q found in it, and

        map_p = (1 + #{m of a shuffle <= m observed}) / (1 + shuffles),      q_c = max(BH q_c, map_p)

    Without any effect the observed map and the shuffled ones are exchangeable, so P(some q < 0.05 in a map) is at most 0.05
    for any dependence between the cells; fewer than 20 shuffles never give q < 0.05. p alone has no such guarantee: where all
    cells move together, a p far below 1 / shuffles occurs more often than it says. The page "Calibration" has simulations.

    Args:
        observed: (*maps, cell), for instance (function, head); NaN where a cell is not tested.
        null: (shuffle, *maps, cell). One entry of the first axis is one shuffle of the labels, with all maps made from it.
        two_sided: whether values far below the null count as well.

    Returns:
        p, q and map_p; all NaN with fewer than three shuffles, which have no spread.

    Examples:
        >>> null = np.random.default_rng(0).normal(size=(20, 4))
        >>> found = shuffle_test([0.1, 9.0, -0.3, 8.0], null)
        >>> found.p.round(3), found.q.round(3)
        (array([0.407, 0.012, 0.716, 0.012]), array([0.543, 0.048, 0.716, 0.048]))
    """
    values, shuffled = np.asarray(observed, dtype=np.float64), np.asarray(null, dtype=np.float64)
    if shuffled.shape[1:] != values.shape or not values.ndim:
        raise StudyError(
            f"A map of the shape {values.shape} was given with a null of the shape {shuffled.shape}; the null has one more "
            "axis, the shuffles, in front."
        )
    p, q, map_p = np.full(values.shape, np.nan), np.full(values.shape, np.nan), np.full(values.shape[:-1], np.nan)
    for place in np.ndindex(map_p.shape):
        own, others = values[place], shuffled[(slice(None), *place)]
        tested = np.isfinite(own) & np.isfinite(others).all(axis=0)
        if len(others) < _MIN_NULL or not tested.any():
            continue
        own, others = own[tested], others[:, tested]
        deviation = np.maximum(others.std(axis=0, ddof=1), _TINY)
        z, null_z = (own - others.mean(axis=0)) / deviation, _by_the_others(others)
        if two_sided:
            z, null_z = np.abs(z), np.abs(null_z)
        p[place][tested] = cell_p = (1 + _at_least(null_z, z)) / (1 + null_z.size)
        map_p[place] = _map_p(np.concatenate([own[None], others]), two_sided)
        q[place][tested] = np.maximum(benjamini_hochberg(cell_p), map_p[place])
    return ShuffleTest(p, q, map_p)


def _by_the_others(values: Floats) -> Floats:
    """(unit, cell): every value, standardised by mean and deviation of the same cell's other units."""
    others = len(values) - 1
    centred = values - values.mean(axis=0)
    mean = -centred / others  # of the others: all sum to 0
    square = (np.square(centred).sum(axis=0) - np.square(centred)) / others
    variance = np.clip(square - np.square(mean), 0, None) * others / (others - 1)
    return (centred - mean) / np.maximum(np.sqrt(variance), _TINY)


def _map_p(units: Floats, two_sided: bool) -> float:
    """The rank of the first unit among all (unit, cell), by the smallest q that each has against the others."""
    z = _by_the_others(units)
    z = np.abs(z) if two_sided else z
    everywhere = _at_least(z, z)
    own = np.array(
        [_at_least(row, row) for row in z]
    )  # also the number of cells that would be discoveries with this one
    p = (1 + everywhere - own) / (1 + z.size - z.shape[1])
    smallest = (p * z.shape[1] / own).min(axis=1)
    return float((smallest <= smallest[0] * (1 + 1e-12)).mean())


def _at_least(pool: Floats, values: Floats) -> Ints:
    """How many of the pool are as large as each value."""
    return pool.size - np.searchsorted(np.sort(pool, axis=None), values, side="left")


def rank_p(observed: float, controls: ArrayLike) -> float:
    """One value's rank from below among those of its controls, such as the accuracy left without a set of heads.

    Args:
        observed: the value.
        controls: (draw,) of the same, for instance without matched sets of heads.

    Returns:
        (1 + #{controls <= observed}) / (1 + controls): if the observed one is like its controls, each rank is as likely as any
        other, whatever their distribution. NaN without either.

    Examples:
        >>> round(rank_p(0.4, [0.9, 0.8, 0.4, 0.7]), 2)
        0.4
    """
    values = np.asarray(controls, dtype=np.float64)
    if not values.size or np.isnan(observed):
        return float("nan")
    return float((1 + (values <= observed + 1e-9).sum()) / (1 + values.size))


# ---- how many heads would be significant? ---------------------------------------------------------------------------


def permutation_null(
    values: ArrayLike | xr.DataArray,
    labels: ArrayLike,
    *,
    shuffles: int = 1000,
    seed: int = 0,
    alpha: float = 0.05,
    within: ArrayLike | None = None,
    dims: Sequence[str] | None = None,
    maps: Sequence[str] = MAP_DIMS,
    min_per_class: int = MIN_PER_CLASS,
) -> xr.Dataset:
    """Are more heads significant than under shuffled labels? The share of cells with p < alpha, observed and shuffled.

    Args:
        values: (example, ...), an xarray.DataArray, or an array whose dims are named by ``dims``.
        labels: (example,), True for wrong answers.
        shuffles: of the labels, at least 200.
        seed: of the shuffles.
        alpha: below which a p counts.
        within: (example,), strata within which answers are compared and labels shuffled, such as topics.
        dims: names of the dims, where ``values`` has none; by default (example, layer, head).
        maps: dims along which lie different maps, each judged separately.
        min_per_class: answers of each class that are required.

    Returns:
        ``observed``, ``null_mean``, ``null_95`` (95 % quantile of the shuffled shares) and ``p``, per map.

    Examples:
        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(60) % 2 == 0
        >>> noise = generator.normal(size=(60, 4, 5))
        >>> found = permutation_null(noise, wrong, shuffles=200)
        >>> bool(found.observed <= found.null_95)  # nothing but noise
        True
    """
    if shuffles < MIN_SHUFFLES:
        raise StudyError(f"{shuffles} shuffles say too little about a 5 % tail; ask for at least {MIN_SHUFFLES}.")
    array = as_named(values, dims)
    wrong = as_labels(labels, rows=array.sizes[EXAMPLE], min_per_class=min_per_class)
    strata = as_groups(within, len(wrong))
    shuffled = _shuffled(wrong, shuffles, strata, np.random.default_rng(seed))
    cells = within_map_dims([str(dim) for dim in array.dims if dim != EXAMPLE], maps)

    def of_map(part: Any) -> tuple[float, float, float, float]:
        shares = _shares_by(part.reshape(len(wrong), -1).astype(np.float64), strata, alpha)
        observed, null = shares(wrong[None].astype(np.float64))[0], shares(shuffled)
        p = (1 + np.sum(null >= observed)) / (1 + len(null))
        return observed, null.mean(), np.quantile(null, 0.95), p

    results = xr.apply_ufunc(
        of_map, array, input_core_dims=[[EXAMPLE, *cells]], output_core_dims=[[]] * 4, vectorize=True
    )  # fmt: skip
    names = ("observed", "null_mean", "null_95", "p")
    return xr.Dataset(
        dict(zip(names, results, strict=True)), attrs={"alpha": alpha, "shuffles": shuffles, "seed": seed}
    )


def _shares_by(table: Floats, strata: Ints | None, alpha: float) -> Callable[[Floats], Floats]:
    """From rows of labels to the share of cells with p < alpha: Mann-Whitney, or van Elteren within strata."""
    if strata is None:
        ranked = _rank(table)
        return lambda labels: _significant_shares(ranked, labels, alpha)
    scores = stratified_scores(table, strata)
    return lambda labels: significant_shares(scores, labels, alpha)


def _shuffled(wrong: Labels, shuffles: int, strata: Ints | None, generator: np.random.Generator) -> Floats:
    """(shuffle, example). All strata in one sort: there may be as many as pairs of answers."""
    strata = np.zeros(len(wrong), dtype=np.int64) if strata is None else strata
    out = np.empty((shuffles, len(wrong)))
    keys = generator.random(out.shape)
    keys += strata
    out[:, np.argsort(strata, kind="stable")] = wrong[np.argsort(keys, axis=1)]
    return out


class _Ranked(NamedTuple):
    """The cells of a map, ready for any labels."""

    ranks: Floats
    """(example, cell); 0 where the value is NaN"""
    present: Floats
    """(example, cell); 1 where there is a value"""
    ties: Floats
    """(cell,): sum of t^3 - t over groups of t equal values"""


def _rank(table: Floats) -> _Ranked:
    found, present = np.zeros(table.shape), np.zeros(table.shape)
    ties = np.empty(table.shape[1])
    for rows, cells in missing_patterns(table):
        block = np.ix_(rows, cells)
        present[block] = 1
        found[block] = own = ranks(table[block])
        # of t equal values each has the same mid-rank, so that sum r^2 falls short by (t^3 - t) / 12
        n = len(rows)
        ties[cells] = n * (n + 1) * (2 * n + 1) * 2 - 12 * np.square(own).sum(axis=0)
    return _Ranked(found, present, np.round(ties))


@single_threaded_blas
def _significant_shares(ranked: _Ranked, labels: Floats, alpha: float) -> Floats:
    """The share of tested cells with p < alpha for each row of labels (shuffle, example)."""
    limit = -scipy.special.ndtri(alpha / 2)
    total = ranked.present.sum(axis=0)
    complete = bool((total == len(ranked.present)).all())
    step = max(1, _NUMBERS_PER_BLOCK // max(1, len(total)))
    shares = np.empty(len(labels))
    for start in range(0, len(labels), step):
        part = labels[start : start + step]
        n_wrong = part.sum(axis=1, keepdims=True) if complete else part @ ranked.present
        n_right = total - n_wrong
        u = part @ ranked.ranks - n_wrong * (n_wrong + 1) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = np.sqrt(n_wrong * n_right / 12 * ((total + 1) - ranked.ties / (total * (total - 1))))
            significant = (np.abs(u - n_wrong * n_right / 2) - 0.5) / deviation > limit
        tested = np.minimum(n_wrong, n_right) >= MIN_PER_CELL
        shares[start : start + step] = (significant & tested).sum(axis=1) / np.maximum(tested.sum(axis=1), 1)
    return shares
