import numpy as np
import pytest
import xarray as xr

from headwise.core.errors import StudyError
from headwise.stats import mann_whitney_maps, permutation_null, shuffle_test
from headwise.stats.permutation import permuted_labels, permuted_rows


def test_on_noise_the_share_is_five_percent():
    random = np.random.default_rng(0)
    labels = random.random(200) < 0.4
    found = permutation_null(random.standard_normal((200, 500)), labels, shuffles=300)
    assert found.null_mean.item() == pytest.approx(0.05, abs=0.006)
    assert found.observed.item() == pytest.approx(0.05, abs=0.03)
    assert found.p.item() > 0.05
    assert found.null_95.item() < 0.1


def test_heads_that_are_alike_widen_the_null():
    """Five hundred copies of one head: the share is nearly 0 or nearly 1, and a share of 1 is no wonder."""
    random = np.random.default_rng(1)
    labels = random.random(200) < 0.4
    alike = random.standard_normal((200, 1)) + 0.2 * random.standard_normal((200, 500))
    found = permutation_null(alike, labels, shuffles=400)
    assert found.null_mean.item() == pytest.approx(0.05, abs=0.03)
    assert found.null_95.item() > 0.15


def test_planted_heads_stand_out(planted):
    data = planted(0)
    found = permutation_null(data.values, data.labels, shuffles=200)
    assert found.p.item() == pytest.approx(1 / 201)
    assert found.observed.item() > 9 / 96
    assert set(found.dims) == set()


def test_observed_share_is_that_of_the_test_itself():
    """With ties, with NaN, with a constant: the same p as scipy's, so the same share."""
    random = np.random.default_rng(2)
    labels = random.random(150) < 0.5
    values = np.round(random.standard_normal((150, 300)) + 0.3 * labels[:, None], 0)
    values[random.random(values.shape) < 0.05] = np.nan
    values[:, 0], values[:, 1] = 1.0, np.nan
    p = mann_whitney_maps(values, labels).p.values
    found = permutation_null(values, labels, shuffles=200)
    assert found.observed.item() == pytest.approx(np.mean(p[~np.isnan(p)] < 0.05))


def test_each_map_has_its_own_null(planted):
    strong, weak = planted(0), planted(1, shift=0.0)
    both = xr.DataArray(
        np.stack([strong.values, weak.values], axis=1), dims=("example", "feature", "layer", "head"),
        coords={"feature": ["laplacian", "noise"]},
    )  # fmt: skip
    found = permutation_null(both, strong.labels, shuffles=200)
    assert found.p.dims == ("feature",)
    assert found.p.sel(feature="laplacian") < 0.01 < found.p.sel(feature="noise")


def test_shuffling_within_strata_removes_what_the_strata_explain():
    """Values follow the topic, and so do the labels: significant at large, not within topics."""
    random = np.random.default_rng(3)
    topic = np.arange(300) % 2
    labels = random.random(300) < np.where(topic == 1, 0.8, 0.2)
    values = random.standard_normal((300, 40)) + topic[:, None]
    assert permutation_null(values, labels, shuffles=200).p.item() < 0.01
    assert permutation_null(values, labels, shuffles=200, within=topic).p.item() > 0.05


def test_same_seed_same_numbers_and_few_shuffles_are_refused():
    random = np.random.default_rng(4)
    labels, values = random.random(100) < 0.5, random.standard_normal((100, 20))
    first, second = (permutation_null(values, labels, shuffles=200, seed=7) for _ in range(2))
    assert first.identical(second)
    with pytest.raises(StudyError, match="at least 200"):
        permutation_null(values, labels, shuffles=50)


def test_rows_are_permuted_within_their_stratum_alone():
    strata = np.random.default_rng(0).integers(0, 4, 50)
    order = permuted_rows(strata, np.random.default_rng(1))
    assert sorted(order) == list(range(50)) and (strata[order] == strata).all() and (order != np.arange(50)).any()
    labels = np.random.default_rng(2).random(50) < 0.3
    sets = permuted_labels(labels, strata, sets=20, seed=3)
    for stratum in range(4):
        assert (sets[:, strata == stratum].sum(axis=1) == labels[strata == stratum].sum()).all()
    assert len(np.unique(sets, axis=0)) > 15
    assert permuted_labels(labels, strata, sets=0).shape == (0, 50)


@pytest.mark.parametrize("two_sided", [False, True])
def test_each_value_is_standardised_by_the_other_shuffles_of_its_cell(two_sided):
    random = np.random.default_rng(0)
    null = random.normal(2, [[1.0, 5.0, 0.1], [2.0, 1.0, 3.0]], (8, 2, 3))  # (shuffle, map, cell)
    seen = np.array([[2.5, -9.0, 2.3], [2.0, np.nan, 1.5]])
    found = shuffle_test(seen, null, two_sided=two_sided)

    def far(value, others):
        z = (value - others.mean()) / others.std(ddof=1)
        return abs(z) if two_sided else z

    for row in range(2):
        cells = [cell for cell in range(3) if np.isfinite(seen[row, cell])]
        pool = np.array([far(null[s, row, c], np.delete(null[:, row, c], s)) for s in range(8) for c in cells])
        for cell in cells:
            count = (pool >= far(seen[row, cell], null[:, row, cell])).sum()
            assert found.p[row, cell] == pytest.approx((1 + count) / (1 + len(pool)))
    assert np.isnan(found.p[1, 1]) and np.isnan(found.q[1, 1]) and np.isfinite(found.map_p).all()
    assert (found.q >= found.map_p[:, None])[np.isfinite(found.q)].all()


def test_the_map_is_ranked_among_its_shuffles_each_in_the_place_of_the_observed_one():
    random = np.random.default_rng(3)
    for _ in range(5):
        units = random.normal(size=(12, 6)) * np.exp(random.normal(size=(12, 1)))  # (unit, cell)
        smallest = []
        for unit in range(12):
            others = np.delete(units, unit, axis=0)
            rows = [np.delete(units, other, axis=0) for other in range(12)]
            z = np.array([(own - row.mean(0)) / row.std(0, ddof=1) for own, row in zip(units, rows, strict=True)])
            p = [(1 + (np.delete(z, unit, axis=0) >= value).sum()) / (1 + others.size) for value in z[unit]]
            smallest.append((np.sort(p) * 6 / np.arange(1, 7)).min())  # Benjamini-Hochberg, without the cap at 1
        rank = (np.array(smallest) <= smallest[0] + 1e-12).mean()
        found = shuffle_test(units[0], units[1:])
        assert found.map_p == pytest.approx(rank)


def test_few_shuffles_support_no_small_q_however_large_the_effect():
    null = np.random.default_rng(0).normal(size=(100, 30))
    for shuffles, lowest in ((10, 1 / 11), (20, 1 / 21), (100, 1 / 101)):
        found = shuffle_test(np.full(30, 50.0), null[:shuffles])
        assert found.q == pytest.approx(np.full(30, lowest)) and found.map_p == pytest.approx(lowest)
    assert np.isnan(shuffle_test(np.full(30, 50.0), null[:2]).q).all()
    with pytest.raises(StudyError, match="one more axis"):
        shuffle_test(np.zeros(30), null.T)


def test_a_planted_cell_is_found_and_the_others_are_not():
    random = np.random.default_rng(1)
    seen, null = random.normal(size=200), random.normal(size=(50, 200))
    seen[:3] = 9.0
    found = shuffle_test(seen, null)
    assert (found.q < 0.05).tolist() == [True] * 3 + [False] * 197
