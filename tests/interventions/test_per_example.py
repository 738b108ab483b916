"""A change for every row of a batch, against one row at a time."""

import numpy as np
import pytest
import torch
from planted import tiny_model

from headwise.core.errors import DataError
from headwise.instruments import HeadOutputs
from headwise.interventions import PerExample, ScaleHeads
from headwise.model import load
from headwise.seam import observe


@pytest.fixture(scope="module")
def model():
    return load(*tiny_model(layers=2))


def test_each_row_is_scaled_as_if_it_were_alone(model):
    factor = torch.ones(3, 2, 4)
    factor[1, 0, 2] = 0.5
    factor[2, 1, 0] = 0.0
    ids = torch.tensor([[5, 6, 7], [9, 8, 7], [4, 6, 9]])
    with torch.no_grad(), observe(model, PerExample(factor)):
        together = model.hf(ids, use_cache=False).logits
    for row, change in enumerate([None, ScaleHeads([(0, 2)], 0.5), ScaleHeads([(1, 0)], 0.0)]):
        with torch.no_grad(), observe(model, *[change] * (change is not None)):
            alone = model.hf(ids[row : row + 1], use_cache=False).logits
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-4, atol=1e-4)


def test_rows_that_left_take_their_change_along(model):
    factor = torch.ones(3, 2, 4)
    factor[2, 1, 0] = 0.0
    ids = torch.tensor([[4, 6, 9]])
    with torch.no_grad(), observe(model, PerExample(factor, rows=lambda: torch.tensor([2]))):
        left = model.hf(ids, use_cache=False).logits
    with torch.no_grad(), observe(model, ScaleHeads([(1, 0)], 0.0)):
        torch.testing.assert_close(left, model.hf(ids, use_cache=False).logits)


def test_a_shift_is_added_to_the_rows_it_is_for(model):
    shift = torch.zeros(2, 2, 4, 16)
    shift[1, 1, 3] = torch.arange(16.0)
    ids = torch.tensor([[5, 6, 7], [5, 6, 7]])
    with torch.no_grad(), observe(model, HeadOutputs([0, 1, 2])) as plain:
        model.hf(ids, use_cache=False)
    with torch.no_grad(), observe(model, PerExample(torch.ones(2, 2, 4), shift), HeadOutputs([0, 1, 2])) as moved:
        model.hf(ids, use_cache=False)
    gap = moved["outputs"]["z"].values - plain["outputs"]["z"].values
    np.testing.assert_allclose(gap[1, 1, 3], np.broadcast_to(np.arange(16.0), (3, 16)), atol=1e-5)
    gap[1, 1, 3] = 0
    assert np.abs(gap).max() == 0


def test_changes_for_another_number_of_rows_are_refused(model):
    factor = torch.ones(3, 2, 4)
    factor[0, 0, 0] = 0
    with pytest.raises(DataError, match="3 examples and the batch has 2"), observe(model, PerExample(factor)):
        model.hf(torch.tensor([[5, 6], [7, 8]]))
    with pytest.raises(DataError, match="example, layer, head"):
        PerExample(torch.ones(2, 3))
