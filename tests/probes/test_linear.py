import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from headwise.probes.linear import fit_linear, fit_subsets, fit_within
from headwise.probes.projection import principal, project


def regression():
    return LogisticRegression(C=1.0, class_weight="balanced", max_iter=2000, solver="newton-cholesky", tol=1e-12)


def sheet(train, labels, components=512):
    """The method sheet, in plain scikit-learn."""
    return make_pipeline(PCA(min(components, *train.shape), svd_solver="full"), regression()).fit(train, labels)


def data(seed, answers, width, scale=1.0):
    random = np.random.default_rng(seed)
    labels = random.random(answers) < 0.6
    hidden = random.standard_normal((answers, 5)) + 0.5 * labels[:, None]
    table = hidden @ random.standard_normal((5, width)) + random.standard_normal((answers, width)) + 3.0
    return (scale * table).astype(np.float32), labels


@pytest.mark.parametrize(
    ("answers", "width", "components", "scale"),
    [
        (150, 700, 512, 0.05),  # more features than answers, as eigenvalues are: small
        (150, 700, 512, 1.0),
        (150, 20, 512, 1.0),  # fewer
        (150, 700, 40, 0.3),  # the PCA drops directions
        (300, 60, 40, 0.3),
        (120, 400, 512, 30.0),  # large and separable, as hidden states are
    ],
)
def test_scores_are_those_of_a_plain_pipeline(answers, width, components, scale):
    """On folds of points that were turned once, with all rows; probabilities to 1e-6."""
    table, labels = data(0, answers, width, scale)
    turned = project(table)
    assert turned.points.shape[1] <= min(answers, width)
    test = np.arange(answers) % 4 == 0
    linear = fit_linear(turned.points[~test], labels[~test], components=components)
    expected = sheet(table[~test].astype(np.float64), labels[~test], components)
    logit = linear(turned.points[test])
    assert logit == pytest.approx(expected.decision_function(table[test].astype(np.float64)), abs=2e-5, rel=2e-5)
    assert 1 / (1 + np.exp(-logit)) == pytest.approx(
        expected.predict_proba(table[test].astype(np.float64))[:, 1], abs=1e-6
    )


def test_default_cut_above_512_answers():
    table, labels = data(1, 620, 640, 0.1)
    points = project(table).points
    test = np.arange(620) % 7 == 0
    assert (~test).sum() > 512
    expected = sheet(table[~test].astype(np.float64), labels[~test]).predict_proba(table[test].astype(np.float64))[:, 1]
    logit = fit_linear(points[~test], labels[~test])(points[test])
    assert 1 / (1 + np.exp(-logit)) == pytest.approx(expected, abs=1e-6)
    uncut = fit_linear(points[~test], labels[~test], components=None)(points[test])
    assert np.abs(uncut - logit).max() > 1e-3  # so the test would notice


def test_many_at_once_are_the_same_as_one_by_one():
    table, labels = data(2, 120, 300, 0.5)
    points = project(table).points
    subsets = np.random.default_rng(0).random((6, 120)) < [[0.9], [0.5], [0.3], [0.8], [0.2], [1.0]]
    together = fit_subsets(points, labels, subsets)
    for linear, rows in zip(together, subsets, strict=True):
        alone = regression().fit(points[rows], labels[rows])
        assert linear(points) == pytest.approx(alone.decision_function(points), abs=1e-5)
    assert fit_subsets(points, labels, np.zeros((0, 120), dtype=bool)) == []


def test_decisions_inside_training_rows_share_their_pca():
    table, labels = data(3, 150, 300, 0.5)
    points = project(table).points
    rows = np.arange(150) < 110
    inside = np.array([rows, rows & (np.arange(150) % 2 == 0)])
    found = fit_within(points, labels, rows, inside, components=30)
    reduce = PCA(30, svd_solver="full").fit(points[rows])
    for linear, subset in zip(found, inside, strict=True):
        expected = regression().fit(reduce.transform(points[subset]), labels[subset])
        assert linear(points) == pytest.approx(expected.decision_function(reduce.transform(points)), abs=1e-5)


@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 80))
@settings(max_examples=40, deadline=None)
def test_turning_keeps_distances_and_turns_back(seed, rows, width):
    random = np.random.default_rng(seed)
    table = random.standard_normal((rows, width)) + 5
    turned = project(table)
    centred = table - table.mean(axis=0)
    assert turned.points @ turned.points.T == pytest.approx(centred @ centred.T, abs=1e-9)
    weights = random.standard_normal(turned.points.shape[1])
    assert centred @ turned.to_features(weights) == pytest.approx(turned.points @ weights, abs=1e-8)


def test_constant_features_are_no_trouble():
    labels = np.arange(40) % 2 == 0
    for width in (3, 100):
        turned = project(np.ones((40, width)))
        linear = fit_linear(turned.points, labels)
        assert linear(turned.points) == pytest.approx(0, abs=1e-6)


def test_principal_keeps_the_largest():
    random = np.random.default_rng(0)
    table = random.standard_normal((30, 50)) * np.linspace(5, 0.1, 50)
    expected = PCA(4, svd_solver="full").fit_transform(table)
    found, _ = principal(table - table.mean(axis=0), 4)
    assert np.abs(found) == pytest.approx(np.abs(expected))
