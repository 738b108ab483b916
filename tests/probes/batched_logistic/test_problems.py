import pytest
import torch

from headwise.probes.batched_logistic.problems import ProblemBatch


@pytest.mark.parametrize(
    "cells",
    [
        [0, 0, 1, 1, 2, 2],  # even: one batched product
        [0, 1, 1, 1, 2],
        [0, 0, 2],  # nothing left of cell 1
    ],
)
def test_each_problem_meets_its_own_cells_matrix(cells):
    random = torch.Generator().manual_seed(0)
    vectors, matrices = torch.randn(len(cells), 5, generator=random), torch.randn(3, 5, 4, generator=random)
    batch = ProblemBatch(torch.tensor(cells), 3)
    plain = torch.stack([vectors[place] @ matrices[cell] for place, cell in enumerate(cells)])
    torch.testing.assert_close(batch.product(vectors, matrices), plain)
    turned = torch.stack([vectors[place] @ matrices[cell] @ matrices[cell].T for place, cell in enumerate(cells)])
    torch.testing.assert_close(batch.product(plain, matrices.mT), turned)


def test_means_are_over_the_problems_of_a_cell():
    batch = ProblemBatch(torch.tensor([0, 0, 2]), 3)
    found = batch.mean(torch.tensor([[1.0, 4.0], [3.0, 0.0], [5.0, 5.0]]))
    assert found.tolist() == [[2.0, 2.0], [0.0, 0.0], [5.0, 5.0]]


def test_problems_leave_one_by_one_and_matrices_stay():
    batch = ProblemBatch(torch.tensor([0, 0, 1, 1]), 2)
    stays, cells = batch.remaining(torch.tensor([False, True, True, True]))
    assert stays.tolist() == [True, False, False, False] and cells.all()
