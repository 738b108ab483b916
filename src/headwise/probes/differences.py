"""Do wrong and right answers differ, for every head and feature at once?

For each cell (a head, a feature, a rank) the values of the wrong answers are set against those of the right ones:

- p: the two-sided Mann-Whitney U test, with exactly the p of ``scipy.stats.mannwhitneyu`` on that cell alone (exact
  where one class has at most 8 answers and there are no ties, otherwise normal with correction for ties and
  continuity);
- q: Benjamini-Hochberg over all cells of a map (``multiplicity``);
- auroc: P(wrong > right) + ties / 2, with DeLong's 95 % interval on the logit scale (``auroc``), and the rank-biserial
  correlation 2 auroc - 1. With 500 answers an effect too small to be of any use can have a tiny p: look at this first.

NaN: an answer whose value is NaN is left out of that cell. A cell left with fewer than 5 answers of a class is not
tested and is NaN everywhere, not 1. Values that are all equal were tested and found equal: p = 1, auroc 0.5.

Cost: four sorts a cell; 500 answers x 2,700 cells in about a second. Cells with the same answers left out go through
scipy together, so it is slow only where NaN are scattered at random.

This module does not know whether answers are independent. Several answers to one question are not: pass one of each. It
does not know their length either: see ``matching``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import mannwhitneyu

from headwise.core.dims import EXAMPLE, FEATURE, PART, STATISTIC
from headwise.probes.auroc import auroc
from headwise.probes.features import named
from headwise.probes.labels import LEAST, Labels, as_labels
from headwise.probes.multiplicity import q_of_maps

__all__ = ["LEAST_PER_CELL", "MAPS", "differences"]

MAPS = (FEATURE, PART, STATISTIC)  # along these dims lie different maps, each with its own q-values
LEAST_PER_CELL = 5
_EXACT = 8  # scipy's own limit for the exact test
_BLOCK = 4096  # cells that go through the sorts together

_RESULTS = ("p", "auroc", "low", "high", "n_wrong", "n_right")
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


def differences(
    values: ArrayLike | xr.DataArray,
    labels: ArrayLike,
    *,
    dims: Sequence[str] | None = None,
    maps: Sequence[str] = MAPS,
    least: int = LEAST,
    least_per_cell: int = LEAST_PER_CELL,
) -> xr.Dataset:
    """Do wrong and right answers differ? Every head and feature at once.

    Args:
        values: (example, ...), an xarray.DataArray, or an array whose dims are named by ``dims``.
        labels: (example,), True for wrong answers.
        dims: names of the dims, where ``values`` has none; (example, layer, head) is guessed.
        maps: dims along which lie different maps, each with its own q-values.
        least: answers of each class that are asked for.
        least_per_cell: answers of each class below which a cell is not tested.

    Returns:
        p, q, auroc with its interval, rank_biserial and counts, by cell.

    Examples:
        Sixty answers, 2 x 3 heads, of which one tells.

        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(60) % 2 == 0
        >>> values = generator.normal(size=(60, 2, 3))
        >>> values[wrong, 1, 2] += 1.5
        >>> found = differences(values, wrong)
        >>> found.q.values < 0.05
        array([[False, False, False],
               [False, False,  True]])
        >>> round(float(found.auroc.sel(layer=1, head=2)), 2)
        0.93
    """
    array = named(values, dims)
    wrong = as_labels(labels, rows=array.sizes[EXAMPLE], least=least)
    table = array.values.reshape(len(wrong), -1).astype(np.float64)  # (example, cell)
    found = {name: np.full(table.shape[1], np.nan) for name in _RESULTS}
    for rows, cells in patterns(table):
        here = wrong[rows]
        n_wrong, n_right = int(here.sum()), int((~here).sum())
        found["n_wrong"][cells], found["n_right"][cells] = n_wrong, n_right
        if min(n_wrong, n_right) < least_per_cell:
            continue
        for start in range(0, len(cells), _BLOCK):
            block = cells[start : start + _BLOCK]
            part = table[np.ix_(rows, block)]
            found["p"][block] = _mann_whitney(part, here)
            area = auroc(part, here)
            found["auroc"][block], found["low"][block], found["high"][block] = area.value, area.low, area.high
    template = array.isel({EXAMPLE: 0}, drop=True)
    dataset = xr.Dataset({name: template.copy(data=cell.reshape(template.shape)) for name, cell in found.items()})
    dataset["q"] = q_of_maps(dataset["p"], maps)
    dataset["rank_biserial"] = 2 * dataset["auroc"] - 1
    for name, text in _DEFINITIONS.items():
        dataset[name].attrs = {"definition": text}
    return dataset[list(_DEFINITIONS)].assign_attrs(n_wrong=int(wrong.sum()), n_right=int((~wrong).sum()))


def patterns(table: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The rows that are there and the cells of which this holds, for each way in which rows are missing."""
    missing = np.isnan(table)
    if not missing.any():
        yield np.arange(len(table)), np.arange(table.shape[1])
        return
    packed, which = np.unique(np.packbits(missing, axis=0), axis=1, return_inverse=True)
    which = which.ravel()
    for index in range(packed.shape[1]):
        cells = np.flatnonzero(which == index)
        yield np.flatnonzero(~missing[:, cells[0]]), cells


def _mann_whitney(part: NDArray[np.float64], wrong: Labels) -> NDArray[np.float64]:
    """Scipy's p of each column. Asked for many columns, scipy looks for ties in all of them at once, and takes the
    normal approximation everywhere if there are any; so columns with ties are asked apart where that matters.
    """
    p = np.empty(part.shape[1])
    if min(wrong.sum(), (~wrong).sum()) > _EXACT:
        return mannwhitneyu(part[wrong], part[~wrong], axis=0).pvalue
    ordered = np.sort(part, axis=0)
    tied = (ordered[1:] == ordered[:-1]).any(axis=0)
    for columns in (tied, ~tied):
        if columns.any():
            p[columns] = mannwhitneyu(part[wrong][:, columns], part[~wrong][:, columns], axis=0).pvalue
    return p
