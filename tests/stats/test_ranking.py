"""Friedman's and Nemenyi's tests against published and scipy's values; their level is in `test_calibration`."""

import numpy as np
import pytest
import scipy

from headwise.core.errors import DataError
from headwise.stats import friedman_nemenyi

VALUES = np.array([
    [0.90, 0.80, 0.80, 0.50], [0.70, 0.90, 0.60, 0.50], [0.95, 0.85, 0.75, 0.65],
    [0.60, 0.50, 0.40, 0.45], [0.80, 0.70, 0.75, 0.60], [0.99, 0.98, 0.90, 0.90],
])  # fmt: skip
NEMENYI = {3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}  # Demšar (2006), table 5a


@pytest.mark.parametrize("methods", NEMENYI)
def test_the_critical_difference_is_that_of_the_published_table(methods):
    values = np.random.default_rng(0).normal(size=(14, methods))
    expected = NEMENYI[methods] * np.sqrt(methods * (methods + 1) / (6 * 14))
    assert friedman_nemenyi(values).critical_difference == pytest.approx(expected, rel=5e-4)
    if methods == 4:  # the paper's example: 2.291 sqrt(4 5 / (6 14)) = 1.12
        assert friedman_nemenyi(values, level=0.1).critical_difference == pytest.approx(1.12, abs=0.005)


def test_ranks_and_the_corrected_p_by_hand():
    """Ranks 1 2.5 2.5 4, 2 1 3 4, 1 2 3 4, 1 2 4 3, 1 3 2 4, 1 2 3.5 3.5."""
    found = friedman_nemenyi(VALUES)
    assert found.mean_rank == pytest.approx(np.array([7, 12.5, 18, 22.5]) / 6)
    # Friedman's 12 Σ R² / (N k (k + 1)) - 3 N (k + 1), over 1 - Σ (t³ - t) / (N k (k² - 1)) for two pairs of equal values
    chi2 = (12 * (7**2 + 12.5**2 + 18**2 + 22.5**2) / (6 * 4 * 5) - 3 * 6 * 5) / (1 - 12 / (6 * 4 * 15))
    assert found.p == pytest.approx(scipy.stats.f.sf(5 * chi2 / (6 * 3 - chi2), 3, 15))
    half = scipy.stats.t.ppf(0.975, 5) * np.std([1, 2, 1, 1, 1, 1], ddof=1) / np.sqrt(6)
    assert found.high[0] == pytest.approx(7 / 6 + half) and found.low[0] == 1


def test_pairs_differ_where_the_difference_is_critical():
    found = friedman_nemenyi(VALUES)
    apart = np.abs(found.mean_rank[:, None] - found.mean_rank)
    assert ((found.pairwise_p < 0.05) == (apart > found.critical_difference)).all()
    assert found.pairwise_p == pytest.approx(found.pairwise_p.T) and (np.diag(found.pairwise_p) == pytest.approx(1.0))


def test_agreement_and_its_absence():
    agreed = friedman_nemenyi(np.tile([3.0, 2.0, 1.0], (4, 1)))
    assert agreed.p == pytest.approx(1 / 6**3) and list(agreed.mean_rank) == [1, 2, 3]
    assert friedman_nemenyi(np.ones((4, 3))).p == 1.0
    smaller = friedman_nemenyi(np.tile([3.0, 2.0, 1.0], (4, 1)), larger_is_better=False)
    assert list(smaller.mean_rank) == [3, 2, 1]
    assert (agreed.low >= 1).all() and (agreed.high <= 3).all()


@pytest.mark.parametrize(
    "values", [np.ones((1, 4)), np.ones((4, 2)), np.array([[1, 2, np.nan], [1, 2, 3]]), np.ones(4)]
)
def test_too_few_are_refused(values):
    with pytest.raises(DataError, match="at least two data sets and three methods"):
        friedman_nemenyi(values)
