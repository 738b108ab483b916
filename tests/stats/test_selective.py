"""Risk-coverage, PRR and AUPRC by their definitions; the coverage of their intervals is in `test_calibration`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from headwise.core.errors import DataError
from headwise.stats import auprc, risk_coverage


def area(quality, order, rejected):
    """Mean over the sizes kept of the mean quality of the answers kept, as LM-Polygraph has it."""
    n = len(quality)
    return np.mean([quality[order[:k]].mean() for k in range(n - rejected + 1, n + 1)])


def drawn(seed, n=40, levels=None):
    random = np.random.default_rng(seed)
    wrong = np.concatenate([[True, False], random.random(n - 2) < random.uniform(0.2, 0.8)])
    score = random.normal(size=n) + wrong
    return (score if levels is None else np.round(score * levels)), wrong


@pytest.mark.parametrize("share", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_prr_is_lm_polygraphs(seed, share):
    score, wrong = drawn(seed)
    quality = 1.0 - wrong
    rejected = int(share * len(wrong))
    own, oracle = (area(quality, np.argsort(one), rejected) for one in (score, wrong))
    random = np.mean(quality)  # the mean over all orders: every size keeps that share in the mean
    found = risk_coverage(score, wrong, max_rejection=share)
    assert found.aurc.value == pytest.approx(1 - own) and found.oracle == pytest.approx(1 - oracle)
    assert found.prr.value == pytest.approx((own - random) / (oracle - random))


def test_equal_scores_get_their_expected_order():
    random = np.random.default_rng(3)
    score, wrong = drawn(3, levels=1)
    assert len(np.unique(score)) < 8
    orders = [np.lexsort((random.random(len(score)), score)) for _ in range(4000)]
    expected = np.mean([area(1.0 - wrong, order, len(wrong)) for order in orders])
    assert risk_coverage(score, wrong).aurc.value == pytest.approx(1 - expected, abs=0.002)
    constant = risk_coverage(np.zeros(40), wrong)
    assert constant.prr.value == pytest.approx(0, abs=1e-12) and constant.risk == pytest.approx(wrong.mean())


def test_the_oracle_has_one_and_its_opposite_less_than_nothing():
    wrong = np.arange(50) % 3 == 0
    perfect, worst = risk_coverage(wrong, wrong), risk_coverage(~wrong, wrong)
    assert perfect.prr.value == pytest.approx(1) and perfect.prr.low < 1 and perfect.prr.high <= 1
    assert perfect.aurc.value == pytest.approx(perfect.oracle)
    assert worst.prr.value < -1 and worst.prr.high < 0


@given(st.integers(0, 10_000), st.integers(3, 60), st.one_of(st.none(), st.integers(1, 3)))
@settings(max_examples=60, deadline=None)
def test_auprc_equals_sklearn_with_ties(seed, n, levels):
    score, wrong = drawn(seed, n, levels)
    found = auprc(score, wrong)
    assert found.value == pytest.approx(average_precision_score(wrong, score))
    assert found.low <= found.value <= found.high
    kept = risk_coverage(score, wrong)
    for one in (kept.aurc, kept.prr):
        assert one.low <= one.value + 1e-12 and one.value <= one.high + 1e-12 and np.isfinite(one).all()


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_errors_are_those_of_a_bootstrap(share):
    score, wrong = drawn(7, 400)
    random = np.random.default_rng(0)
    rows = [random.integers(0, 400, 400) for _ in range(1500)]
    # a resample repeats answers; a little noise in place of ties keeps the order of those that are equal at random
    again = [(score[one] + 1e-9 * random.random(400), wrong[one]) for one in rows]
    found = risk_coverage(score, wrong, max_rejection=share)
    drawn_again = [risk_coverage(*one, max_rejection=share) for one in again]
    assert found.prr.error == pytest.approx(np.std([one.prr.value for one in drawn_again]), rel=0.1)
    assert found.aurc.error == pytest.approx(np.std([one.aurc.value for one in drawn_again]), rel=0.1)
    assert auprc(score, wrong).error == pytest.approx(np.std([auprc(*one).value for one in again]), rel=0.1)


def test_answers_to_one_question_count_once():
    score, wrong = drawn(5, 100)
    four_times = np.repeat(score, 4) + np.tile([0.0, 1e-9, 2e-9, 3e-9], 100), np.repeat(wrong, 4)
    question = np.repeat(np.arange(100), 4)
    alone, grouped = risk_coverage(*four_times), risk_coverage(*four_times, groups=question)
    once = risk_coverage(score, wrong)
    assert grouped.prr.error == pytest.approx(once.prr.error, rel=0.1) and alone.prr.error < 0.6 * once.prr.error
    assert np.diff([grouped.risk_low[-1], grouped.risk_high[-1]]) == pytest.approx(
        np.diff([once.risk_low[-1], once.risk_high[-1]]), rel=0.05
    )


def test_learnt_scores_are_compared_within_their_fold():
    score, wrong = drawn(6, 100)
    fold_of = np.arange(100) % 5
    learnt = risk_coverage(score + 100 * fold_of, wrong, fold_of=fold_of)
    assert learnt.prr.value == pytest.approx(risk_coverage(score, wrong, fold_of=fold_of).prr.value)
    assert learnt.prr.value == pytest.approx(risk_coverage(score, wrong).prr.value, abs=0.15)
    assert learnt.prr.error > 1.3 * risk_coverage(score, wrong).prr.error  # shared training rows
    assert auprc(score + 100 * fold_of, wrong, fold_of=fold_of).value > auprc(score + 100 * fold_of, wrong).value


@pytest.mark.parametrize(
    ("score", "wrong", "share", "words"),
    [
        ([1.0, np.nan], [True, False], 1.0, "without NaN"),
        ([1.0, 2.0], [True, True], 1.0, "All 2 answers are wrong"),
        ([1.0, 2.0], [True, False], 0.0, "max_rejection"),
        ([1.0, 2.0], [True, False], 0.4, "max_rejection"),
        ([[1.0, 2.0]], [True, False], 1.0, "one number per answer"),
    ],
)
def test_what_cannot_be_judged_is_refused(score, wrong, share, words):
    with pytest.raises(DataError, match=words):
        risk_coverage(score, np.array(wrong), max_rejection=share)
