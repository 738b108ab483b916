"""Probabilities against what happened; coverage and level are in `test_calibration`."""

import numpy as np
import pytest

from headwise.core.errors import DataError
from headwise.stats import reliability
from headwise.stats.intervals import t_half_width


def test_the_curve_is_that_of_the_bins():
    p = np.repeat([0.1, 0.5, 0.9], 40)
    wrong = np.tile(np.arange(40) < 20, 3)  # half are wrong, whatever is said
    found = reliability(p, wrong, bins=3)
    assert found.predicted == pytest.approx([0.1, 0.5, 0.9]) and found.observed == pytest.approx([0.5, 0.5, 0.5])
    assert list(found.size) == [40, 40, 40]
    assert found.ece == pytest.approx((0.4 + 0 + 0.4) / 3)
    assert found.brier == pytest.approx(np.mean((p - wrong) ** 2)) and found.brier_base == 0.25
    assert found.mean_gap == pytest.approx(0.0)
    assert (found.low < found.observed).all() and (found.observed < found.high).all()


def test_without_groups_the_interval_is_student_s():
    random = np.random.default_rng(0)
    p, wrong = random.random(100), random.random(100) < 0.4
    found = reliability(p, wrong)
    half = float(t_half_width((p - wrong) ** 2))
    assert (found.brier_high - found.brier_low) / 2 == pytest.approx(half)
    each = reliability(p, wrong, groups=np.arange(100))
    assert each.brier_low == pytest.approx(found.brier_low)  # each answer a group of its own


def test_answers_to_one_question_count_once():
    random = np.random.default_rng(1)
    p, wrong = np.repeat(random.random(60), 4), np.repeat(random.random(60) < 0.4, 4)
    alone = reliability(p, wrong)
    grouped = reliability(p, wrong, groups=np.repeat(np.arange(60), 4))
    assert grouped.ece == alone.ece
    for low, high in (("ece_low", "ece_high"), ("brier_low", "brier_high"), ("mean_gap_low", "mean_gap_high")):
        widths = [getattr(one, high) - getattr(one, low) for one in (grouped, alone)]
        assert widths[0] > 1.4 * widths[1], low
    assert grouped.ece_null > 1.4 * alone.ece_null


def test_equal_probabilities_stay_in_one_bin():
    found = reliability(np.full(200, 0.3), np.arange(200) < 60)
    assert list(found.size) == [200] and found.ece == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("n", "bins"), [(20, 1), (45, 2), (199, 9), (1000, 10)])
def test_a_bin_has_at_least_twenty_answers(n, bins):
    found = reliability(np.random.default_rng(n).random(n), np.arange(n) % 2 == 0)
    assert len(found.size) == bins and found.size.min() >= 20 and found.size.sum() == n


def test_all_answers_may_be_correct():
    found = reliability(np.full(50, 0.1), np.zeros(50, bool))
    assert found.brier == pytest.approx(0.01) and found.ece == pytest.approx(0.1) and found.mean_gap < 0


def test_the_draws_are_seeded():
    p, wrong = np.linspace(0, 1, 100), np.arange(100) % 3 == 0
    assert reliability(p, wrong).ece_low == reliability(p, wrong).ece_low
    assert reliability(p, wrong).ece_null != reliability(p, wrong, seed=1).ece_null


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (np.full(19, 0.5), "at least 20 answers"),
        (np.r_[np.full(20, 0.5), np.nan], "between 0 and 1; leave out answers without one"),
        (np.full(30, 1.5), "between 0 and 1"),
        (np.full((30, 1), 0.5), "shape"),
    ],
)
def test_what_is_no_probability_is_refused(p, words):
    with pytest.raises(DataError, match=words):
        reliability(p, np.zeros(len(p), bool))
