"""One-step probes against plain refits; a map of probes on planted cells, and on nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from headwise.probes.batched_logistic import fit_cells
from headwise.probes.cell_maps import Strata, concatenate, nested, probe_cells, significance
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.generalisation import group_topics
from headwise.probes.one_step import CURVATURE, OneStepProbes, device_auroc, device_auroc_within, standardise_rows
from headwise.stats.permutation import permuted_labels
from headwise.stats.stratified import auroc_within

N, WIDTH, CELLS, PLANTED = 160, 40, 24, 9


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(3)
    wrong = rng.random(N) < 0.55
    features = rng.normal(size=(CELLS, N, WIDTH)).astype(np.float32)
    features[PLANTED, :, :5] += 0.9 * wrong[:, None]
    return torch.from_numpy(features), wrong, assign_folds(wrong, folds=5, seed=0)


def refit(z: torch.Tensor, wrong: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Ridge regression on the labels with the training rows alone, in float64."""
    aim = torch.from_numpy(wrong - wrong.mean())
    gram = z @ z.T * CURVATURE + 1
    alpha = torch.linalg.solve(gram[train][:, train] + torch.eye(int(train.sum()), dtype=z.dtype), aim[train])
    return (gram[test][:, train] @ alpha).numpy()


@pytest.mark.parametrize("width", [WIDTH, 2 * WIDTH])  # by the columns' matrix, and by the rows'
def test_one_step_is_a_refit_on_the_other_folds(planted, width):
    features, wrong, fold_of = planted
    features = torch.cat([features, features.flip(0)], dim=2)[:, :, :width]
    step = OneStepProbes(features.double(), fold_of)
    labels = torch.from_numpy(wrong)
    scores, inside = step.out_of_fold(labels[:, None])[..., 0].numpy(), step.inside(labels).numpy()
    z = standardise_rows(features.double())
    for cell in (0, PLANTED):
        for fold in range(5):
            test = fold_of == fold
            np.testing.assert_allclose(scores[cell, test], refit(z[cell], wrong, ~test, test), atol=1e-9)
        outer, inner = fold_of == 1, fold_of == 3
        np.testing.assert_allclose(inside[1, cell, inner], refit(z[cell], wrong, ~outer & ~inner, inner), atol=1e-9)
        assert np.isnan(inside[1, cell, outer]).all()
    single = OneStepProbes(features, fold_of).out_of_fold(labels[:, None])[..., 0]
    np.testing.assert_allclose(single, scores, atol=1e-4)


def test_two_divisions_share_one_pass_over_the_rows(planted):
    features, wrong, fold_of = planted
    other = np.random.default_rng(1).integers(0, 4, N)
    labels = torch.from_numpy(wrong)
    both, alone = OneStepProbes(features.double(), fold_of, other), OneStepProbes(features.double(), other)
    torch.testing.assert_close(both.out_of_fold(labels[:, None], 1), alone.out_of_fold(labels[:, None]))
    torch.testing.assert_close(both.inside(labels, 1), alone.inside(labels), equal_nan=True)
    z = standardise_rows(features.double())
    torch.testing.assert_close(both.gram, z.mT @ z)


def test_areas_are_scikit_learns(planted):
    _, wrong, fold_of = planted
    scores = np.random.default_rng(0).normal(size=(2, N, 1))
    labels = torch.from_numpy(wrong)[:, None]
    found = device_auroc(torch.from_numpy(scores), labels, torch.from_numpy(fold_of))[:, 0]
    for cell in range(2):
        own = [roc_auc_score(wrong[fold_of == fold], scores[cell, fold_of == fold, 0]) for fold in range(5)]
        assert float(found[cell]) == pytest.approx(np.mean(own), abs=1e-12)


