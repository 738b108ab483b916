"""Activations whose probes are known: by construction, and from plain scikit-learn in float64."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler


def activations(cells, rows, width, *, seed=0, scale=1.0, shift=0.7):
    """Features that vary far more in some directions than in others, off centre; a few tell the label."""
    random = np.random.default_rng(seed)
    wrong = random.random(rows) < 0.6
    x = random.standard_normal((cells, rows, width)) * (1 + np.arange(width)) ** -0.5
    x[:, :, 1] += shift * wrong
    x = x @ np.linalg.qr(random.standard_normal((width, width)))[0] + 3.0 * random.standard_normal(width)
    folds = random.permutation(rows) % 4
    return (scale * x).astype(np.float32), wrong, folds


def plain(x, wrong, train, *, standardise=True, **options):
    """scikit-learn on the training rows: scores of all rows, weights of its own features, and their scale."""
    x = x.astype(np.float64)
    scaler = StandardScaler(with_mean=standardise, with_std=standardise).fit(x[train])
    fit = LogisticRegression(solver="newton-cholesky", tol=1e-10, max_iter=1000, **options)
    fit.fit(scaler.transform(x[train]), wrong[train])
    scale = scaler.scale_ if standardise else np.ones(x.shape[1])
    return fit.decision_function(scaler.transform(x)), fit.coef_[0], scale


@pytest.fixture
def draw():
    return activations


@pytest.fixture
def sklearn_fit():
    return plain
