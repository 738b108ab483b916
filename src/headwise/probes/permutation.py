"""How many heads would look significant if the labels meant nothing?

Heads are alike, so their p-values rise and fall together: "80 % of heads have p < 0.05" cannot be judged by the 5 %
that independent tests would give. The labels are shuffled B times, and the share of cells with p < 0.05 counted each
time. With the ranks of all cells in a matrix R (example x cell) and the shuffled labels in S (shuffle x example), all
rank sums are one product S R, and

    U = S R - n_wrong (n_wrong + 1) / 2,     z = (|U - n_wrong n_right / 2| - 1/2) / s     (ties in s, as scipy)

The permutation p of the observed share is (1 + shuffles with at least that share) / (B + 1).

``within`` shuffles only inside strata (a topic, a length, a matched pair): the null is then "no difference beyond the
strata". The normal approximation is used for the observed share as well as for the shuffled ones, so the comparison is
fair; above 8 answers of a class it is scipy's own p.

Cost: one sort a cell and B x examples x cells multiplications; 500 x 2,000 x 200 in about half a second.
This module does not know whether answers are exchangeable: several answers to one question are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, rankdata

from headwise.core.dims import EXAMPLE
from headwise.core.errors import StudyError
from headwise.probes.differences import LEAST_PER_CELL, MAPS, patterns
from headwise.probes.features import named
from headwise.probes.labels import LEAST, Labels, as_groups, as_labels
from headwise.probes.multiplicity import cells_of_a_map
from headwise.probes.threads import one_thread

__all__ = ["FEWEST", "permutation_null"]

Floats = NDArray[np.float64]

FEWEST = 200  # shuffles: the tail of 5 % is then told by ten
_AT_ONCE = 4_000_000  # numbers in a block of shuffles x cells


class _Ranked(NamedTuple):
    """The cells of a map, ready for any labels."""

    ranks: Floats
    """(example, cell); 0 where the value is NaN"""
    there: Floats
    """(example, cell); 1 where there is a value"""
    ties: Floats
    """(cell,): sum of t^3 - t over groups of t equal values"""


def permutation_null(
    values: ArrayLike | xr.DataArray,
    labels: ArrayLike,
    *,
    shuffles: int = 1000,
    seed: int = 0,
    alpha: float = 0.05,
    within: ArrayLike | None = None,
    dims: Sequence[str] | None = None,
    maps: Sequence[str] = MAPS,
    least: int = LEAST,
) -> xr.Dataset:
    """Are more heads significant than if labels meant nothing? The share of cells with p < alpha, seen and shuffled.

    Args:
        values: (example, ...), an xarray.DataArray, or an array whose dims are named by ``dims``.
        labels: (example,), True for wrong answers.
        shuffles: of the labels, at least 200.
        seed: of the shuffles.
        alpha: below which a p counts.
        within: (example,), groups within which labels are shuffled, such as topics.
        dims: names of the dims, where ``values`` has none; (example, layer, head) is guessed.
        maps: dims along which lie different maps, each judged apart.
        least: answers of each class that are asked for.

    Returns:
        ``observed``, ``null_mean``, ``null_95`` (95 % quantile of the shuffled shares) and ``p``, by map.

    Examples:
        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(60) % 2 == 0
        >>> noise = generator.normal(size=(60, 4, 5))
        >>> found = permutation_null(noise, wrong, shuffles=200)
        >>> bool(found.observed <= found.null_95)  # nothing but noise
        True
    """
    if shuffles < FEWEST:
        raise StudyError(f"{shuffles} shuffles say too little about a 5 % tail; ask for at least {FEWEST}.")
    array = named(values, dims)
    wrong = as_labels(labels, rows=array.sizes[EXAMPLE], least=least)
    shuffled = _shuffled(wrong, shuffles, as_groups(within, len(wrong)), np.random.default_rng(seed))
    cells = cells_of_a_map([str(dim) for dim in array.dims if dim != EXAMPLE], maps)

    def one(part: Floats) -> tuple[float, float, float, float]:
        ranked = _rank(part.reshape(len(wrong), -1).astype(np.float64))
        observed = _shares(ranked, wrong[None].astype(np.float64), alpha)[0]
        null = _shares(ranked, shuffled, alpha)
        p = (1 + np.sum(null >= observed)) / (1 + len(null))
        return observed, null.mean(), np.quantile(null, 0.95), p

    results = xr.apply_ufunc(
        one, array, input_core_dims=[[EXAMPLE, *cells]], output_core_dims=[[]] * 4, vectorize=True
    )  # fmt: skip
    names = ("observed", "null_mean", "null_95", "p")
    return xr.Dataset(
        dict(zip(names, results, strict=True)), attrs={"alpha": alpha, "shuffles": shuffles, "seed": seed}
    )


def _shuffled(wrong: Labels, shuffles: int, within: NDArray[np.int64] | None, random: np.random.Generator) -> Floats:
    """(shuffle, example): labels in random order, inside strata where these are given."""
    strata = np.zeros(len(wrong), dtype=np.int64) if within is None else within
    places = np.argsort(strata, kind="stable")
    out = np.empty((shuffles, len(wrong)))
    for row in out:
        row[places] = wrong[np.lexsort((random.random(len(wrong)), strata))]
    return out


def _rank(table: Floats) -> _Ranked:
    ranks, there = np.zeros(table.shape), np.zeros(table.shape)
    ties = np.empty(table.shape[1])
    for rows, cells in patterns(table):
        place = np.ix_(rows, cells)
        there[place] = 1
        ranks[place] = found = rankdata(table[place], axis=0)
        # of t equal values each has the same mid-rank, so that sum r^2 falls short by (t^3 - t) / 12
        n = len(rows)
        ties[cells] = n * (n + 1) * (2 * n + 1) * 2 - 12 * np.square(found).sum(axis=0)
    return _Ranked(ranks, there, np.round(ties))


@one_thread
def _shares(ranked: _Ranked, labels: Floats, alpha: float) -> Floats:
    """The share of tested cells with p < alpha for each row of labels (shuffle, example)."""
    limit = norm.isf(alpha / 2)
    total = ranked.there.sum(axis=0)
    complete = bool((total == len(ranked.there)).all())
    step = max(1, _AT_ONCE // max(1, len(total)))
    shares = np.empty(len(labels))
    for start in range(0, len(labels), step):
        part = labels[start : start + step]
        n_wrong = part.sum(axis=1, keepdims=True) if complete else part @ ranked.there
        n_right = total - n_wrong
        u = part @ ranked.ranks - n_wrong * (n_wrong + 1) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.sqrt(n_wrong * n_right / 12 * ((total + 1) - ranked.ties / (total * (total - 1))))
            significant = (np.abs(u - n_wrong * n_right / 2) - 0.5) / spread > limit
        tested = np.minimum(n_wrong, n_right) >= LEAST_PER_CELL
        shares[start : start + step] = (significant & tested).sum(axis=1) / np.maximum(tested.sum(axis=1), 1)
    return shares