def test_only_the_planted_cell_is_beyond_the_null(planted):
    features, wrong, fold_of = planted
    dealt = permuted_labels(wrong, fold_of, sets=60, seed=0)
    cells = concatenate([probe_cells(features[start : start + 8], wrong, fold_of, dealt) for start in (0, 8, 16)])
    against = significance(cells)
    assert np.flatnonzero(cells.value > against.best_high).tolist() == [PLANTED]
    assert np.flatnonzero(against.q < 0.05).tolist() == [PLANTED]
    assert against.best_p == pytest.approx(1 / 61)
    best, score, chosen = nested(cells, wrong, fold_of)
    assert chosen == [PLANTED] * 5
    np.testing.assert_array_equal(score, cells.score[PLANTED])
    assert float(best.low) < float(cells.value[PLANTED]) < float(best.high)


def test_the_best_of_nothing_is_not_believed():
    """Among many cells of noise the best looks good; chosen on other folds it does not, nor is it beyond the null."""
    maxima, fair, found = [], [], 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        wrong = rng.random(100) < 0.5
        fold_of = assign_folds(wrong, folds=5, seed=0)
        features = torch.from_numpy(rng.normal(size=(60, 100, 12)).astype(np.float32))
        cells = probe_cells(features, wrong, fold_of, permuted_labels(wrong, fold_of, sets=40, seed=1))
        maxima.append(cells.value.max())
        fair.append(float(nested(cells, wrong, fold_of)[0].value))
        found += int(significance(cells).best_p < 0.05)
    assert np.mean(maxima) > 0.62
    assert np.mean(fair) < 0.55
    assert found <= 1


def test_the_quick_null_is_that_of_converged_probes(planted):
    features, wrong, fold_of = planted
    dealt = permuted_labels(wrong, fold_of, sets=40, seed=2)
    quick = probe_cells(features, wrong, fold_of, dealt).null  # (cell, shuffle)
    slow = fit_cells(features, dealt, fold_of).auroc.mean(axis=-1).T
    assert np.corrcoef(quick.ravel(), slow.ravel())[0, 1] > 0.9
    assert quick.mean() == pytest.approx(slow.mean(), abs=0.01)
    assert 0.8 < quick.std() / slow.std() < 1.1


def test_cells_that_were_not_measured_stay_so(planted):
    features, wrong, fold_of = planted
    features = features[:3].clone()
    features[1] = torch.nan
    cells = probe_cells(features, wrong, fold_of, permuted_labels(wrong, fold_of, sets=20))
    assert np.isfinite(cells.value).tolist() == [True, False, True]
    assert np.isnan(significance(cells).q).tolist() == [False, True, False]
    nothing = probe_cells(features[1:2], wrong, fold_of, permuted_labels(wrong, fold_of, sets=20))
    assert np.isnan(nothing.value).all() and np.isnan(significance(nothing).best_high)


# ---- within strata --------------------------------------------------------------------------------------------------


