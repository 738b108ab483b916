"""What can be seen on a layer x head map, computed: data in, data out, no wording.

All functions take a DataArray with the dims ``layer`` and ``head`` (in any order; coordinates name the heads, else they
are counted from 0) and ignore cells that are NaN. Cost: nothing to speak of for any model there is.

The order of heads within a layer means nothing to the model (but for groups that share a key head), so a cluster over
layers says more than one over heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.dims import HEAD, LAYER, head_name

THIRDS = ("early", "middle", "late")


@dataclass(frozen=True)
class HeadValue:
    """A head and its value."""

    layer: int
    head: int
    value: float

    @property
    def name(self) -> str:
        return head_name(self.layer, self.head)


@dataclass(frozen=True)
class Cluster:
    """Neighbouring cells over a threshold, as the box around them."""

    first_layer: int
    last_layer: int
    first_head: int
    last_head: int
    size: int
    """cells of the box that are over the threshold"""
    area: int
    """measured cells of the box"""
    mean: float
    """over all measured cells of the box"""


@dataclass(frozen=True)
class Share:
    """How many cells, of how many."""

    count: int
    total: int

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else math.nan


@dataclass(frozen=True)
class Concentration:
    """How unevenly a non-negative quantity is spread over the heads."""

    heads: int
    """how many heads the top share is"""
    share: float
    """part of the total that these heads carry"""
    gini: float
    """0 when all heads have the same, near 1 when one head has all"""


@dataclass(frozen=True)
class DepthTrend:
    """How layer means change from the first layer to the last."""

    correlation: float
    """Spearman's, of the layer mean with the layer"""
    peak_layer: int
    peak_third: str
    """early, middle or late: the third of the layers with the largest mean"""
    means: tuple[float, float, float]
    """of the early, middle and late third"""
    shares: tuple[float, float, float]
    """of the total, NaN when values are negative"""


@dataclass(frozen=True)
class Overlap:
    """The heads that are among the n strongest of both maps."""

    size: int
    shared: tuple[str, ...]
    jaccard: float


def strongest(values: xr.DataArray, n: int = 3, *, by: str = "largest") -> list[HeadValue]:
    """The n heads with the ``largest`` (or ``smallest``) values, best first; equal ones in the order of the model."""
    array, layers, heads = _grid(values)
    ranked = -array if by == "largest" else array
    order = np.argsort(np.where(np.isfinite(ranked), ranked, np.inf), axis=None, kind="stable")
    cells = [divmod(int(place), array.shape[1]) for place in order[: min(n, int(np.isfinite(array).sum()))]]
    return [HeadValue(layers[row], heads[column], float(array[row, column])) for row, column in cells]


def share_over(values: xr.DataArray, threshold: float) -> Share:
    """How many cells are over a threshold."""
    array, _, _ = _grid(values)
    return Share(int((array > threshold).sum()), int(np.isfinite(array).sum()))


def clusters(values: xr.DataArray, threshold: float, *, smallest: int = 3) -> list[Cluster]:
    """Boxes around cells at or over the threshold that touch by their sides, largest first.

    Boxes that overlap become one. Those with fewer than ``smallest`` cells are left out.
    """
    array, layers, heads = _grid(values)
    over = array >= threshold
    boxes = _merged([_bounds(cells) for cells in _components(over) if len(cells) >= smallest])
    found = []
    for top, bottom, left, right in boxes:
        inside = (slice(top, bottom + 1), slice(left, right + 1))
        size, area = int(over[inside].sum()), int(np.isfinite(array[inside]).sum())
        mean = float(np.nanmean(array[inside]))
        found.append(Cluster(layers[top], layers[bottom], heads[left], heads[right], size, area, mean))
    return sorted(found, key=lambda cluster: -cluster.size)


def cluster_by_chance(values: xr.DataArray, threshold: float, *, draws: int = 99, seed: int = 0) -> int:
    """How large a cluster gets when the same values are dealt out to the heads at random: not larger in 95 % of draws.

    A cluster that is not larger than this is no finding.
    """
    array, _, _ = _grid(values)
    measured = np.isfinite(array)
    over = array[measured] >= threshold
    generator, sizes = np.random.default_rng(seed), []
    for _ in range(draws):
        dealt = np.zeros(array.shape, dtype=bool)
        dealt[measured] = generator.permutation(over)
        sizes.append(max((len(cells) for cells in _components(dealt)), default=0))
    return int(np.sort(sizes)[math.ceil(0.95 * draws) - 1])


