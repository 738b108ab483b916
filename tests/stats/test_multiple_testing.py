import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from headwise.core.errors import StudyError
from headwise.stats import benjamini_hochberg, combine_ranks
from headwise.stats.multiple_testing import cauchy_p, min_p

P = stn.arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1) | st.just(float("nan")))


@given(P)
@settings(deadline=None)
def test_bh_is_monotone_and_never_below_p(p):
    q = benjamini_hochberg(p)
    assert (np.isnan(q) == np.isnan(p)).all()
    tested = ~np.isnan(p)
    assert (q[tested] >= p[tested] - 1e-15).all()
    assert (q[tested] <= 1).all()
    order = np.argsort(p[tested])
    assert (np.diff(q[tested][order]) >= 0).all()


def test_bh_by_hand():
    """m p / rank, made monotone from the largest down; NaN does not count among the m."""
    p = np.array([0.01, 0.02, 0.03, 0.5, np.nan])
    assert benjamini_hochberg(p)[:4] == pytest.approx([0.04, 0.04, 0.04, 0.5])
    assert np.isnan(benjamini_hochberg([np.nan, np.nan])).all()


@pytest.mark.parametrize("combine", [cauchy_p, min_p])
def test_size_under_the_null(combine):
    """Independent p-values: both hold 5 %. Alike ones: Cauchy still does, Šidák is careful."""
    random = np.random.default_rng(0)
    assert np.mean(combine(random.random((20_000, 10))) < 0.05) == pytest.approx(0.05, abs=0.008)
    alike = np.repeat(random.random((20_000, 1)), 10, axis=1)
    assert np.mean(combine(alike) < 0.05) <= 0.055


def test_cauchy_returns_equal_p_and_survives_extremes():
    assert cauchy_p([0.2] * 7) == pytest.approx(0.2)
    assert cauchy_p([1e-40, 0.5]) == pytest.approx(2e-40)
    assert cauchy_p([1e-20, 1.0]) == pytest.approx(2e-20)
    assert 0 <= cauchy_p([0.0, 0.7]) < 1e-200
    assert cauchy_p([1.0, 1.0]) == pytest.approx(0.99)
    assert cauchy_p([0.03, np.nan, 0.03]) == pytest.approx(0.03)
    assert np.isnan(cauchy_p([np.nan, np.nan]))


def test_one_p_of_one_does_not_drown_the_others():
    assert cauchy_p([1e-6, 1.0]) == pytest.approx(2e-6, rel=1e-3)


def test_min_p():
    assert min_p([0.01, 0.5, np.nan]) == pytest.approx(1 - 0.99**2)
    assert min_p([1e-30, 0.5]) == pytest.approx(2e-30)
    assert min_p([1.0, 1.0]) == 1
    assert np.isnan(min_p([np.nan]))


def test_unknown_way_to_combine():
    with pytest.raises(StudyError, match="Did you mean 'cauchy'"):
        combine_ranks(xr.DataArray([0.5], dims="rank"), "cauchi")
