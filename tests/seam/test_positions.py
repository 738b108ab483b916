"""Which tokens are meant, with padding on either side, in a first pass and in a decode step."""

import numpy as np
import pytest
import torch

from headwise.core.errors import DataError
from headwise.seam import ForwardContext, check_positions, position_index, position_mask

LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]).bool()
RIGHT = LEFT.flip(1)


def context(valid: torch.Tensor, before: list[int] | None = None) -> ForwardContext:
    """A pass; `before`: real tokens in the cache, of each example."""
    started = before or [0] * len(valid)
    return ForwardContext(0, None, valid, max(started), torch.tensor(started))


@pytest.mark.parametrize(
    ("positions", "left", "right"),
    [
        ("last", [[4], [4], [4]], [[2], [4], [0]]),
        ("first", [[2], [0], [4]], [[0], [0], [0]]),
        (0, [[2], [0], [4]], [[0], [0], [0]]),
        (1, [[3], [1], [-1]], [[1], [1], [-1]]),
        (-1, [[4], [4], [4]], [[2], [4], [0]]),
        (-2, [[3], [3], [-1]], [[1], [3], [-1]]),
        (7, [[-1], [-1], [-1]], [[-1], [-1], [-1]]),
        (-7, [[-1], [-1], [-1]], [[-1], [-1], [-1]]),
        ([0, -1, 3], [[2, 4, -1], [0, 4, 3], [4, 4, -1]], [[0, 2, -1], [0, 4, 3], [0, 0, -1]]),
        (np.int64(1), [[3], [1], [-1]], [[1], [1], [-1]]),
        (torch.tensor([[2], [-1], [4]]), [[2], [-1], [4]], [[2], [-1], [-1]]),
        (torch.tensor([[0, 4], [0, 4], [0, 4]]), [[-1, 4], [0, 4], [-1, 4]], [[0, -1], [0, 4], [0, -1]]),
    ],
)
def test_in_a_first_pass(positions, left, right):
    for valid, expected in ((LEFT, left), (RIGHT, right)):
        assert position_index(positions, context(valid)).tolist() == expected
        mask = torch.zeros_like(valid)
        for row, indices in enumerate(expected):
            for index in indices:
                if index >= 0:
                    mask[row, index] = True
        assert torch.equal(position_mask(positions, context(valid)), mask)


@pytest.mark.parametrize(
    ("positions", "chosen"),
    [
        ("all", [True, True, True]),
        ("last", [True, True, True]),
        ("decode", [True, True, True]),
        ("prompt", [False, False, False]),
        ("first", [False, False, False]),
        (0, [False, False, False]),
        (5, [False, True, False]),  # places 3, 5 and 1 are made in this step
        ([1, 3], [True, False, True]),
        (-1, [True, True, True]),
        (-2, [False, False, False]),
        (torch.tensor([[0], [0], [0]]), [False, False, False]),  # indices into the prompt
        (torch.tensor([[4], [4], [4]]), [False, False, False]),
    ],
)
def test_in_a_decode_step(positions, chosen):
    step = context(torch.ones(3, 1, dtype=torch.bool), before=[3, 5, 1])
    assert position_mask(positions, step)[:, 0].tolist() == chosen


def test_whole_passes():
    for valid in (LEFT, RIGHT):
        assert torch.equal(position_mask("all", context(valid)), valid)
        assert torch.equal(position_mask("prompt", context(valid)), valid)
        assert not bool(position_mask("decode", context(valid)).any())
    with pytest.raises(DataError, match="'all' differ in number between examples; name single tokens"):
        position_index("all", context(LEFT))


@pytest.mark.parametrize(
    ("positions", "found"),
    [
        ("end", "'end'"),
        ([], r"\[\]"),
        (1.5, "1.5"),
        (["last"], r"\['last'\]"),
        (torch.tensor([1, 2]), r"a int64 tensor of shape \(2,\)"),
        (torch.ones(2, 3), r"a float32 tensor of shape \(2, 3\)"),
        (torch.ones(2, 3, dtype=torch.bool), r"a bool tensor of shape \(2, 3\)"),
    ],
)
def test_what_is_no_position(positions, found):
    with pytest.raises(DataError, match=f"positions are 'all', 'last'.*; got {found}"):
        check_positions(positions)


def test_tensors_must_fit_the_batch():
    with pytest.raises(DataError, match="positions have 2 rows and the batch has 3 examples"):
        position_index(torch.zeros(2, 1, dtype=torch.long), context(LEFT))
    with pytest.raises(DataError, match="positions name token 5, but the batch has 5 tokens, counted from 0"):
        position_mask(torch.tensor([[5], [0], [0]]), context(LEFT))
