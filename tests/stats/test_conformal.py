"""Thresholds with a guarantee: exact ranks, ties, refusals; how often they hold is in `test_calibration`."""

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from headwise.core.errors import DataError
from headwise.stats import false_alarm_threshold, risk_threshold


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1, 0.25, 0.3, 0.999])
@pytest.mark.parametrize("n", [9, 19, 99, 137])
def test_the_threshold_is_the_smallest_that_keeps_the_rate(n, rate):
    """By counting: of the n + 1 places of a new score, at most (n + 1) rate lie above, and one step lower more do."""
    scores = np.random.default_rng(n).permutation(n).astype(float)
    found = false_alarm_threshold(scores, rate)
    if n < found.needed:
        assert found.value == math.inf and not found.is_finite
        return
    above = n - found.value  # places above a score among 0 ... n - 1
    assert above <= (n + 1) * rate + 1e-9 < above + 1
    assert found.n == n and found.kind == "false alarms" and found.confidence is None


def test_a_rate_is_taken_as_it_was_typed():
    """0.1 x 30 is not 3.0000000000000004, and (n + 1)(1 - rate) is not rounded up by one."""
    for n in range(9, 400, 10):
        assert false_alarm_threshold(np.arange(n), 0.1).value == n - (n + 1) // 10


def test_the_answers_needed_are_the_fewest_with_a_threshold():
    for rate in (0.3, 0.1, 0.05, 0.01):
        needed = false_alarm_threshold([0.0], rate).needed
        assert false_alarm_threshold(np.arange(needed), rate).is_finite
        assert not false_alarm_threshold(np.arange(needed - 1), rate).is_finite
    for risk in (0.3, 0.1, 0.05):
        needed = risk_threshold([0.0], [False], risk).needed
        assert risk_threshold(np.arange(needed), np.zeros(needed, bool), risk).is_finite
        assert not risk_threshold(np.arange(needed - 1), np.zeros(needed - 1, bool), risk).is_finite


def test_equal_scores_raise_no_alarm_together():
    assert false_alarm_threshold(np.ones(100), 0.1).value == 1.0  # above 1, none is


def test_a_risk_is_certified_by_clopper_and_pearson():
    random = np.random.default_rng(0)
    scores = random.random(2000)
    wrong = random.random(2000) < scores**2
    found = risk_threshold(scores, wrong, 0.1)
    through = scores <= found.value
    bound = binomtest(int(wrong[through].sum()), int(through.sum()), alternative="less")
    assert bound.proportion_ci(0.95).high <= 0.1 < wrong.mean()
    assert found.value**2 / 3 <= 0.1  # the true risk below t is t² / 3
    assert found.kind == "risk" and found.confidence == 0.95 and found.n == 2000


def test_a_laxer_risk_or_less_confidence_lets_more_through():
    random = np.random.default_rng(1)
    scores = random.random(3000)
    wrong = random.random(3000) < scores
    by_risk = [risk_threshold(scores, wrong, risk).value for risk in (0.05, 0.1, 0.2, 0.4)]
    assert by_risk == sorted(by_risk) and len(set(by_risk)) == 4
    assert risk_threshold(scores, wrong, 0.2, 0.8).value >= risk_threshold(scores, wrong, 0.2, 0.99).value


def test_where_nothing_can_be_certified_nothing_is_let_through():
    scores = np.arange(500.0)
    found = risk_threshold(scores, np.ones(500, bool), 0.1)
    assert found.value == -math.inf
    assert found.statement.startswith("No answer is let through: the 500 answers used do not show")
    assert "needs at least" in risk_threshold(scores[:5], np.zeros(5, bool), 0.1).statement


def test_equal_scores_are_let_through_together():
    """Ten wrong answers share the lowest score with ten correct ones: none of them can be let through alone."""
    scores = np.repeat([0.0, 1.0], [20, 200])
    wrong = np.r_[np.ones(10, bool), np.zeros(210, bool)]
    assert risk_threshold(scores, wrong, 0.3).value == 1.0
    assert risk_threshold(scores, wrong, 0.04).value == -math.inf
    order = np.random.default_rng(0).permutation(220)
    assert risk_threshold(scores[order], wrong[order], 0.3).value == 1.0


def test_the_search_ends_at_the_first_threshold_that_fails():
    """Wrong answers below, correct ones above: the risk falls again, but what lies beyond a failure is not tested."""
    wrong = np.r_[np.ones(100, bool), np.zeros(900, bool)]
    assert binom.cdf(100, 999, 0.2) < 0.05  # the most lenient threshold would pass alone
    assert risk_threshold(np.arange(1000), wrong, 0.2).value == -math.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: false_alarm_threshold([], 0.05), "a false-alarm rate of 5 % needs at least 19 correct answers"),
        (lambda: risk_threshold([], [], 0.1), "a risk of 10 % needs at least 30 answers"),
        (lambda: false_alarm_threshold([0.1, math.nan], 0.5), "1 of the 2 scores are NaN"),
        (lambda: false_alarm_threshold([[0.1]], 0.5), r"one per answer, but have the shape \(1, 1\)"),
        (lambda: false_alarm_threshold([0.1], 5), "between 0 and 1, such as 0.1, not 5"),
        (lambda: false_alarm_threshold([0.1], math.nan), "between 0 and 1"),
        (lambda: risk_threshold([0.1], [True], 0.1, 1.0), "A confidence is between 0 and 1"),
        (lambda: risk_threshold([0.1], [True, False], 0.1), "1 answers but 2 labels"),
    ],
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises(DataError, match=words):
        call()


def test_the_statement_says_what_is_promised():
    assert "at most 10 %" in false_alarm_threshold(np.arange(50), 0.1).statement
    assert "needs at least 99 correct answers to calibrate on, and there are 50" in (
        false_alarm_threshold(np.arange(50), 0.01).statement
    )
    said = risk_threshold(np.arange(100.0), np.zeros(100, bool), 0.1).statement
    assert said == (
        "At most 10 % of the answers let through (score at most 99) are wrong, with a confidence of 95 % over the draw of the "
        "100 answers used, if new questions are of the same kind."
    )
