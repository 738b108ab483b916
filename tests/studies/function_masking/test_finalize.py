"""Differences with intervals, against the plain formulas."""

import numpy as np
import pytest
from scipy import stats

from headwise.stats import rank_p, wilson_interval
from headwise.studies.function_masking.finalize import (
    _pooled,
    _pooled_rank_p,
    gap,
    mean_over,
    over_draws,
    share,
)


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


def test_draws_of_several_functions_vary_around_their_own_means():
    """F functions of D draws have F (D - 1) degrees of freedom: with equal steps, the pooled variance is divided by these."""
    rng, functions, draws, steps = np.random.default_rng(1), 4, 6, 30
    every = [(rng.random(steps) < 0.3, rng.random((draws, steps)) < 0.2 + 0.2 * place) for place in range(functions)]
    value, low, high = _pooled([[pair] for pair in every])
    gaps = [random.astype(float) - own for own, random in every]
    of_steps = np.concatenate([each.mean(axis=0) for each in gaps])
    centred = np.concatenate([each.mean(axis=1) - each.mean() for each in gaps])
    within = (centred**2).sum() / (functions * (draws - 1))  # not functions * draws - 1
    error = of_steps.var(ddof=1) / len(of_steps) + within / (functions * draws)
    assert value == pytest.approx(of_steps.mean())
    freedom_low, freedom_high = draws - 1, len(of_steps) + functions * draws
    half = (high - low) / 2
    assert stats.t.ppf(0.975, freedom_high) * np.sqrt(error) < half < stats.t.ppf(0.975, freedom_low) * np.sqrt(error)
    shares = [of_steps.var(ddof=1) / len(of_steps), *(each.mean(axis=1).var(ddof=1) / 16 / draws for each in gaps)]
    freedom = sum(shares) ** 2 / (
        shares[0] ** 2 / (len(of_steps) - 1) + sum(one**2 for one in shares[1:]) / (draws - 1)
    )
    assert half == pytest.approx(stats.t.ppf(0.975, freedom) * np.sqrt(error))


def test_a_rank_counts_controls_that_cost_at_least_as_much():
    assert rank_p(0.5, np.array([0.9, 0.5, 0.4])) == pytest.approx(3 / 4)
    assert rank_p(0.1, np.full(20, 0.9)) == pytest.approx(1 / 21)
    assert np.isnan(rank_p(float("nan"), np.ones(3))) and np.isnan(rank_p(0.5, np.zeros(0)))


def test_ranks_are_uniform_where_the_own_set_is_like_its_controls():
    """2,000 simulated functions: P(p < .05) with 20 controls is at most 1 / 21, and ties make it smaller."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        easy = rng.beta(2, 1, size=30)  # of the steps
        sets = rng.random((21, 30)) < easy * rng.uniform(0.6, 1.0, size=(21, 1))
        hits += rank_p(sets[0].mean(), sets[1:].mean(axis=1)) < 0.05
    assert hits / 2000 <= 1 / 21 + 3 * np.sqrt(0.048 * 0.952 / 2000)


def test_functions_together_are_ranked_by_the_mean_over_them():
    own, others = np.zeros(10, bool), np.ones((20, 10), bool)
    assert _pooled_rank_p([[(own, others)], [(own, others)]]) == pytest.approx(1 / 21)
    assert _pooled_rank_p([[(own, others)], [(~own, ~others)]]) == pytest.approx(1.0)  # one gains what the other loses
    assert np.isnan(_pooled_rank_p([[(own[:0], others)]]))
