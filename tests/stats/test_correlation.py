"""Pearson over heads, against numpy; and an interval that knows when one head carries everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headwise.stats import correlation, correlation_table, rank_vectors, spearman


def test_the_value_is_numpys():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(30, 9))
    b = 0.5 * a + rng.normal(size=(30, 9))
    assert correlation(a, b).value == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1], abs=1e-10)
    shifted = correlation(a + 1e4, b - 1e4)
    assert shifted.value == pytest.approx(correlation(a, b).value, abs=1e-9)


def test_cells_that_are_not_known_are_left_out():
    a, b = np.arange(6.0), np.array([0.0, 2.0, 1.0, 5.0, 4.0, 9.0])
    expected = correlation(a, b)
    assert correlation(np.append(a, [np.nan, 3]), np.append(b, [1, np.nan])).value == expected.value


@pytest.mark.parametrize("a", [[1, 1, 1, 1], [0.1, 0.1, 0.1, 0.1], [np.nan] * 4])
def test_a_map_that_is_the_same_everywhere_has_no_correlation(a):
    assert np.isnan(correlation(a, [1, 2, 3, 4])).all()


def test_the_interval_is_that_of_plain_resampling():
    rng = np.random.default_rng(1)
    a = rng.normal(size=80)
    b = a + rng.normal(size=80)
    found = correlation(a, b, draws=4000, seed=0)
    drawn = []
    for _ in range(4000):
        rows = rng.integers(0, 80, 80)
        drawn.append(np.corrcoef(a[rows], b[rows])[0, 1])
    np.testing.assert_allclose([found.low, found.high], np.percentile(drawn, [2.5, 97.5]), atol=0.02)


def test_the_interval_covers_what_is_true():
    rng, inside = np.random.default_rng(2), 0
    for turn in range(200):
        a = rng.normal(size=100)
        b = 0.6 * a + 0.8 * rng.normal(size=100)  # a correlation of 0.6
        found = correlation(a, b, draws=300, seed=turn)
        inside += found.low <= 0.6 <= found.high
    assert 0.88 <= inside / 200 <= 0.99


def test_one_head_that_carries_all_leaves_a_wide_interval():
    rng = np.random.default_rng(0)
    a, b = np.zeros(270), rng.random(270) * 0.01
    a[:5], a[7], b[7] = 0.01, 1.0, 1.0
    found = correlation(a, b)
    assert found.value > 0.99 and found.low < 0.5


def test_it_is_the_same_each_time():
    a, b = np.random.default_rng(0).normal(size=(2, 50))
    assert correlation(a, b, seed=3) == correlation(a, b, seed=3) != correlation(a, b, seed=4)


def test_the_table_holds_every_pair():
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(3, 40)), rng.normal(size=(2, 40))
    columns[1] = 7.0
    rows[2, 5] = np.nan
    table = correlation_table(rows, columns)
    assert table.shape == (3, 2) and np.isnan(table[:, 1]).all()
    for i in range(3):
        assert table[i, 0] == pytest.approx(correlation(rows[i], columns[0]).value, abs=1e-9)


@given(st.integers(0, 10_000), st.integers(3, 40), st.integers(2, 30))
@settings(max_examples=40, deadline=None)
def test_spearman_is_pearsons_of_mean_ranks_and_leaves_out_nan(seed, size, levels):
    random = np.random.default_rng(seed)
    a, b = random.integers(0, levels, (2, size)) / 7
    gap = np.r_[a, np.nan, 1.0], np.r_[b, 0.3, np.inf]
    vectors = rank_vectors([a, b])
    if np.ptp(a) and np.ptp(b):
        assert spearman(*gap) == pytest.approx(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1], abs=1e-11)
        assert vectors[0] @ vectors[1] == pytest.approx(spearman(a, b), abs=1e-11)
    else:
        assert np.isnan(spearman(*gap)) and vectors[0] @ vectors[1] == 0


def test_spearman_of_two_pairs_is_unknown():
    assert np.isnan(spearman([1.0, 2.0, np.nan], [1.0, 2.0, 3.0]))
