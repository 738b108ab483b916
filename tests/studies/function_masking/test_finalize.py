"""Differences with intervals, against the plain formulas."""

import numpy as np
import pytest
from scipy import stats

from headwise.stats import wilson_interval
from headwise.studies.function_masking.finalize import gap, mean_over, over_draws, share


def test_a_gap_is_the_mean_difference_with_both_errors():
    rng = np.random.default_rng(0)
    own, random = rng.random(12) < 0.3, rng.random((5, 12)) < 0.8
    value, low, high = gap(own, random)
    differences = random.astype(float) - own
    assert value == pytest.approx(random.mean() - own.mean())
    steps, draws = differences.mean(axis=0), differences.mean(axis=1)
    parts = [steps.var(ddof=1) / 12, draws.var(ddof=1) / 5]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 11 + parts[1] ** 2 / 4)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts))
    assert (low, high) == pytest.approx((value - half, value + half))


def test_where_nothing_varies_the_interval_is_not_nothing():
    value, low, high = gap(np.zeros(6, bool), np.ones((3, 6), bool))
    reach = float(wilson_interval(0.0, 6)[1])
    assert (value, low, high) == pytest.approx((1.0, 1 - reach, 1.0))
    assert mean_over(0.5, [])[1] < 0.5


def test_shares_and_means_over_draws():
    right = np.array([True, False, True, True])
    assert share(right)[0] == 0.75 and share(right)[1] == pytest.approx(float(wilson_interval(0.75, 4)[0]))
    draws = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=bool)
    value, low, high = over_draws(draws)
    half = stats.t.ppf(0.975, 2) * 0.25 / np.sqrt(3)
    assert (value, low, high) == pytest.approx((0.75, 0.75 - half, min(1.0, 0.75 + half)))
    assert all(np.isnan(part) for part in (*share(np.zeros(0)), *over_draws(np.zeros((0, 0))), *gap(right, draws[:0])))
