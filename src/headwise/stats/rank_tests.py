"""Rank tests of every cell of a map at once: a head, a feature, a rank.

``mann_whitney_maps``: do wrong and right answers differ?

- p: the two-sided Mann-Whitney U test (Annals of Mathematical Statistics 18, 1947), with exactly the p of
  ``scipy.stats.mannwhitneyu`` on that cell alone (exact where one class has at most 8 answers and there are no ties,
  otherwise normal with corrections for ties and continuity);
- q: Benjamini-Hochberg over all cells of a map (``multiple_testing``);
- auroc: P(wrong > right) + ties / 2, with DeLong's 95 % interval on the logit scale (``auroc``), and the rank-biserial
  correlation 2 auroc - 1. With 500 answers an effect too small to be of any use can have a tiny p: look at this first.

An answer whose value is NaN is left out of that cell. A cell with fewer than `MIN_PER_CELL` answers of a class is not
tested and is NaN everywhere, not 1. Values that are all equal were tested and found equal: p = 1, auroc 0.5.

``paired_changes``: did a number change between two runs on the same examples? With the change after - before per example,

    change   its mean, with the 95 % interval of that mean (Student's t over examples)
    p        Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945), two-sided, as `scipy.stats.wilcoxon`: exact up to
             50 examples without ties, else normal with correction for ties; unchanged examples are left out, and a cell
             without any change has p = 1
    q        Benjamini-Hochberg over all cells of a map

A change smaller than `ROUNDING` counts as none: it is the rounding of float32. A cell with fewer than `MIN_PAIRS` examples
is not tested and is NaN everywhere.

Cost: one sort per cell, 500 answers x 2,700 cells in about a fifth of a second (cells with the same missing answers go through
scipy together, so only scattered NaN are slow); one sort of all cells for the paired test, where scipy takes ten
milliseconds per cell.

Examples are taken as independent. Several answers to one question, or several windows of one text, are not: pass one of
each. Neither the question nor the answer's length is controlled for: see ``stratified``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import scipy
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from headwise.core.dims import EXAMPLE, FEATURE, PART, STATISTIC
from headwise.stats.auroc import Auroc, auroc_from
from headwise.stats.intervals import mean_interval
from headwise.stats.multiple_testing import q_values
from headwise.stats.ranks import Placements, placements, ranks
from headwise.stats.validation import MIN_PER_CLASS, Labels, as_labels, as_named

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAP_DIMS = (FEATURE, PART, STATISTIC)  # along these dims lie different maps, each with its own q-values
MIN_PER_CELL = 5  # answers of each class for a cell to be tested
_MAX_EXACT_MANN_WHITNEY = 8  # answers of the smaller class: scipy's own limit
_CELLS_PER_BLOCK = 4096  # that go through the sorts together

ROUNDING = 1e-6
MIN_PAIRS = 6  # with fewer, no change can give p < 0.05
_MAX_EXACT_WILCOXON = 50  # examples: scipy's own limit

_DEFINITIONS = {
    "p": "two-sided Mann-Whitney U, wrong against right answers",
    "q": "Benjamini-Hochberg over all tested cells of the map",
    "auroc": "P(wrong > right) + P(equal) / 2 of the single value",
    "low": "lower end of the 95 % interval of auroc (DeLong, logit scale)",
    "high": "upper end of the 95 % interval of auroc (DeLong, logit scale)",
    "rank_biserial": "2 auroc - 1",
    "n_wrong": "wrong answers in the cell",
    "n_right": "right answers in the cell",
}


# ---- wrong against right answers ------------------------------------------------------------------------------------


def mann_whitney_maps(
    values: ArrayLike | xr.DataArray,
    labels: ArrayLike,
    *,
    dims: Sequence[str] | None = None,
    maps: Sequence[str] = MAP_DIMS,
    min_per_class: int = MIN_PER_CLASS,
    min_per_cell: int = MIN_PER_CELL,
) -> xr.Dataset:
    """Do wrong and right answers differ? Every head and feature at once.

    Args:
        values: (example, ...), an xarray.DataArray, or an array whose dims are named by ``dims``.
        labels: (example,), True for wrong answers.
        dims: names of the dims, where ``values`` has none; by default (example, layer, head).
        maps: dims that index separate maps; q-values are computed within each.
        min_per_class: answers of each class that are required.
        min_per_cell: answers of each class below which a cell is not tested.

    Returns:
        p, q, auroc with its interval, rank_biserial and counts, per cell.

    Examples:
        Sixty answers, 2 x 3 heads, of which one differs.

        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(60) % 2 == 0
        >>> values = generator.normal(size=(60, 2, 3))
        >>> values[wrong, 1, 2] += 1.5
        >>> found = mann_whitney_maps(values, wrong)
        >>> found.q.values < 0.05
        array([[False, False, False],
               [False, False,  True]])
        >>> round(float(found.auroc.sel(layer=1, head=2)), 2)
        0.93
    """
    array = as_named(values, dims)
    wrong = as_labels(labels, rows=array.sizes[EXAMPLE], min_per_class=min_per_class)

    def compare(part: Floats, rows: Ints) -> tuple[Floats, Auroc]:
        placed = placements(part, wrong[rows])
        return _mann_whitney(part, wrong[rows], placed), auroc_from(placed, wrong[rows])

    dataset = compare_cells(array, wrong, compare, maps=maps, min_per_cell=min_per_cell)
    dataset["rank_biserial"] = 2 * dataset["auroc"] - 1
    for name, text in _DEFINITIONS.items():
        dataset[name].attrs = {"definition": text}
    return dataset[list(_DEFINITIONS)]


def compare_cells(
    array: xr.DataArray,
    wrong: Labels,
    compare: Callable[[Floats, Ints], tuple[Floats, Auroc]],
    *,
    maps: Sequence[str],
    min_per_cell: int,
    usable: Callable[[Ints], Ints] = lambda rows: rows,
) -> xr.Dataset:
    """One test of wrong against right answers in every cell: p, q, auroc with its interval, and counts.

    ``compare`` takes values (example, cell) and the rows they are of, and gives p and AUROC per cell; ``usable``: which of the
    rows that have a value take part.
    """
    table = array.values.reshape(len(wrong), -1).astype(np.float64)  # (example, cell)
    found = {name: np.full(table.shape[1], np.nan) for name in ("p", "auroc", "low", "high", "n_wrong", "n_right")}
    for present, cells in missing_patterns(table):
        rows = usable(present)
        n_wrong, n_right = int(wrong[rows].sum()), int((~wrong[rows]).sum())
        found["n_wrong"][cells], found["n_right"][cells] = n_wrong, n_right
        if min(n_wrong, n_right) < min_per_cell:
            continue
        for start in range(0, len(cells), _CELLS_PER_BLOCK):
            block = cells[start : start + _CELLS_PER_BLOCK]
            found["p"][block], area = compare(table[np.ix_(rows, block)], rows)
            found["auroc"][block], found["low"][block], found["high"][block] = area.value, area.low, area.high
    template = array.isel({EXAMPLE: 0}, drop=True)
    dataset = xr.Dataset({name: template.copy(data=cell.reshape(template.shape)) for name, cell in found.items()})
    dataset["q"] = q_values(dataset["p"], maps)
    return dataset.assign_attrs(n_wrong=int(wrong.sum()), n_right=int((~wrong).sum()))


def missing_patterns(table: Floats) -> Iterator[tuple[Ints, Ints]]:
    """For each pattern of missing rows in a table (example, cell): the rows that are there, and its cells."""
    missing = np.isnan(table)
    if not missing.any():
        yield np.arange(len(table)), np.arange(table.shape[1])
        return
    packed, which = np.unique(np.packbits(missing, axis=0), axis=1, return_inverse=True)
    which = which.ravel()
    for index in range(packed.shape[1]):
        cells = np.flatnonzero(which == index)
        yield np.flatnonzero(~missing[:, cells[0]]), cells


def _mann_whitney(part: Floats, wrong: Labels, placed: Placements) -> Floats:
    """Scipy's p of each column. Given many columns, scipy checks for ties in all of them at once, and takes the normal
    approximation everywhere if there are any; so columns with ties are passed separately where that matters.
    """
    p = np.empty(part.shape[1])
    n_wrong, n_right = int(wrong.sum()), int((~wrong).sum())
    if min(n_wrong, n_right) > _MAX_EXACT_MANN_WHITNEY:
        n, pairs = n_wrong + n_right, n_wrong * n_right
        u = np.round(2 * n_right * placed.share[wrong].sum(axis=0)) / 2
        deviation = np.sqrt(pairs / 12 * ((n + 1) - placed.ties / (n * (n - 1))))
        with np.errstate(divide="ignore"):
            return np.minimum(2 * scipy.special.ndtr((0.5 - np.abs(u - pairs / 2)) / deviation), 1.0)
    tied = placed.ties > 0
    for columns in (tied, ~tied):
        if columns.any():
            p[columns] = scipy.stats.mannwhitneyu(part[wrong][:, columns], part[~wrong][:, columns], axis=0).pvalue
    return p


# ---- the same examples twice ----------------------------------------------------------------------------------------


def paired_changes(before: xr.DataArray, after: xr.DataArray, *, maps: Sequence[str] = (STATISTIC,)) -> xr.Dataset:
    """Did anything change? The same examples twice, every cell tested (Wilcoxon's signed ranks).

    Args:
        before: (example, ...).
        after: of the same examples.
        maps: dims along which lie different maps, each with its own q-values.

    Returns:
        ``change`` (after - before) with its interval ``low`` and ``high``, ``p`` and ``q``; NaN with fewer than six
        examples.

    Examples:
        >>> before = xr.DataArray(np.arange(20.0).reshape(10, 2), dims=("example", "head"))
        >>> after = before + np.stack([np.zeros(10), 1 + np.arange(10) / 10], axis=1)  # head 1 rises
        >>> found = paired_changes(before, after, maps=())
        >>> found.change.values.round(2), found.q.values < 0.05
        (array([0.  , 1.45]), array([False,  True]))
    """
    after = after.transpose(*before.dims)
    difference = (after - before).transpose(EXAMPLE, ...).astype(np.float64)
    difference = difference.where((abs(difference) > ROUNDING) | difference.isnull(), 0.0)
    result = mean_interval(difference, EXAMPLE).rename(mean="change")
    tested = difference.notnull().sum(EXAMPLE) >= MIN_PAIRS
    p = _wilcoxon(difference.values.reshape(difference.sizes[EXAMPLE], -1)).reshape(tested.shape)
    result = result.assign(p=result["change"].copy(data=p)).where(tested)
    return result.assign(q=q_values(result["p"], maps))


def _wilcoxon(table: Floats) -> Floats:
    """The p of every column of (example, cell)."""
    size = np.abs(np.nan_to_num(table))
    changed = size > 0
    n = changed.sum(axis=0)
    rank = np.where(changed, ranks(size) - (len(table) - n), 0.0)  # the unchanged rank lowest
    positive, total, squares = (rank * (table > 0)).sum(axis=0), rank.sum(axis=0), (rank**2).sum(axis=0)
    tied = squares < n * (n + 1) * (2 * n + 1) / 6 - 0.25
    p = np.ones(table.shape[1])
    exact = ~tied & (n <= _MAX_EXACT_WILCOXON) & (n > 0)
    for count in np.unique(n[exact]):
        here = exact & (n == count)
        p[here] = 2 * _signed_rank_cdf(int(count))[np.minimum(positive, total - positive)[here].astype(int)]
    normal = ~exact & (n > 0)
    z = np.abs(positive[normal] - total[normal] / 2) / np.sqrt(squares[normal] / 4)
    p[normal] = 2 * scipy.special.ndtr(-z)
    return np.minimum(p, 1.0)


@cache
def _signed_rank_cdf(n: int) -> Floats:
    """P(the positive ones among the ranks 1 ... n sum to at most w), for every w, under random signs."""
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, n + 1):
        ways[rank:] += ways[: len(ways) - rank].copy()
    return np.cumsum(ways / 2.0**n)
