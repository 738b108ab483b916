"""What can be seen on a layer x head map? Computed facts, without wording.

All functions take a DataArray with the dims ``layer`` and ``head`` (in any order; coordinates name the heads, else they are
counted from 0) and ignore NaN cells. Cost: negligible for any model.

The order of heads within a layer has no meaning to the model (except for groups that share a key head), so a cluster over
layers says more than one over heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, head_name
from headwise.stats.correlation import spearman

__all__ = [
    "THIRDS",
    "Break",
    "Concentration",
    "DepthTrend",
    "HeadCluster",
    "HeadValue",
    "Outlier",
    "Overlap",
    "Share",
    "breaks",
    "cluster_by_chance",
    "clusters",
    "concentration",
    "depth_trend",
    "outliers",
    "overlap",
    "rank_correlation",
    "share_over",
    "strongest",
]

THIRDS = ("early", "middle", "late")


@dataclass(frozen=True)
class HeadValue:
    """A head and its value.

    Examples:
        >>> HeadValue(3, 7, 0.87).name
        'L3H7'
    """

    layer: int  # counted from 0
    head: int  # its index in the layer
    value: float  # on the map

    @property
    def name(self) -> str:
        """Such as "L3H7"."""
        return head_name(self.layer, self.head)


@dataclass(frozen=True)
class HeadCluster:
    """Connected cells over a threshold, as their bounding box.

    Examples:
        >>> box = HeadCluster(first_layer=2, last_layer=4, first_head=0, last_head=1, size=5, area=6, mean=0.7)
        >>> box.last_layer - box.first_layer + 1
        3
    """

    first_layer: int  # of the box
    last_layer: int  # itself included
    first_head: int  # of the box
    last_head: int  # itself included
    size: int
    """cells of the box that are over the threshold"""
    area: int
    """measured cells of the box"""
    mean: float
    """over all measured cells of the box"""


@dataclass(frozen=True)
class Share:
    """How many cells, of how many.

    Examples:
        >>> Share(count=3, total=12).share
        0.25
    """

    count: int  # cells over the threshold
    total: int  # cells that were measured

    @property
    def share(self) -> float:
        """Count / total; NaN where nothing was measured."""
        return self.count / self.total if self.total else math.nan


@dataclass(frozen=True)
class Concentration:
    """How unevenly a non-negative quantity is spread over the heads.

    Examples:
        >>> Concentration(heads=14, share=0.5, gini=0.8).share  # 14 heads carry half
        0.5
    """

    heads: int
    """how many heads the top share is"""
    share: float
    """part of the total that these heads carry"""
    gini: float
    """0 when all heads have the same, near 1 when one head has all"""


@dataclass(frozen=True)
class DepthTrend:
    """How layer means change from the first layer to the last.

    Examples:
        >>> DepthTrend(0.9, 28, "late", (0.1, 0.2, 0.6), (0.1, 0.2, 0.7)).peak_third
        'late'
    """

    correlation: float
    """Spearman's, of the layer mean with the layer"""
    peak_layer: int
    """the layer with the largest mean"""
    peak_third: str
    """early, middle or late: the third of the layers with the largest mean"""
    means: tuple[float, float, float]
    """of the early, middle and late third"""
    shares: tuple[float, float, float]
    """of the total, NaN when values are negative"""


@dataclass(frozen=True)
class Overlap:
    """The heads that are among the n strongest of both maps.

    Examples:
        >>> Overlap(size=2, shared=("L3H7",), jaccard=1 / 3).shared
        ('L3H7',)
    """

    size: int  # n
    shared: tuple[str, ...]  # their names
    jaccard: float  # those shared over those in either


@dataclass(frozen=True)
class Outlier:
    """A head far from the heads around it.

    Examples:
        >>> Outlier(HeadValue(3, 7, 0.9), around=0.1, distance=12.0).head.name
        'L3H7'
    """

    head: HeadValue  # and its value
    around: float
    """median of its layer and of the two next to it"""
    distance: float
    """from that median, in robust standard deviations; negative: below"""


@dataclass(frozen=True)
class Break:
    """A layer whose level, the median of its heads, is far from those around it.

    Examples:
        >>> Break(layer=0, level=0.9, around=0.3).layer
        0
    """

    layer: int  # counted from 0
    level: float  # median of its heads
    around: float
    """median of the levels of the two layers on either side"""


def strongest(values: xr.DataArray, n: int = 3, *, by: str = "largest") -> list[HeadValue]:
    """The heads with the largest values.

    Args:
        values: a map, dims layer and head.
        n: how many.
        by: "largest" or "smallest".

    Returns:
        Largest first; ties in the order of the model.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> [one.name for one in strongest(values, 2)]
        ['L0H1', 'L1H1']
    """
    array, layers, heads = _grid(values)
    ranked = -array if by == "largest" else array
    order = np.argsort(np.where(np.isfinite(ranked), ranked, np.inf), axis=None, kind="stable")
    cells = [divmod(int(index), array.shape[1]) for index in order[: min(n, int(np.isfinite(array).sum()))]]
    return [HeadValue(layers[row], heads[column], float(array[row, column])) for row, column in cells]


