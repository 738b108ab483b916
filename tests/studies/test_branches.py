"""Continuations of prompts as branches of one row: where they are, and what they see."""

import torch
from transformers.cache_utils import DynamicCache

from headwise.studies.branches import Branches


def branches() -> Branches:
    """Three prompts of which the middle one is not continued; the first is padded."""
    cache = DynamicCache()
    for layer in range(2):
        values = torch.arange(3.0)[:, None, None, None].expand(3, 1, 4, 2)
        cache.update(values, values, layer)
    seen = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])
    return Branches(cache, seen, torch.tensor([[1], [3], [3]]), [2, 0, 2])


def rows_of(cache: DynamicCache) -> list[float]:
    return cache.layers[1].keys[:, 0, 0, 0].tolist()


def test_a_branch_sees_its_prompt_and_itself():
    found = branches()
    assert rows_of(found.cache) == [0.0, 2.0]
    ids, positions, mask = found.append(torch.tensor([7, 8, 9]))
    assert ids.tolist() == [[8, 0], [7, 9]] and positions.tolist() == [[2, 0], [4, 4]]
    prompts = [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert mask[:, 0].int().tolist() == [
        [prompts[0] + [1, 0], [0, 0, 0, 0, 0, 1]],  # padding sees itself
        [prompts[1] + [1, 0], prompts[1] + [0, 1]],
    ]
    assert found.of_branches(ids[..., None])[:, 0].tolist() == [7, 8, 9]


def test_branches_that_stay_see_what_they_saw():
    found = branches()
    found.append(torch.tensor([7, 8, 9]))
    found.select(torch.tensor([2]))
    assert rows_of(found.cache) == [2.0]  # its prompt alone is left
    ids, positions, mask = found.append(torch.tensor([5]))
    assert ids.tolist() == [[5]] and positions.tolist() == [[5]]
    assert mask.int().tolist() == [[[[1, 1, 1, 1, 0, 1, 1]]]]  # not the branch that was next to it
    assert found.grid(torch.tensor([4])).tolist() == [[4]]
