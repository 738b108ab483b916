import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from headwise.stats import auroc, auroc_by_fold, auroc_rows, delong_test
from headwise.stats.auroc import auroc_interval


@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(2, 40), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_equals_sklearn_with_ties(seed, n_wrong, n_right, levels):
    random = np.random.default_rng(seed)
    labels = np.array([True] * n_wrong + [False] * n_right)
    values = random.integers(0, levels, (len(labels), 3))
    found = auroc(values, labels)
    assert found.value == pytest.approx([roc_auc_score(labels, values[:, i]) for i in range(3)])
    assert (found.low <= found.value + 1e-9).all()
    assert (found.value <= found.high + 1e-9).all()


def test_variance_is_delongs():
    """By the definition, over all pairs."""
    random = np.random.default_rng(0)
    labels = random.random(60) < 0.4
    values = np.round(random.standard_normal(60) + labels, 1)
    wrong, right = values[labels], values[~labels]
    psi = (wrong[:, None] > right) + (wrong[:, None] == right) / 2
    expected = psi.mean(1).var(ddof=1) / len(wrong) + psi.mean(0).var(ddof=1) / len(right)
    assert np.square(auroc(values, labels).influence).sum() == pytest.approx(expected)


def test_interval_covers_the_truth():
    random = np.random.default_rng(1)
    labels = np.arange(100) < 40
    values = random.standard_normal((100, 2000)) + 0.7416 * labels[:, None]  # normal shift with AUROC .7
    found = auroc(values, labels)
    assert np.mean((found.low <= 0.7) & (found.high >= 0.7)) == pytest.approx(0.95, abs=0.02)


def test_interval_of_a_perfect_score_is_not_a_point():
    labels = np.arange(50) < 20
    perfect, worst = auroc(labels * 1.0, labels), auroc(~labels * 1.0, labels)
    assert (perfect.low, perfect.high) == (pytest.approx(0.025 ** (1 / 20)), 1)
    assert (worst.low, worst.high) == (0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert auroc_interval(0.5, 0.0, 20) == (0.5, 0.5)


def test_mean_over_folds_and_its_variance():
    random = np.random.default_rng(2)
    labels = random.random(300) < 0.5
    fold_of = np.arange(300) % 3
    scores = random.standard_normal(300) + labels + 10 * fold_of  # folds are not comparable with each other
    area, per_fold = auroc_by_fold(scores, labels, fold_of)
    own = [auroc(scores[fold_of == fold], labels[fold_of == fold]) for fold in range(3)]
    assert per_fold == pytest.approx([float(o.value) for o in own])
    assert area.value == pytest.approx(per_fold.mean())
    assert np.square(area.influence).sum() == pytest.approx(sum(np.square(o.influence).sum() for o in own) / 9)
    plain, _ = auroc_by_fold(scores, labels, fold_of, learnt=False)
    assert (area.inflation, plain.inflation) == (2.5, 1)  # three folds: 1 + 3 / 2
    assert area.high - area.low > 1.4 * (plain.high - plain.low)
    assert delong_test(area, plain).value == 0


def test_paired_difference_is_narrower_than_two_intervals():
    random = np.random.default_rng(3)
    labels = random.random(400) < 0.5
    common = random.standard_normal(400) + labels
    first, second = (auroc(common + 0.3 * random.standard_normal(400), labels) for _ in range(2))
    difference = delong_test(first, second)
    assert difference.low < 0 < difference.high
    assert difference.high - difference.low < 0.6 * (first.high - first.low)
    assert 0.05 < difference.p <= 1
    same = delong_test(first, first)
    assert (same.value, same.p) == (0, 1)
    assert delong_test(auroc(labels * 1.0, labels), auroc(1.0 - labels, labels)).p == 0


def test_answers_in_groups_widen_the_interval():
    """Every answer twice is not twice the knowledge."""
    random = np.random.default_rng(4)
    labels = random.random(100) < 0.5
    values = random.standard_normal(100) + labels
    once = auroc(values, labels)
    twice = auroc(np.repeat(values, 2), np.repeat(labels, 2))
    grouped = auroc(np.repeat(values, 2), np.repeat(labels, 2), groups=np.repeat(np.arange(100), 2))
    assert twice.high - twice.low < 0.75 * (once.high - once.low)
    assert grouped.high - grouped.low == pytest.approx(once.high - once.low, rel=0.02)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_rows_are_scikit_learns_with_many_ties(seed, levels):
    random = np.random.default_rng(seed)
    wrong = np.r_[True, False, random.random(20) < 0.5]
    scores = random.integers(0, levels, (3, 2, 22)).astype(float)
    found = auroc_rows(scores, wrong)
    assert found.shape == (3, 2)
    assert found[2, 1] == pytest.approx(roc_auc_score(wrong, scores[2, 1]), abs=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_rows_are_the_values_of_columns(seed, levels):
    random = np.random.default_rng(seed)
    labels = np.r_[True, False, random.random(20) < 0.5]
    scores = random.integers(0, levels, (5, 22)) * 0.1
    assert auroc_rows(scores, labels) == pytest.approx(auroc(scores.T, labels).value, abs=1e-15)
