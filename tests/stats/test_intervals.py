"""Intervals against scipy's, one value at a time."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headwise.stats import mean_interval, sum_of_means_half_width, t_half_width, wilson_interval


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95]))
@settings(max_examples=60, deadline=None)
def test_wilson_is_scipys(counts, level):
    k, n = counts
    expected = stats.binomtest(k, n).proportion_ci(level, method="wilson")
    assert wilson_interval(k / n, n, level=level) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_of_many_shares_is_that_of_each():
    shares, sizes = np.array([[0.0, 0.5], [np.nan, 1.0]]), np.array([10, 40])
    low, high = wilson_interval(shares, sizes)
    assert np.isnan(low[1, 0]) and np.isnan(high[1, 0])
    assert (low[0, 1], high[0, 1]) == wilson_interval(0.5, 40)
    assert (low[0, 0], high[1, 1]) == (0.0, 1.0)


@given(st.integers(0, 10_000), st.integers(2, 40), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=40, deadline=None)
def test_t_interval_is_scipys(seed, n, dtype):
    values = np.random.default_rng(seed).normal(3, 2, (n, 2, 3)).astype(dtype)
    half = t_half_width(values)
    exact = values.astype(np.float64)
    low, high = stats.t.interval(0.95, n - 1, exact.mean(axis=0), stats.sem(exact, axis=0))
    assert half == pytest.approx((high - low) / 2, rel=1e-9)
    assert t_half_width(np.moveaxis(values, 0, -1), axis=-1) == pytest.approx(half, rel=1e-12)


def test_t_interval_leaves_out_nan_and_needs_two_values():
    values = np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan], [8.0, np.nan, np.nan], [np.nan, np.nan, np.nan]])
    half = t_half_width(values)
    assert half[0] == pytest.approx(stats.t.isf(0.025, 2) * stats.sem([1.0, 3.0, 8.0]))
    assert np.isnan(half[1:]).all()
    found = mean_interval(xr.DataArray(values, dims=("example", "head")), "example")
    assert (found["high"] - found["mean"]).values == pytest.approx(half, nan_ok=True)


def test_one_value_has_a_mean_and_no_interval():
    found = mean_interval(xr.DataArray([[1.0], [np.nan]], dims=("head", "example")), "example")
    np.testing.assert_array_equal(found["mean"], [1.0, np.nan])
    assert np.isnan(found["low"]).all()


def test_of_one_sample_a_sum_of_means_has_students_interval():
    sample = np.random.default_rng(0).normal(size=12)
    assert sum_of_means_half_width([sample]) == pytest.approx(float(t_half_width(sample)))
    assert sum_of_means_half_width([np.ones(5), np.ones(3)]) == 0


def test_of_two_samples_a_sum_of_means_has_welchs_interval():
    one, other = np.random.default_rng(1).normal(size=9), np.random.default_rng(2).normal(size=30) * 3
    low, high = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    assert sum_of_means_half_width([one, other]) == pytest.approx((high - low) / 2)
