"""Drop and Replace on running models: in a pass, in generation, padded, and what is refused."""

import pytest
import torch
from planted import tiny_model

from headwise.core.errors import DataError
from headwise.interventions import DropAttention, Replace
from headwise.kernels import SparsityRule
from headwise.model import load
from headwise.seam import Structure, observe


@pytest.fixture(scope="module", params=["llama", "gpt2", "mistral"])
def structure(request):
    return Structure(load(*tiny_model(request.param)))


@pytest.fixture
def ids():
    return torch.randint(5, 150, (2, 12), generator=torch.Generator().manual_seed(0))


def logits(structure, ids, *watchers, **options):
    with torch.no_grad(), observe(structure, *watchers):
        return structure.hf(input_ids=ids, use_cache=False, **options).logits


def test_a_rule_that_keeps_all_changes_nothing(structure, ids):
    plain = logits(structure, ids)
    for rule in (SparsityRule("top", 99), SparsityRule("window", 99), SparsityRule("over", 0.0)):
        assert torch.allclose(logits(structure, ids, DropAttention(rule)), plain, atol=1e-4)


def test_a_rule_that_drops_changes_something_and_causality_holds(structure, ids):
    cut = logits(structure, ids, DropAttention(SparsityRule("top", 2)))
    assert not torch.allclose(cut, logits(structure, ids), atol=1e-3)
    shorter = logits(structure, ids[:, :7], DropAttention(SparsityRule("top", 2)))
    assert torch.allclose(cut[:, :7], shorter, atol=1e-4)


def test_padding_on_the_left_is_ignored(structure, ids):
    alone = logits(structure, ids[1:, 4:], DropAttention(SparsityRule("top", 2)))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    position = (mask.cumsum(1) - 1).clamp(min=0)
    padded = logits(structure, ids, DropAttention(SparsityRule("top", 2)), attention_mask=mask, position_ids=position)
    assert torch.allclose(padded[1, 4:], alone[0], atol=1e-4)


def test_a_decode_step_drops_over_the_whole_cache(structure, ids):
    whole = logits(structure, ids, DropAttention(SparsityRule("window", 3, sink=1)))
    with torch.no_grad(), observe(structure, DropAttention(SparsityRule("window", 3, sink=1))):
        before = structure.hf(input_ids=ids[:, :-1], use_cache=True)
        last = structure.hf(input_ids=ids[:, -1:], past_key_values=before.past_key_values, use_cache=True).logits
    assert torch.allclose(last[:, 0], whole[:, -1], atol=1e-4)


def test_heads_that_are_not_there_are_refused(structure, ids):
    with pytest.raises(DataError, match="L9H0"):
        logits(structure, ids, DropAttention(SparsityRule("top", 2), "L9H0"))


def test_z_of_another_shape_is_refused(structure, ids):
    values = {layer: torch.zeros(2, 5, 4, 16) for layer in range(3)}
    with pytest.raises(DataError, match="as many examples and tokens"):
        logits(structure, ids, Replace(values, torch.ones(2, 3, 4, dtype=torch.bool)))
