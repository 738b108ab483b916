import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from headwise.core.errors import DataError
from headwise.probes.crossvalidation import (
    assign_folds,
    cross_validate,
    inner_folds,
    out_of_fold,
    paper_area,
    paper_protocol,
    precision_recall,
)
from headwise.probes.linear import fit_linear
from headwise.probes.projection import project
from headwise.probes.stacking import brier, cross_validate_stack, fit_platt
from headwise.stats import auroc_by_fold


def noise(seed, answers=200, width=400):
    random = np.random.default_rng(seed)
    return random.standard_normal((answers, width)), random.random(answers) < 0.5


def test_folds_are_stratified_seeded_and_keep_groups():
    labels = np.random.default_rng(0).random(103) < 0.3
    fold_of = assign_folds(labels, seed=1)
    assert (fold_of == assign_folds(labels, seed=1)).all()
    assert (fold_of != assign_folds(labels, seed=2)).any()
    wrong = [int(labels[fold_of == fold].sum()) for fold in range(5)]
    assert max(wrong) - min(wrong) <= 1
    groups = np.arange(103) // 4
    grouped = assign_folds(labels, groups=groups)
    assert all(len(set(grouped[groups == group])) == 1 for group in np.unique(groups))


def test_folds_that_cannot_be_made_are_refused():
    labels = np.array([True] * 3 + [False] * 30)
    with pytest.raises(DataError, match="5 folds need at least 5 answers of each class, but one has 3"):
        assign_folds(labels)
    labels = np.arange(30) < 15
    with pytest.raises(DataError, match="5 folds need at least 5 groups, but there are 2"):
        assign_folds(labels, groups=np.arange(30) % 2)
    with pytest.raises(DataError, match="has answers of one class only"):
        assign_folds(labels, groups=np.arange(30) // 5)


def test_every_answer_is_scored_by_a_detector_that_did_not_see_it():
    values, labels = noise(0, 100, 20)
    fold_of = assign_folds(labels)
    score = out_of_fold(values, labels, fold_of)
    for fold in range(5):
        test = fold_of == fold
        assert score[test] == pytest.approx(fit_linear(values[~test], labels[~test])(values[test]), abs=1e-6)


def test_inner_scores_never_see_the_outer_test_fold_nor_their_own_row():
    values, labels = noise(1, 120, 10)
    fold_of = assign_folds(labels)
    found = cross_validate([(0, values)], labels, fold_of, seed=3)
    for fold in range(5):
        train = fold_of != fold
        assert np.isnan(found.inner[fold][~train]).all()
        ring = inner_folds(labels, train, inner=3, seed=3 + 1 + fold, groups=None)
        assert found.inner[fold][train] == pytest.approx(out_of_fold(values[train], labels[train], ring), abs=1e-5)


def test_changing_a_test_fold_changes_no_choice_and_no_other_score():
    """The proof of no leakage: features and labels of fold 0 are replaced by garbage that would be very attractive."""
    values, labels = noise(2, 200, 30)
    fold_of = assign_folds(labels)
    candidates = {k: values[:, :k].copy() for k in (5, 10, 30)}
    before = cross_validate(candidates.items(), labels, fold_of)
    test = fold_of == 0
    for points in candidates.values():
        points[test] = 100 * np.random.default_rng(0).standard_normal(points[test].shape) + 10 * labels[test][:, None]
    after = cross_validate(candidates.items(), labels, fold_of)
    assert after.chosen[0] == before.chosen[0]
    train = ~test
    assert after.inner[0][train] == pytest.approx(before.inner[0][train], abs=1e-6)


def test_shuffled_labels_give_one_half():
    """Its interval holds 0.5 in about 95 % of draws, and the mean over draws is 0.5: no leak, whatever is chosen."""
    inside, values = [], []
    for seed in range(30):
        table, labels = noise(seed, 150, 300)
        fold_of = assign_folds(labels, seed=seed)
        candidates = [(k, project(table[:, :k]).points) for k in (10, 50, 300)]
        found = cross_validate(candidates, labels, fold_of, seed=seed)
        area, _ = auroc_by_fold(found.score, labels, fold_of)
        inside.append(bool(area.low <= 0.5 <= area.high))
        values.append(float(area.value))
    assert np.mean(inside) >= 0.9
    assert np.mean(values) == pytest.approx(0.5, abs=0.02)


def test_choosing_on_the_test_set_as_published_beats_chance_on_noise():
    """Which is why it is not our way."""
    values = []
    for seed in range(30):
        table, labels = noise(seed, 150, 300)
        points = {k: project(table[:, :k]).points for k in (5, 10, 25, 100, 300)}
        found = paper_protocol({k: paper_area(own, labels, seed) for k, own in points.items()})
        assert found.auroc == max(found.per_candidate.values()) == found.per_candidate[found.choice]
        values.append(found.auroc)
    assert np.mean(values) > 0.54


def test_the_right_candidate_is_chosen_inside():
    random = np.random.default_rng(5)
    labels = random.random(200) < 0.5
    candidates = {number: random.standard_normal((200, 10)) for number in range(6)}
    candidates[4][:, 3] += 2 * labels
    fold_of = assign_folds(labels)
    found = cross_validate(candidates.items(), labels, fold_of)
    assert found.chosen == [4] * 5
    assert (found.score == found.sweep[4]).all()
    assert roc_auc_score(labels, found.score) > 0.85


def test_precision_and_recall_at_one_half():
    labels = np.array([True, True, True, False, False])
    assert precision_recall(np.array([1.0, 2.0, -1.0, 3.0, -1.0]), labels) == (
        pytest.approx(2 / 3),
        pytest.approx(2 / 3),
    )
    precision, recall = precision_recall(np.full(5, -1.0), labels)
    assert np.isnan(precision)
    assert recall == 0


def test_stacking_uses_both_blocks_and_survives_noise():
    random = np.random.default_rng(6)
    labels = random.random(300) < 0.5
    first, second, useless = (random.standard_normal((300, 30)) for _ in range(3))
    first[:, 0] += labels
    second[:, 0] += labels
    number = random.standard_normal(300) + labels
    fold_of = assign_folds(labels)
    judged = [cross_validate([(0, 1000.0 * block)], labels, fold_of) for block in (first, second, useless)]
    both = cross_validate_stack(judged, [1e-6 * number], labels, fold_of)
    area = auroc_by_fold(both.score, labels, fold_of)[0].value
    assert area > max(auroc_by_fold(one.score, labels, fold_of)[0].value for one in judged) + 0.03
    assert np.isfinite(both.inner).sum() == 4 * 300
    alone = cross_validate_stack([], [number], labels, fold_of)
    assert auroc_by_fold(alone.score, labels, fold_of)[0].value == pytest.approx(
        auroc_by_fold(number, labels, fold_of)[0].value
    )


def test_stacking_noise_gives_one_half():
    values = []
    for seed in range(20):
        table, labels = noise(seed, 150, 120)
        fold_of = assign_folds(labels, seed=seed)
        judged = [cross_validate([(0, part)], labels, fold_of, seed=seed) for part in np.split(table, 4, axis=1)]
        values.append(
            float(auroc_by_fold(cross_validate_stack(judged, [], labels, fold_of).score, labels, fold_of)[0].value)
        )
    assert np.mean(values) == pytest.approx(0.5, abs=0.03)


def test_calibration_is_right_on_average():
    random = np.random.default_rng(7)
    labels = random.random(4000) < 0.2
    score = 5 * (random.standard_normal(4000) + 1.5 * labels) + 7  # overconfident and off
    probability = fit_platt(score[:2000], labels[:2000])(score[2000:])
    held_out = labels[2000:]
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
        rows = (probability >= low) & (probability < high)
        assert held_out[rows].mean() == pytest.approx(probability[rows].mean(), abs=0.07)
    assert brier(probability, held_out) < 0.13 < brier(np.full(2000, 0.2), held_out)


def test_calibration_of_a_backward_or_perfect_score():
    labels = np.arange(60) < 20
    backward = fit_platt(-labels.astype(float) + np.random.default_rng(0).standard_normal(60), labels)
    assert backward.slope == 0
    assert backward(np.array([3.0])) == pytest.approx(1 / 3, abs=0.02)
    perfect = fit_platt(labels * 2.0 - 1, labels)(np.array([-1.0, 1.0]))
    assert perfect == pytest.approx([1 / 42, 21 / 22], abs=1e-3)
