import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn.functional import softplus

from headwise.probes.batched_logistic import solver as module
from headwise.probes.batched_logistic.solver import Line, MarginState, _dot


def lines(*, far):
    """Three problems of 40 rows in float64, all of them downhill; the lowest point lies about ``far`` away."""
    random = torch.Generator().manual_seed(1)
    margin, along = (torch.randn(3, 40, generator=random).double() for _ in range(2))
    labels = (torch.rand(3, 40, generator=random) < 0.5).double()
    weights = torch.rand(3, 40, generator=random).double()
    along = along.abs() * (labels - 0.5) / far
    begin = MarginState.at(margin, weights, -weights * labels)
    pull, stiffness = torch.full((3, 1), 0.1).double() / far, torch.tensor([[0.5], [1.0], [2.0]]).double() / far**2
    return begin, Line(along, _dot(begin.residual, along) + pull, pull, stiffness), weights, labels


@pytest.mark.parametrize("far", [0.01, 1.0, 100.0])
def test_the_lowest_point_is_that_of_the_function(far, monkeypatch):
    monkeypatch.setattr(module, "_LINE_SLOPE_LEFT", 1e-9)
    begin, line, weights, labels = lines(far=far)
    t, there, slope = line.lowest(begin, weights, -weights * labels)
    for p in range(3):

        def loss(step, p=p):
            margin = begin.margin[p] + step * line.along[p]
            data = (weights[p] * (softplus(margin) - labels[p] * margin)).sum()
            return float(data + step * line.penalty_slope[p, 0] + step**2 * line.penalty_curvature[p, 0] / 2)

        assert float(t[p]) == pytest.approx(minimize_scalar(loss, tol=1e-12).x, rel=1e-5)
    assert slope.abs().max() <= 1e-9 * line.slope.abs().max()
    torch.testing.assert_close(there.margin, begin.margin + t * line.along)
    chance = there.margin.sigmoid()
    torch.testing.assert_close(there.residual, weights * (chance - labels))
    torch.testing.assert_close(there.curvature, weights * chance * (1 - chance))


def test_a_fifth_of_the_slope_is_enough():
    begin, line, weights, labels = lines(far=1.0)
    _, _, slope = line.lowest(begin, weights, -weights * labels)
    assert (slope.abs() <= 0.2 * line.slope.abs()).all()
