"""What can be seen on a layer x head map, computed: data in, data out, no wording.

All functions take a DataArray with the dims ``layer`` and ``head`` (in any order; coordinates name the heads, else they
are counted from 0) and ignore cells that are NaN. Cost: nothing to speak of for any model there is.

The order of heads within a layer means nothing to the model (but for groups that share a key head), so a cluster over
layers says more than one over heads.
"""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER
from headwise.describe.map_facts import Cluster, Concentration, DepthTrend, HeadValue, Overlap, Share

__all__ = [
    "THIRDS", "Cluster", "Concentration", "DepthTrend", "HeadValue", "Overlap", "Share", "cluster_by_chance", "clusters",
    "concentration", "depth_trend", "overlap", "rank_correlation", "share_over", "spearman", "strongest",
]  # fmt: skip

THIRDS = ("early", "middle", "late")


def strongest(values: xr.DataArray, n: int = 3, *, by: str = "largest") -> list[HeadValue]:
    """The heads with the largest values.

    Args:
        values: a map, dims layer and head.
        n: how many.
        by: "largest" or "smallest".

    Returns:
        Best first; equal ones in the order of the model.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> [one.name for one in strongest(values, 2)]
        ['L0H1', 'L1H1']
    """
    array, layers, heads = _grid(values)
    ranked = -array if by == "largest" else array
    order = np.argsort(np.where(np.isfinite(ranked), ranked, np.inf), axis=None, kind="stable")
    cells = [divmod(int(place), array.shape[1]) for place in order[: min(n, int(np.isfinite(array).sum()))]]
    return [HeadValue(layers[row], heads[column], float(array[row, column])) for row, column in cells]


def share_over(values: xr.DataArray, threshold: float) -> Share:
    """How many cells are over a threshold.

    Args:
        values: a map, dims layer and head.
        threshold: which they exceed.

    Returns:
        How many, of how many.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> share_over(values, 0.5)
        Share(count=3, total=9)
    """
    array, _, _ = _grid(values)
    return Share(int((array > threshold).sum()), int(np.isfinite(array).sum()))


def clusters(values: xr.DataArray, threshold: float, *, smallest: int = 3) -> list[Cluster]:
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

    Args:
        values: a map, dims layer and head.
        threshold: of a cell.
        draws: how often they are dealt.
        seed: of the dealing.

    Returns:
        Cells. A cluster that is not larger than this is no finding.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> cluster_by_chance(values, 0.5)
        3
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
    """How unevenly a quantity is spread over the heads.

    Args:
        values: a map, dims layer and head.
        top: share of the heads.

    Returns:
        What the top share of heads carries, and Gini's coefficient. None when values are negative or sum to nothing.

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
    place = np.arange(1, finite.size + 1)
    gini = float((2 * place - finite.size - 1) @ finite / (finite.size * finite.sum()))
    return Concentration(heads, float(finite[-heads:].sum() / finite.sum()), gini)


def depth_trend(values: xr.DataArray) -> DepthTrend | None:
    """The trend over layers.

    Args:
        values: a map, dims layer and head.

    Returns:
        None with fewer than three measured layers: there is no third to speak of.

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
        From -1 to 1; NaN when one of them is constant.

    Examples:
        >>> values = xr.DataArray([[0.1, 0.9, 0.2], [0.3, 0.8, 0.0], [0.1, 0.7, 0.1]], dims=("layer", "head"))
        >>> rank_correlation(values, -values)
        -1.0
    """
    one, other = xr.align(one, other, join="inner")
    return spearman(_grid(one)[0].ravel(), _grid(other)[0].ravel())


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


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation of ranks, ties given their mean rank; pairs with a NaN are left out.

    Args:
        one: numbers.
        other: as many.

    Returns:
        From -1 to 1; NaN with fewer than three pairs, or where one side is constant.

    Examples:
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
