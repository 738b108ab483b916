"""The sketch against the whole matrix X'DX and its eigenvectors."""

import torch

from headwise.probes.batched_logistic.problems import ProblemBatch
from headwise.probes.batched_logistic.solver import RANK, precondition, sketch_curvature


def drawn(cells=2, rows=300, width=150):
    random = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(width, width, generator=random))[0]
    x = torch.randn(cells, rows, width, generator=random) * (1.0 + torch.arange(width)) ** -0.5 @ turn
    return x, torch.rand(cells, rows, generator=random) / 4


def largest(x, curvature):
    """The RANK largest eigenvalues and vectors, in float64."""
    values, vectors = torch.linalg.eigh((x.mT * curvature[:, None]).double() @ x.double())
    return values[:, -RANK:].flip(1), vectors[:, :, -RANK:].flip(2)


def missed(sketch, vectors, count=RANK // 2):
    """How much of the largest eigenvectors lies outside the sketch, 0 to 1."""
    inside = sketch.vectors.double().mT @ vectors[:, :, :count]
    return float(1 - inside.square().sum(dim=1).mean())


def test_each_sketch_from_the_last_is_nearer_to_the_largest_directions():
    x, curvature = drawn()
    values, vectors = largest(x, curvature)
    sketches = [sketch_curvature(x, curvature)]
    for _ in range(3):
        sketches.append(sketch_curvature(x, curvature, sketches[-1].vectors))
    far = [missed(sketch, vectors) for sketch in sketches]
    assert far[0] > 0.05 and far[3] < far[1] < far[0] and far[3] < 0.02
    torch.testing.assert_close(sketches[3].values[:, :5].double(), values[:, :5], rtol=0.02, atol=0)
    for sketch in sketches:
        eye = torch.eye(RANK).expand(2, -1, -1)
        torch.testing.assert_close(sketch.vectors.mT @ sketch.vectors, eye, atol=1e-4, rtol=0)


def test_solving_in_the_sketch_is_its_formula_written_out():
    x, curvature = drawn()
    sketch, ridge = sketch_curvature(x, curvature), 0.5
    batch = ProblemBatch(torch.tensor([0, 1, 1]), 2)
    values = sketch.values[batch.cells] * torch.tensor([[1.0], [0.5], [2.0]])
    gradient = torch.randn(3, 150, generator=torch.Generator().manual_seed(2))
    found = precondition(batch, sketch.vectors, 1 / (values + ridge), gradient)
    for place, cell in enumerate(batch.cells):
        v, rest = sketch.vectors[cell], values[place, -1] + ridge
        whole = v @ torch.diag(values[place] + ridge - rest) @ v.T + rest * torch.eye(150)
        torch.testing.assert_close(found[place], torch.linalg.solve(whole, gradient[place]), atol=1e-3, rtol=1e-3)
