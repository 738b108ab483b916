"""The solver against Newton's method in float64, where single precision and leaving early could do harm."""

import numpy as np
import pytest
import torch

from headwise.probes.batched_logistic import problems as module
from headwise.probes.batched_logistic.problems import Problems, make_points
from headwise.probes.batched_logistic.solver import minimise


def newton(x, labels, weights, penalty, c):
    """The optimum of one problem: weights and intercept; plain Newton steps, halved until the loss falls."""
    table = np.column_stack([x, np.ones(len(x))])
    ridge = np.append(penalty / c, 0.0)
    b = np.zeros(table.shape[1])

    def loss(b):
        margin = table @ b
        return weights @ (np.logaddexp(0, margin) - labels * margin) + ridge @ b**2 / 2

    for _ in range(100):
        p = 1 / (1 + np.exp(-table @ b))
        gradient = table.T @ (weights * (p - labels)) + ridge * b
        if np.abs(gradient).max() < 1e-10:
            break
        step = np.linalg.solve(table.T @ ((weights * p * (1 - p))[:, None] * table) + np.diag(ridge), gradient)
        share = 1.0
        while loss(b - share * step) > loss(b) and share > 1e-9:
            share /= 2
        b = b - share * step
    return b[:-1], b[-1]


def compared(x, labels, weights, *, c=1.0, tolerance=1e-6):
    """Largest distance of a weight from the optimum, over cells and problems; rows of weight 0 train no problem."""
    trains = torch.from_numpy(weights > 0)
    points = make_points(torch.from_numpy(x).float(), trains, standardise=True)
    problems = Problems(torch.from_numpy(labels).float(), torch.from_numpy(weights).float(), torch.arange(len(weights)))
    found = minimise(points, problems, c=c, tolerance=tolerance)
    assert found.converged.all()
    far = 0.0
    for cell, table in enumerate(points.x.double().numpy()):
        for place in range(len(weights)):
            ratio = points.ratio[cell, place].double().numpy()
            there = np.isfinite(ratio)
            best, shift = newton(table[:, there], labels[place], weights[place], ratio[there] ** 2, c)
            far = max(far, np.abs(found.weights[cell, place].numpy()[there] - best).max())
            assert (found.weights[cell, place].numpy()[~there] == 0).all()
            assert float(found.intercepts[cell, place]) == pytest.approx(shift, abs=2e-3)
    return far, found


def drawn(cells=2, rows=150, width=60, problems=3, *, fall=0.5, seed=0):
    """Features whose variance falls by ``fall`` over directions; labels that they half tell; rows left out by turns."""
    random = np.random.default_rng(seed)
    turn = np.linalg.qr(random.standard_normal((width, width)))[0]
    x = random.standard_normal((cells, rows, width)) * (1.0 + np.arange(width)) ** -fall @ turn
    told = x[0, :, :5].sum(axis=1) + 0.5 * random.standard_normal(rows) > 0
    weights = (np.arange(rows) % problems != np.arange(problems)[:, None]).astype(float)
    return x, np.tile(told, (problems, 1)).astype(float), weights


def test_ill_conditioned_features():
    """Directions of which the largest varies ten thousand times as much as the smallest, as activations do."""
    x, labels, weights = drawn(fall=2.2)
    far, found = compared(x, labels, weights)
    assert far < 1e-3 and found.steps.max() < 150


def test_separable_rows():
    """Far more features than rows, so that every margin is of the right sign and the penalty alone holds the weights."""
    x, labels, weights = drawn(rows=60, width=240)
    far, found = compared(x, labels, weights, c=10.0)
    assert far < 1e-3
    scaled = torch.from_numpy((x[0] - x[0].mean(axis=0)) / x[0].std(axis=0)).float()
    margins = found.weights[0] @ scaled.T + found.intercepts[0, :, None]
    assert (margins * torch.from_numpy(2 * labels - 1) > 0)[torch.from_numpy(weights > 0)].all()


def test_weights_of_rows_and_constant_features():
    x, labels, weights = drawn()
    weights *= np.random.default_rng(3).uniform(0.2, 3.0, weights.shape)
    x[:, :, 7] = 5.0
    x[:, weights[1] > 0, 8] = -1.0  # in the rows of one problem
    # points standardise by rows, not by their weights, as scikit-learn's scaler does without sample weights
    assert compared(x, labels, weights)[0] < 1e-3


def test_problems_that_leave_early_do_not_disturb_the_others():
    """One problem is easy and one hard: each gets the steps it needs, and what it would get alone."""
    x, labels, weights = drawn(cells=3, fall=1.2)
    labels[1] = np.random.default_rng(1).permutation(labels[1])  # noise is harder to fit
    labels[2] = (x[0, :, 0] > 0).astype(float)
    far, found = compared(x, labels, weights)
    assert far < 1e-3 and found.steps.min() < found.steps.max()
    alone = compared(x[1:2], labels[2:], weights[2:])[1]
    assert (found.weights[1, 2] - alone.weights[0, 0]).abs().max() < 1e-3


def test_cells_that_leave_as_a_whole(monkeypatch):
    """As on a GPU: a solved problem stands still until its cell is done."""
    x, labels, weights = drawn(cells=4, fall=1.2)
    x[2] *= np.linspace(1, 30, x.shape[1])[:, None]  # a cell of outliers is harder
    one_by_one = compared(x, labels, weights)[1]
    monkeypatch.setattr(module, "_leave_singly", lambda device: False)
    far, whole = compared(x, labels, weights)
    assert far < 1e-3 and (whole.steps.amax(dim=1) > whole.steps.amin(dim=1)).any()
    assert (whole.steps - one_by_one.steps).abs().max() <= 5
    assert (whole.weights - one_by_one.weights).abs().max() < 1e-3


def test_float32_is_as_near_as_the_tolerance_says():
    """Ten times the tolerance, about ten times the distance; at the smallest, float32 has not run out."""
    x, labels, weights = drawn(rows=300)
    coarse, fine = (compared(x, labels, weights, tolerance=tolerance)[0] for tolerance in (1e-4, 1e-6))
    assert fine < 2e-4 and coarse > 3 * fine
