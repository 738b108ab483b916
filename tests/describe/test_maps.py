from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.ndimage import label

from headwise.describe import maps


def layer_head(values: object, **coords: object) -> xr.DataArray:
    return xr.DataArray(np.array(values, dtype=np.float32), dims=("layer", "head"), coords=coords)


def test_strongest_by_name_and_without_the_missing() -> None:
    values = layer_head([[0.1, np.nan], [0.9, 0.5]], layer=[4, 7], head=[0, 1])
    assert [head.name for head in maps.strongest(values, 5)] == ["L7H0", "L7H1", "L4H0"]
    assert maps.strongest(values, 1, by="smallest")[0].name == "L4H0"
    assert [head.name for head in maps.strongest(values.T, 1)] == ["L7H0"]
    assert maps.strongest(values * np.nan) == []


def test_clusters_are_boxes_of_touching_cells() -> None:
    values = np.zeros((8, 6))
    values[1:4, 1:3] = 1.0  # six cells together
    values[2, 1] = 0.0
    values[6, 5] = 1.0  # alone
    (box,) = maps.clusters(layer_head(values), 0.5)
    assert (box.first_layer, box.last_layer, box.first_head, box.last_head) == (1, 3, 1, 2)
    assert (box.size, box.area) == (5, 6)
    assert box.mean == pytest.approx(5 / 6)


def test_clusters_whose_boxes_overlap_become_one() -> None:
    values = np.zeros((6, 6))
    values[0, :5] = values[:5, 0] = 1.0  # an L, whose box holds the next one
    values[2:4, 2:4] = 1.0
    (box,) = maps.clusters(layer_head(values), 0.5)
    assert box.size == 13


def test_diagonal_neighbours_do_not_touch() -> None:
    assert maps.clusters(layer_head(np.eye(6)), 0.5, smallest=2) == []


def test_chance_clusters_grow_with_density_and_are_repeatable() -> None:
    values = layer_head(np.random.default_rng(0).random((20, 12)))
    few, many = maps.cluster_by_chance(values, 0.95), maps.cluster_by_chance(values, 0.5)
    assert 1 <= few < many
    assert few == maps.cluster_by_chance(values, 0.95)
    assert maps.cluster_by_chance(layer_head(np.ones((3, 3))), 0.5) == 9


def test_share_over() -> None:
    share = maps.share_over(layer_head([[0.4, 0.6], [np.nan, 0.7]]), 0.5)
    assert (share.count, share.total) == (2, 3)
    assert share.share == pytest.approx(2 / 3)
    assert math.isnan(maps.share_over(layer_head([[np.nan]]), 0.5).share)


def test_concentration_of_equals_and_of_one() -> None:
    even = maps.concentration(layer_head(np.ones((10, 10))))
    assert even is not None
    assert even.share == pytest.approx(0.05)
    assert even.gini == pytest.approx(0, abs=1e-9)
    alone = np.zeros((10, 10))
    alone[3, 3] = 2
    one = maps.concentration(layer_head(alone))
    assert one is not None
    assert (one.heads, one.share) == (5, 1.0)
    assert one.gini == pytest.approx(0.99)
    assert maps.concentration(layer_head([[-1.0, 2.0]])) is None
    assert maps.concentration(layer_head([[0.0, 0.0]])) is None


def test_depth_trend() -> None:
    values = np.arange(12.0)[:, None] * np.ones((1, 4))
    trend = maps.depth_trend(layer_head(values))
    assert trend is not None
    assert trend.correlation == 1.0
    assert (trend.peak_layer, trend.peak_third) == (11, "late")
    assert trend.means == (1.5, 5.5, 9.5)
    assert sum(trend.shares) == pytest.approx(1)
    assert maps.depth_trend(layer_head(values[:2])) is None
    falling = maps.depth_trend(layer_head(-values))
    assert falling is not None
    assert falling.correlation == -1.0
    assert all(math.isnan(share) for share in falling.shares)


def test_rank_correlation_agrees_with_pandas_ties_and_gaps_included() -> None:
    generator = np.random.default_rng(0)
    one, other = generator.integers(0, 6, (9, 7)).astype(float), generator.integers(0, 4, (9, 7)).astype(float)
    one[2, 3] = np.nan
    table = pd.DataFrame({"one": one.ravel(), "other": other.ravel()}).dropna().rank()
    assert maps.rank_correlation(layer_head(one), layer_head(other)) == pytest.approx(table["one"].corr(table["other"]))
    assert math.isnan(maps.rank_correlation(layer_head(one), layer_head(np.ones((9, 7)))))


def test_overlap_of_the_strongest() -> None:
    one = layer_head([[4.0, 3.0, 2.0, 1.0]])
    other = layer_head([[1.0, 4.0, 3.0, 2.0]])
    both = maps.overlap(one, other, 2)
    assert both.shared == ("L0H1",)
    assert both.jaccard == pytest.approx(1 / 3)


@pytest.mark.parametrize("share", [0, 0.1, 0.4, 0.6, 0.9, 1])
def test_components_are_scipys(share: float) -> None:
    over = np.random.default_rng(0).random((3, 12, 7)) < share
    together = maps._components(over)
    for index, one in enumerate(over):
        labels = label(one)[0]
        found = np.zeros(one.shape, dtype=int)
        found[one] = np.unique(together[np.nonzero(over)[0] == index], return_inverse=True)[1] + 1
        np.testing.assert_array_equal(found, labels)


# ---- what breaks the pattern ----------------------------------------------------------------------------------------


def layered(seed: int = 0) -> xr.DataArray:
    """Layers at levels that rise slowly, heads spread around them."""
    rng = np.random.default_rng(seed)
    return xr.DataArray(np.linspace(0, 1, 20)[:, None] + 0.05 * rng.standard_normal((20, 12)), dims=("layer", "head"))


def test_a_planted_head_is_the_only_outlier() -> None:
    values = layered()
    values[7, 3] = 3.0
    (found,) = maps.outliers(values)
    around = values.values[6:9].ravel()
    assert (found.head.name, found.head.value) == ("L7H3", 3.0)
    assert found.around == pytest.approx(np.median(around))
    assert found.distance == pytest.approx((3.0 - found.around) / (1.4826 * np.median(abs(around - found.around))))
    values[12, 5] = -9.0
    assert [one.head.name for one in maps.outliers(values)] == ["L12H5", "L7H3"]


def test_normal_values_have_no_outliers() -> None:
    """A head beyond 6 standard deviations is expected once in 500 million."""
    assert sum(len(maps.outliers(layered(seed))) for seed in range(20)) == 0


def test_a_planted_layer_breaks_and_a_single_head_does_not() -> None:
    values = layered()
    values[7, 3] = 50.0
    assert maps.breaks(values) == []
    values[0] += 2.0
    (found,) = maps.breaks(values)
    assert found.layer == 0 and found.level == pytest.approx(np.median(values.values[0]))
    assert found.around == pytest.approx(np.median(np.median(values.values[1:3], axis=1)))


@pytest.mark.parametrize("values", [np.zeros((9, 4)), np.ones((2, 2)), np.full((9, 9), np.nan)])
def test_without_a_pattern_nothing_breaks_it(values: np.ndarray) -> None:
    array = xr.DataArray(values, dims=("layer", "head"))
    assert maps.outliers(array) == [] and maps.breaks(array) == []
