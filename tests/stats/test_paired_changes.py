"""Paired changes: against scipy cell by cell, and against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from headwise.stats import paired_changes, share_change
from headwise.stats.paired_shares import sign_test
from headwise.stats.rank_tests import MIN_PAIRS


def arrays(values: np.ndarray, *dims: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Two arrays that differ by these values."""
    before = xr.DataArray(np.random.default_rng(9).normal(size=values.shape), dims=("example", *dims))
    return before, before + values


@pytest.mark.parametrize("examples", [6, 12, 32, 50, 51, 80])
def test_p_is_scipys(examples: int) -> None:
    generator = np.random.default_rng(examples)
    values = generator.normal(0.3, 1.0, (examples, 40))
    if examples > 13:  # with fewer and ties, scipy goes through all signs
        values[:, 10:20] = np.rint(values[:, 10:20] * 2)  # ties, and examples that do not change
    values[:, 20:25] *= values[:, 20:25] > 0.2
    after = xr.DataArray(values, dims=("example", "head"))
    found = paired_changes(xr.zeros_like(after), after)
    for cell, column in enumerate(values.T):
        moved = column[column != 0]
        expected = stats.wilcoxon(moved).pvalue if len(moved) else 1.0
        assert float(found["p"][cell]) == pytest.approx(expected, rel=1e-9), cell


def test_change_is_the_mean_with_students_interval() -> None:
    values = np.random.default_rng(0).normal(1.0, 0.5, (20, 3))
    before, after = arrays(values, "head")
    found = paired_changes(before, after)
    for cell in range(3):
        low, high = stats.t.interval(0.95, 19, values[:, cell].mean(), stats.sem(values[:, cell]))
        assert float(found["change"][cell]) == pytest.approx(values[:, cell].mean())
        assert [float(found["low"][cell]), float(found["high"][cell])] == pytest.approx([low, high])


def test_nothing_changed_is_tested_and_found_equal() -> None:
    before, after = arrays(np.zeros((10, 4)), "head")
    found = paired_changes(before, after + 1e-9)
    assert (found["change"] == 0).all() and (found["p"] == 1).all() and (found["q"] == 1).all()


def test_q_is_over_the_heads_of_each_statistic() -> None:
    values = np.random.default_rng(1).normal(0, 1, (30, 2, 8))
    values[:, 0, 0] += 3
    before, after = arrays(values, "statistic", "head")
    found = paired_changes(before, after)
    for row in range(2):
        np.testing.assert_allclose(found["q"][row], stats.false_discovery_control(found["p"][row].values), rtol=1e-9)


def test_missing_examples_are_left_out_of_their_cell() -> None:
    values = np.random.default_rng(2).normal(1, 1, (12, 3))
    values[:2, 0] = np.nan
    values[MIN_PAIRS - 1 :, 1] = np.nan
    values[:, 2] = np.nan
    before, after = arrays(values, "head")
    found = paired_changes(before, after)
    assert float(found["p"][0]) == pytest.approx(stats.wilcoxon(values[2:, 0]).pvalue)
    assert np.isnan(found["p"][1:]).all() and np.isnan(found["change"][1:]).all()


def test_dims_in_another_order_are_the_same_cells() -> None:
    before, after = arrays(np.random.default_rng(3).normal(0, 1, (9, 2, 3)), "layer", "head")
    one, other = paired_changes(before, after), paired_changes(before, after.transpose("head", "example", "layer"))
    xr.testing.assert_identical(one, other)


def test_the_sign_test_is_mcnemars_and_that_of_a_share_with_one_control() -> None:
    gained, lost = np.array([[0, 6], [3, 1]]), np.array([[0, 0], [2, 9]])
    assert sign_test(gained, lost)[0, 0] == 1
    for up, down in ((6, 0), (3, 2), (1, 9)):
        assert sign_test(up, down) == pytest.approx(stats.binomtest(up, up + down).pvalue)
    generator = np.random.default_rng(3)
    own, control = generator.random(60) < 0.7, generator.random(60) < 0.4
    again = np.stack([control, control], axis=1)  # one control twice goes through Poisson's binomial
    assert share_change(own, control).p == pytest.approx(sign_test((own & ~control).sum(), (control & ~own).sum()))
    assert share_change(own, again).value == pytest.approx(share_change(own, control).value)