def concentration(values: xr.DataArray, *, top: float = 0.05) -> Concentration | None:
    """What the top share of heads carries, and Gini's coefficient. None when values are negative or sum to nothing."""
    array, _, _ = _grid(values)
    finite = np.sort(array[np.isfinite(array)])
    if finite.size == 0 or finite[0] < 0 or finite.sum() <= 0:
        return None
    heads = max(1, round(top * finite.size))
    place = np.arange(1, finite.size + 1)
    gini = float((2 * place - finite.size - 1) @ finite / (finite.size * finite.sum()))
    return Concentration(heads, float(finite[-heads:].sum() / finite.sum()), gini)


def depth_trend(values: xr.DataArray) -> DepthTrend | None:
    """The trend over layers. None with fewer than three measured layers: there is no third to speak of."""
    array, layers, _ = _grid(values)
    measured = np.isfinite(array).any(axis=1)
    if measured.sum() < 3:
        return None
    array, depth = array[measured], np.array(layers)[measured]
    means = np.nanmean(array, axis=1)
    parts = np.array_split(np.arange(len(depth)), 3)
    third_means = [float(np.nanmean(array[part])) for part in parts]
    total = float(np.nansum(array))
    is_share = total > 0 and float(np.nanmin(array)) >= 0
    shares = [float(np.nansum(array[part])) / total if is_share else math.nan for part in parts]
    return DepthTrend(
        spearman(means, depth),
        int(depth[np.argmax(means)]),
        THIRDS[int(np.argmax(third_means))],
        (third_means[0], third_means[1], third_means[2]),
        (shares[0], shares[1], shares[2]),
    )


def rank_correlation(one: xr.DataArray, other: xr.DataArray) -> float:
    """Spearman's rank correlation of two maps, over the heads that both have; NaN when one of them is constant."""
    one, other = xr.align(one, other, join="inner")
    return spearman(_grid(one)[0].ravel(), _grid(other)[0].ravel())


def overlap(one: xr.DataArray, other: xr.DataArray, n: int = 10) -> Overlap:
    """Which heads are among the n strongest of both, and the Jaccard index of the two sets."""
    first = [each.name for each in strongest(one, n)]
    second = {each.name for each in strongest(other, n)}
    shared = tuple(name for name in first if name in second)
    union = len(set(first) | second)
    return Overlap(n, shared, len(shared) / union if union else math.nan)


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation of ranks, ties given their mean rank; pairs with a NaN are left out.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 27.0]))
    1.0
    """
    both = np.isfinite(one) & np.isfinite(other)
    if both.sum() < 3:
        return math.nan
    a, b = _ranks(np.asarray(one)[both]), _ranks(np.asarray(other)[both])
    a, b = a - a.mean(), b - b.mean()
    length = math.sqrt(float(a @ a) * float(b @ b))
    return round(float(a @ b) / length, 12) if length > 0 else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _grid(values: xr.DataArray) -> tuple[np.ndarray, list[int], list[int]]:
    """The numbers as (layer, head) in double precision, and the names of rows and columns."""
    values = values.transpose(LAYER, HEAD)
    names = [
        [int(name) for name in values[dim].values] if dim in values.coords else list(range(values.sizes[dim]))
        for dim in (LAYER, HEAD)
    ]
    return np.asarray(values.values, dtype=float), names[0], names[1]


def _components(over: np.ndarray) -> list[list[tuple[int, int]]]:
    left = {(int(row), int(column)) for row, column in np.argwhere(over)}
    found = []
    while left:
        front, cells = [left.pop()], []
        while front:
            row, column = front.pop()
            cells.append((row, column))
            for near in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if near in left:
                    left.remove(near)
                    front.append(near)
        found.append(cells)
    return found


def _bounds(cells: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    rows, columns = zip(*cells, strict=True)
    return min(rows), max(rows), min(columns), max(columns)


def _merged(boxes: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Unite boxes that overlap, until none do."""
    boxes, done = sorted(boxes), list[tuple[int, int, int, int]]()
    while boxes:
        box = boxes.pop(0)
        touching = [other for other in boxes + done if _overlap(box, other)]
        if not touching:
            done.append(box)
            continue
        tops, bottoms, lefts, rights = zip(box, *touching, strict=True)
        rest = [other for other in boxes + done if other not in touching]
        boxes, done = [(min(tops), max(bottoms), min(lefts), max(rights)), *rest], []
    return done


def _overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1] and one[2] <= other[3] and other[2] <= one[3]