def with_topics(seed: int, rows: int = 180, topics: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Topics, errors that depend on them, and noise that carries the topic, (cell, row, width)."""
    rng = np.random.default_rng(seed)
    topic = np.arange(rows) % topics
    wrong = rng.random(rows) < np.linspace(0.15, 0.85, topics)[topic]
    code = 3 * rng.normal(size=(topics, 10))
    code[:, 0] = np.linspace(-4, 4, topics)
    return topic, wrong, (rng.normal(size=(20, rows, 10)) + code[topic]).astype(np.float32)


def test_ties_count_half_whatever_the_order_of_rows():
    rng = np.random.default_rng(0)
    strata, fold_of = rng.integers(0, 6, 90), np.arange(90) % 3
    labels = rng.random((90, 4)) < 0.5
    scores = rng.integers(0, 3, (2, 90, 4)).astype(np.float64)
    for order in (np.arange(90), np.argsort(labels[:, 0]), np.argsort(~labels[:, 0])):
        some, of = torch.from_numpy(scores[:, order]), torch.from_numpy(labels[order])
        within, plain = (
            device_auroc_within(some, of, strata[order]),
            device_auroc(some, of, torch.from_numpy(fold_of[order])),
        )
        for cell in range(2):
            for number in range(4):
                expected = auroc_within(scores[cell, :, number], labels[:, number], strata).value
                assert float(within[cell, number]) == pytest.approx(float(expected))
                folds = [
                    roc_auc_score(labels[fold_of == f, number], scores[cell, fold_of == f, number]) for f in range(3)
                ]
                assert float(plain[cell, number]) == pytest.approx(np.mean(folds))


def test_folds_that_divide_strata_would_be_biased_and_whole_ones_are_not():
    """Activations that carry the topic alone: half of the pairs within a topic should be ranked right."""
    divided, whole = [], []
    for seed in range(6):
        topic, wrong, features = with_topics(seed)
        strata = Strata.make(topic, wrong, folds=5, shuffles=3, seed=0)
        probes = OneStepProbes(torch.from_numpy(features), assign_folds(wrong, folds=5), strata.fold_of)
        labels = torch.from_numpy(wrong)[:, None]
        divided.append(float(device_auroc_within(probes.out_of_fold(labels), labels, topic).mean()))
        whole.append(float(device_auroc_within(probes.out_of_fold(labels, 1), labels, topic).mean()))
        assert all(len(set(strata.fold_of[topic == one])) == 1 for one in range(12))
    assert np.mean(divided) < 0.47
    assert np.mean(whole) == pytest.approx(0.5, abs=0.02)


def test_within_strata_nothing_is_found_where_only_the_topic_is_known():
    found = plain = 0
    for seed in range(30):
        topic, wrong, features = with_topics(seed)
        strata = Strata.make(topic, wrong, folds=5, shuffles=40, seed=seed)
        fold_of = assign_folds(wrong, folds=5)
        cells = probe_cells(
            torch.from_numpy(features), wrong, fold_of, permuted_labels(wrong, fold_of, sets=40), strata
        )
        found += int((significance(cells.within).q < 0.05).any())
        plain += int((significance(cells).q < 0.05).any())
    assert plain == 30
    assert found <= 5  # of 30 at a level of 0.05, more than 5 have a probability of 0.3 %


def test_the_planted_cell_is_found_within_strata_and_chosen_on_other_strata():
    topic, wrong, features = with_topics(1)
    features[7, :, 3:6] += 1.5 * wrong[:, None]
    strata = Strata.make(topic, wrong, folds=5, shuffles=60, seed=0)
    fold_of = assign_folds(wrong, folds=5)
    parts = [
        probe_cells(torch.from_numpy(part), wrong, fold_of, permuted_labels(wrong, fold_of, sets=60), strata)
        for part in (features[:8], features[8:])
    ]
    cells = concatenate(parts).within
    assert np.flatnonzero(significance(cells).q < 0.05).tolist() == [7]
    area, score, chosen = nested(cells, wrong, strata.fold_of, strata=strata)
    assert chosen == [7] * 5 and float(area.low) > 0.65
    assert float(area.value) == pytest.approx(float(cells.value[7]), abs=1e-9)
    assert np.array_equal(score, cells.score[7])
    assert Strata.make(np.zeros(180, dtype=int), wrong, folds=5, shuffles=3, seed=0) is None


def test_small_topics_join_those_they_look_like():
    rng = np.random.default_rng(0)
    topics = np.repeat(["cats", "dogs", "kings", "queens"], 30)
    vectors = rng.normal(size=(120, 6)) * 0.1
    vectors[:60, 0] += 1
    vectors[60:, 1] += 1
    wrong = np.arange(120) % 2 == 0
    assert set(group_topics(topics, vectors, wrong, min_per_class=10)) == {"cats", "dogs", "kings", "queens"}
    groups = group_topics(topics, vectors, wrong, min_per_class=25)
    assert set(groups) == {"cats, dogs", "kings, queens"}
    assert groups[0] == "cats, dogs" and groups[-1] == "kings, queens"
    assert len(set(group_topics(topics, vectors, wrong, min_per_class=1000))) == 2