def share_over(values: xr.DataArray, threshold: float) -> Share:
    """How many cells are over a threshold.

    Args:
        values: a map, dims layer and head.
        threshold: that cells exceed.

    Returns:
        How many, of how many.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> share_over(values, 0.5)
        Share(count=3, total=9)
    """
    array, _, _ = _grid(values)
    return Share(int((array > threshold).sum()), int(np.isfinite(array).sum()))


def clusters(values: xr.DataArray, threshold: float, *, smallest: int = 3) -> list[HeadCluster]:
    """Boxes around cells at or over the threshold that touch by their sides, largest first.

    Boxes that overlap become one.

    Args:
        values: a map, dims layer and head.
        threshold: of a cell.
        smallest: boxes with fewer cells are left out.

    Returns:
        The boxes.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> [(box.first_layer, box.last_layer, box.size) for box in clusters(values, 0.5)]  # head 1, all layers
        [(0, 2, 3)]
    """
    array, layers, heads = _grid(values)
    over = array >= threshold
    component, cells = _components(over), np.argwhere(over)
    sizes = np.bincount(component)
    boxes = _merged([_bounds(cells[component == number]) for number in np.flatnonzero(sizes >= max(smallest, 1))])
    found = []
    for top, bottom, left, right in boxes:
        inside = (slice(top, bottom + 1), slice(left, right + 1))
        size, area = int(over[inside].sum()), int(np.isfinite(array[inside]).sum())
        mean = float(np.nanmean(array[inside]))
        found.append(HeadCluster(layers[top], layers[bottom], heads[left], heads[right], size, area, mean))
    return sorted(found, key=lambda cluster: -cluster.size)


def cluster_by_chance(values: xr.DataArray, threshold: float, *, draws: int = 99, seed: int = 0) -> int:
    """The 95th percentile of the largest cluster when the values are shuffled over the heads.

    Args:
        values: a map, dims layer and head.
        threshold: of a cell.
        draws: number of shuffles.
        seed: of the shuffles.

    Returns:
        Cells. A cluster that is not larger is consistent with chance.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> cluster_by_chance(values, 0.5)
        3
    """
    array, _, _ = _grid(values)
    measured = np.isfinite(array)
    over = array[measured] >= threshold
    generator = np.random.default_rng(seed)
    shuffled = np.zeros((draws, *array.shape), dtype=bool)
    for draw in shuffled:
        draw[measured] = generator.permutation(over)
    draw_of, component = np.nonzero(shuffled)[0], _components(shuffled)
    largest = np.zeros(draws, dtype=int)
    np.maximum.at(largest, draw_of, np.bincount(component)[component] if len(component) else 0)
    return int(np.sort(largest)[math.ceil(0.95 * draws) - 1])


ROBUST = 1.4826  # median absolute deviation to standard deviation, for normal values
FAR = 6.0  # robust standard deviations
FEWEST_AROUND = 8  # heads without which there is no pattern to break


def outliers(values: xr.DataArray, *, far: float = FAR) -> list[Outlier]:
    """The heads that are far from the median of their own layer and of the two layers next to it, farthest first.

    Args:
        values: a map, dims layer and head.
        far: in robust standard deviations (1.48 times the median absolute deviation of the same heads).

    Returns:
        None of them where there are fewer than eight heads around, or where more than half of these are equal.

    Examples:
        >>> values = xr.DataArray(np.linspace(0, 1, 40).reshape(4, 10) + 5 * (np.arange(40) == 23).reshape(4, 10),
        ...                       dims=("layer", "head"))
        >>> [(one.head.name, round(one.around, 2)) for one in outliers(values)]
        [('L2H3', 0.65)]
    """
    array, layers, heads = _grid(values)
    found = []
    for row in range(len(layers)):
        around = array[max(row - 1, 0) : row + 2]
        around = around[np.isfinite(around)]
        if around.size < FEWEST_AROUND:
            continue
        middle = float(np.median(around))
        scale = ROBUST * float(np.median(abs(around - middle)))
        if scale <= 0:
            continue
        distance = (array[row] - middle) / scale
        found += [
            Outlier(HeadValue(layers[row], heads[column], float(array[row, column])), middle, float(distance[column]))
            for column in np.flatnonzero(np.nan_to_num(abs(distance)) > far)
        ]
    return sorted(found, key=lambda one: -abs(one.distance))


