"""Smallest effects: by simulation and by formula."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from headwise.core.errors import DataError
from headwise.stats import (
    mann_whitney_maps,
    minimum_detectable_auroc,
    minimum_detectable_gain,
    minimum_detectable_share,
    van_elteren_maps,
)


@pytest.mark.parametrize(("n_wrong", "n_right", "tests"), [(60, 40, 1), (120, 200, 50)])
def test_an_effect_of_that_size_is_found_in_four_cases_of_five(n_wrong, n_right, tests):
    random, area = np.random.default_rng(0), minimum_detectable_auroc(n_wrong, n_right, tests=tests)
    wrong = np.arange(n_wrong + n_right) < n_wrong
    values = random.standard_normal((len(wrong), 1500)) + np.sqrt(2) * norm.ppf(area) * wrong[:, None]
    found = np.mean(mann_whitney_maps(values, wrong).p.values < 0.05 / tests)
    assert found == pytest.approx(0.8, abs=0.04)  # Monte-Carlo error .01, and the variance is an approximation


def test_within_strata_more_is_needed_and_that_is_found_in_four_cases_of_five():
    random = np.random.default_rng(1)
    n_wrong, n_right = random.integers(0, 8, 50), random.integers(0, 5, 50)
    area = minimum_detectable_auroc(n_wrong, n_right, tests=20)
    assert area > minimum_detectable_auroc(n_wrong.sum(), n_right.sum(), tests=20)
    strata = np.repeat(np.arange(50), n_wrong + n_right)
    wrong = np.concatenate([np.arange(w + r) < w for w, r in zip(n_wrong, n_right, strict=True)])
    values = random.standard_normal((len(wrong), 1500)) + np.sqrt(2) * norm.ppf(area) * wrong[:, None] + strata[:, None]
    found = np.mean(van_elteren_maps(values, wrong, strata).p.values < 0.05 / 20)
    assert found == pytest.approx(0.8, abs=0.04)


def test_more_answers_see_smaller_effects_and_few_see_none():
    sizes = [minimum_detectable_auroc(n, n, tests=100) for n in (30, 100, 1000, 10000)]
    assert sizes == sorted(sizes, reverse=True) and 0.5 < sizes[-1] < 0.53
    assert np.isnan(minimum_detectable_auroc(2, 2, tests=100))
    assert np.isnan(minimum_detectable_auroc([3, 0], [0, 3]))  # no stratum with both classes
    with pytest.raises(DataError, match="same strata"):
        minimum_detectable_auroc([1, 2], [3])


def test_gain_is_two_quantiles_of_the_normal_distribution():
    assert minimum_detectable_gain(1.0) == pytest.approx(1.959964 + 0.841621, abs=1e-5)
    assert minimum_detectable_gain(0.01, power=0.5, tests=10) == pytest.approx(0.01 * norm.isf(0.0025))


def test_share_is_found_in_four_cases_of_five():
    n, chance = 400, 0.2
    share = minimum_detectable_share(n, chance)
    critical = np.ceil(n * (chance + 1.96 * np.sqrt(chance * (1 - chance) / n)))
    assert binom.sf(critical - 1, n, share) == pytest.approx(0.8, abs=0.03)
    assert np.isnan(minimum_detectable_share(3, 0.9))
    with pytest.raises(DataError, match="between 0 and 1"):
        minimum_detectable_share(10, 1.0)
