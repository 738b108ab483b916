"""Points in fewer coordinates: exact while few, and close to an exact PCA where directions are dropped."""

import numpy as np
import pytest

from headwise.probes import projection
from headwise.probes.crossvalidation import assign_folds, out_of_fold
from headwise.probes.features import choice_points
from headwise.probes.projection import growing_points, project
from headwise.stats import auroc_by_fold
from headwise.stats.validation import as_named


def answers(rows, width, seed=0, strength=1.0):
    """Features with a long tail of variances, as eigenvalues have, and labels that depend on many directions of it."""
    random = np.random.default_rng(seed)
    latent = random.standard_normal((rows, 200)) / np.sqrt(1 + np.arange(200))
    table = latent @ random.standard_normal((200, width)) * 0.05 + 0.02 * random.standard_normal((rows, width))
    signal = latent[:, :60] @ random.standard_normal(60)
    wrong = random.random(rows) < 1 / (1 + np.exp(-strength * signal))
    return table.astype(np.float32), wrong


@pytest.fixture
def small_limits(monkeypatch):
    """The limits of a thousand answers at a tenth of the size."""
    monkeypatch.setattr(projection, "COORDINATES", 150)
    monkeypatch.setattr(projection, "LANDMARKS", 250)


@pytest.mark.parametrize("rows", [240, 400])  # all rows are landmarks; some are
def test_scores_are_close_to_those_of_all_coordinates(small_limits, monkeypatch, rows):
    table, wrong = answers(rows, 900)
    points = project(table).points
    assert points.shape == (rows, 150)
    with monkeypatch.context() as exact:
        exact.setattr(projection, "COORDINATES", 10_000)
        exact.setattr(projection, "LANDMARKS", 10_000)
        every = project(table).points
    fold_of = assign_folds(wrong)
    found, expected = (out_of_fold(each, wrong, fold_of, components=100) for each in (points, every))
    assert np.corrcoef(found, expected)[0, 1] > 0.98
    areas = [float(auroc_by_fold(score, wrong, fold_of)[0].value) for score in (found, expected)]
    assert areas[0] == pytest.approx(areas[1], abs=0.012)


def test_weights_return_to_the_features_they_came_from(small_limits):
    table, _ = answers(400, 900)
    projected = project(table)
    weights = np.random.default_rng(0).standard_normal(150)
    by_features = (table - projected.mean) @ projected.to_features(weights)
    assert by_features == pytest.approx(projected.points @ weights, rel=1e-3, abs=1e-3 * np.abs(by_features).max())


def test_products_that_float32_cannot_resolve_are_taken_in_float64(small_limits):
    table, _ = answers(240, 900)
    table[:, 0] += 3000 * np.random.default_rng(1).standard_normal(240).astype(np.float32)  # 1e9 times the others
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    expected = np.sort(np.linalg.eigvalsh(centred @ centred.T))[::-1][:150]
    assert np.square(project(table).points).sum(axis=0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("limits", [False, True])
def test_nested_choices_share_products_and_give_the_same_points(request, limits):
    if limits:
        request.getfixturevalue("small_limits")
    table, _ = answers(200, 12 * 40)
    features = as_named(table.reshape(200, 4, 3, 40), ("example", "layer", "head", "rank"))
    for k, grown in choice_points(features, "heads", [5, 20, 40]):
        points = features.values[..., :k].reshape(200, -1)
        alone = project(points).points
        assert grown.points @ grown.points.T == pytest.approx(alone @ alone.T, abs=2e-5)
        weights = np.random.default_rng(0).standard_normal(grown.points.shape[1])
        by_features = (points - grown.mean) @ grown.to_features(weights)
        assert by_features == pytest.approx(grown.points @ weights, rel=1e-3, abs=1e-3 * np.abs(by_features).max())


def test_a_narrow_table_is_only_shifted():
    table, _ = answers(300, 40)
    assert growing_points([table[:, :10], table[:, 10:]])[1].points == pytest.approx(
        table - table.mean(axis=0), abs=1e-6
    )


def test_a_forked_worker_does_not_touch_the_gpu(monkeypatch):
    """Layers are projected by workers, and CUDA cannot be used in a process that was forked."""
    monkeypatch.setattr(projection.torch.cuda, "is_available", lambda: True)
    assert projection.product_device().type == "cuda"
    monkeypatch.setattr(projection.multiprocessing, "parent_process", lambda: object())
    assert projection.product_device().type == "cpu"