def breaks(values: xr.DataArray, *, far: float = FAR) -> list[Break]:
    """The layers whose level (the median of their heads) is far from that of the two layers on either side, farthest first.

    Args:
        values: a map, dims layer and head.
        far: in robust standard deviations of these differences over all layers.

    Returns:
        None of them with fewer than eight measured layers.

    Examples:
        >>> values = xr.DataArray(np.linspace(0, 1, 40).reshape(10, 4) ** 2, dims=("layer", "head"))
        >>> values[4] += 3
        >>> [one.layer for one in breaks(values)]
        [4]
    """
    array, layers, _ = _grid(values)
    known = np.flatnonzero(np.isfinite(array).any(axis=1))
    if len(known) < FEWEST_AROUND:
        return []
    levels = np.nanmedian(array[known], axis=1)
    around = np.array(
        [np.median(np.delete(levels[max(row - 2, 0) : row + 3], min(row, 2))) for row in range(len(known))]
    )
    apart = levels - around
    scale = ROBUST * float(np.median(abs(apart - np.median(apart))))
    if scale <= 0:
        return []
    order = np.argsort(-abs(apart), kind="stable")
    return [
        Break(layers[known[row]], float(levels[row]), float(around[row]))
        for row in order
        if abs(apart[row]) > far * scale
    ]


def concentration(values: xr.DataArray, *, top: float = 0.05) -> Concentration | None:
    """How unevenly a quantity is spread over the heads.

    Args:
        values: a map, dims layer and head.
        top: share of the heads.

    Returns:
        The share of the total in the top heads, and the Gini coefficient. None where values are negative or sum to 0.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> round(concentration(values, top=1 / 3).share, 2)
        0.75
    """
    array, _, _ = _grid(values)
    finite = np.sort(array[np.isfinite(array)])
    if finite.size == 0 or finite[0] < 0 or finite.sum() <= 0:
        return None
    heads = max(1, round(top * finite.size))
    rank = np.arange(1, finite.size + 1)
    gini = float((2 * rank - finite.size - 1) @ finite / (finite.size * finite.sum()))
    return Concentration(heads, float(finite[-heads:].sum() / finite.sum()), gini)


def depth_trend(values: xr.DataArray) -> DepthTrend | None:
    """The trend over layers.

    Args:
        values: a map, dims layer and head.

    Returns:
        None with fewer than three measured layers.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> depth_trend(values).peak_layer, depth_trend(values).correlation
        (0, -1.0)
    """
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
    """Spearman's rank correlation of two maps, over the heads that both have.

    Args:
        one: a map, dims layer and head.
        other: another.

    Returns:
        From -1 to 1; NaN where one of them is constant.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> rank_correlation(values, -values)
        -1.0
    """
    (first, *names), (second, *other_names) = _grid(one), _grid(other)
    if names != other_names:
        first, second = (_grid(part)[0] for part in xr.align(one, other, join="inner"))
    return spearman(first.ravel(), second.ravel())


def overlap(one: xr.DataArray, other: xr.DataArray, n: int = 10) -> Overlap:
    """Which heads are among the strongest of both maps.

    Args:
        one: a map, dims layer and head.
        other: another.
        n: how many are the strongest.

    Returns:
        Their names, and the Jaccard index of the two sets.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> overlap(values, values.isel(layer=[0, 1]), n=2)
        Overlap(size=2, shared=('L0H1', 'L1H1'), jaccard=1.0)
    """
    first = [each.name for each in strongest(one, n)]
    second = {each.name for each in strongest(other, n)}
    shared = tuple(name for name in first if name in second)
    union = len(set(first) | second)
    return Overlap(n, shared, len(shared) / union if union else math.nan)


def _grid(values: xr.DataArray) -> tuple[np.ndarray, list[int], list[int]]:
    """The numbers as (layer, head) in double precision, and the names of rows and columns."""
    values = values.transpose(LAYER, HEAD)
    names = [
        [int(name) for name in values[dim].values] if dim in values.coords else list(range(values.sizes[dim]))
        for dim in (LAYER, HEAD)
    ]
    return np.asarray(values.values, dtype=float), names[0], names[1]


def _components(over: np.ndarray) -> np.ndarray:
    """The components of the true cells of (..., layer, head): a number for each of them, in their order.

    Cells are connected by their sides. Every cell takes the smallest number among its neighbours', then the number that the
    cell of that number has, until nothing changes: numbers travel in jumps that double. All maps at once.
    (`scipy.ndimage.label` does the same, but a command that reads would load it for this alone.)
    """
    wide = np.pad(over, [(0, 0)] * (over.ndim - 2) + [(1, 1), (1, 1)]).ravel()
    cells, width = np.flatnonzero(wide), over.shape[-1] + 2
    numbers = np.arange(len(cells))
    place = np.zeros(wide.size, dtype=int)
    place[cells] = numbers
    sides = [np.where(wide[cells + step], place[cells + step], numbers) for step in (-width, -1, 1, width)]
    while True:
        smallest = np.minimum.reduce([numbers, *(numbers[side] for side in sides)])
        smallest = smallest[smallest]
        if (smallest == numbers).all():
            return numbers
        numbers = smallest


def _bounds(cells: np.ndarray) -> tuple[int, int, int, int]:
    """Of (cell, layer and head): first and last layer, first and last head."""
    (top, left), (bottom, right) = cells.min(axis=0), cells.max(axis=0)
    return int(top), int(bottom), int(left), int(right)


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
