"""Ranks by blocks against ranks by sorting nothing but one plain matrix in float64."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch import Tensor

from headwise.kernels import RankQuery, ov_logit_blocks, ov_logits, salience, top_targets, topk_hits


def plain(sources: Tensor, product: Tensor, asked: RankQuery) -> tuple[Tensor, Tensor]:
    """(head, draw, pair): fewer than k scores of the whole row are strictly larger, or smaller, than the target's."""
    scores = sources.double() @ product.double()  # (head, row, vocabulary)
    rows = scores[:, asked.rows.expand_as(asked.targets)]  # (head, draw, pair, vocabulary)
    own = rows.gather(3, asked.targets.expand(len(scores), -1, -1)[..., None])
    return (rows > own).sum(-1) < asked.k, (rows < own).sum(-1) < asked.k


def case(vocabulary: int, seed: int = 0, *, heads: int = 3, rows: int = 40, pairs: int = 60):
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randn(heads, rows, 8, generator=generator)
    product = torch.randn(heads, 8, vocabulary, generator=generator)
    asked = RankQuery(
        torch.randint(0, rows, (pairs,), generator=generator),
        torch.randint(0, vocabulary, (5, pairs), generator=generator),
        torch.tensor([1, 10, 25]).repeat(pairs // 3).clamp(max=vocabulary),
    )
    best = (sources @ product)[0].argsort(dim=1, descending=True)  # some targets that are surely near the top
    asked.targets[0] = best[asked.rows, torch.arange(pairs) % min(30, vocabulary)]
    asked.targets[1] = best[asked.rows, vocabulary - 1 - torch.arange(pairs) % min(30, vocabulary)]
    return sources, product, asked


@pytest.mark.parametrize("vocabulary", [1, 7, 31, 32, 131, 1000, 5003])
def test_blocks_agree_with_the_whole_matrix(vocabulary):
    sources, product, asked = case(vocabulary)
    largest, smallest = plain(sources, product, asked)
    found = topk_hits(sources, product, asked)
    assert torch.equal(found.largest, largest)
    assert torch.equal(found.smallest, smallest)
    if vocabulary > 100:
        assert 0 < largest[0, 0].float().mean() < 1
        assert 0 < smallest[0, 1].float().mean() < 1


@pytest.mark.parametrize("columns", [32, 96, 1000, 4096])
def test_the_size_of_a_block_does_not_matter(columns, monkeypatch):
    sources, product, asked = case(3000)
    whole = topk_hits(sources, product, asked)
    monkeypatch.setattr(ov_logits, "SCORE_BYTES", {"cpu": 4 * columns * 7})  # seven rows at a time
    monkeypatch.setattr(ov_logits, "EXACT_BYTES", {"cpu": 1})  # one row at a time
    monkeypatch.setattr(ov_logits, "TARGETS_AT_ONCE", 11)
    found = topk_hits(sources, product, asked, columns=columns)
    assert torch.equal(found.largest, whole.largest)
    assert torch.equal(found.smallest, whole.smallest)


def test_equal_scores_share_the_better_place():
    """Three tokens tie for the first place, so all three are first and the next one is fourth."""
    product = torch.tensor([[[5.0, 5.0, 5.0, 4.0, 3.0, 0.0, 0.0]]])
    asked = RankQuery(torch.zeros(7, dtype=torch.long), torch.arange(7)[None], torch.full((7,), 1))
    found = topk_hits(torch.ones(1, 1, 1), product, asked)
    assert found.largest[0, 0].tolist() == [True] * 3 + [False] * 4
    assert found.smallest[0, 0].tolist() == [False] * 5 + [True] * 2
    third = RankQuery(asked.rows, asked.targets, torch.full((7,), 3))
    assert topk_hits(torch.ones(1, 1, 1), product, third).largest[0, 0].tolist() == [True] * 3 + [False] * 4
    fourth = RankQuery(asked.rows, asked.targets, torch.full((7,), 4))
    assert topk_hits(torch.ones(1, 1, 1), product, fourth).largest[0, 0].tolist() == [True] * 4 + [False] * 3


def test_a_head_that_writes_nothing_finds_nothing():
    """All scores are nought: no target is larger than any other token, so none is found, although none is beaten."""
    asked = RankQuery(torch.arange(4), torch.arange(4)[None], torch.full((4,), 1))
    sources, product = torch.ones(2, 4, 2), torch.zeros(2, 2, 50)
    product[1, :, 2] = 1.0  # the second head writes token 2
    found = topk_hits(sources, product, asked)
    assert not found.largest[0].any()
    assert not found.smallest[0].any()
    assert found.largest[1, 0].tolist() == [False, False, True, False]


@pytest.mark.parametrize("budget", [1, 10_000, None])
def test_products_come_for_all_heads_in_order(budget):
    generator = torch.Generator().manual_seed(1)
    output, unembedding = torch.randn(5, 4, 16, generator=generator), torch.randn(700, 16, generator=generator)
    parts = list(ov_logit_blocks(output, unembedding.to(torch.bfloat16), budget))
    assert len(parts) == {1: 5, 10_000: 5, None: 1}[budget]
    assert [head for heads, _ in parts for head in range(5)[heads]] == list(range(5))
    whole = output.double() @ unembedding.to(torch.bfloat16).double().T
    torch.testing.assert_close(torch.cat([one for _, one in parts]).double(), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_salience_is_the_norm_of_what_is_written(kv_heads, monkeypatch):
    monkeypatch.setitem(import_module("headwise.kernels.ov_logits").ROWS, "cpu", 13)
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(50, 16, generator=generator)
    rows[7] = 0
    value, output = torch.randn(kv_heads, 16, 4, generator=generator), torch.randn(6, 4, 16, generator=generator)
    found = salience(rows, value, output)
    assert found[:, 7].tolist() == [0.0] * 6
    for head in range(6):
        moved = rows.double() @ value[head // (6 // kv_heads)].double() @ output[head].double()
        exact = moved.norm(dim=1) / rows.double().norm(dim=1).clamp(min=1e-30)
        torch.testing.assert_close(found[head].double(), exact, rtol=1e-5, atol=1e-6)


def test_top_targets_are_the_largest_scores():
    sources, product, _ = case(300)
    found = top_targets(sources, product, 5)
    exact = (sources.double() @ product.double()).argsort(dim=2, descending=True)[:, :, :5]
    assert torch.equal(found, exact)


def test_nothing_near_the_top_is_nothing_found():
    """Targets in the middle of their rows: no row is made again."""
    product = torch.linspace(-1, 1, 5000)[None, None]
    asked = RankQuery(torch.zeros(3, dtype=torch.long), torch.tensor([[2400, 2500, 2600]]), torch.full((3,), 10))
    found = topk_hits(torch.ones(1, 1, 1), product, asked)
    assert not found.largest.any()
    assert not found.smallest.any()
