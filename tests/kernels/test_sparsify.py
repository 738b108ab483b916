"""Rules that drop attention weights, against plain float64 forms, row by row."""

import numpy as np
import pytest
import torch

from headwise.core.errors import StudyError
from headwise.kernels import Attention, AttentionMask, SparsityRule, row_blocks, sparse_output
from headwise.kernels.sparsify import entmax

BATCH, HEADS, KV, TOKENS, WIDTH = 2, 4, 2, 11, 8
RULES = [
    SparsityRule("top", 3),
    SparsityRule("over", 0.1),
    SparsityRule("window", 3, sink=2),
    SparsityRule("entmax", 1.5),
    SparsityRule("random", 3),
]


def layer(tokens=TOKENS, window=None, key_valid=None, sharp=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(BATCH, n, tokens, WIDTH, generator=generator) for n in (HEADS, KV, KV))
    mask = AttentionMask(tokens, tokens, 0, torch.device("cpu"), window, key_valid)
    return Attention(q * sharp, k, WIDTH**-0.5, mask), v


def output(attention, v, rule=None, block=4_000_000):
    parts = [
        sparse_output(rows, rows.weights if rule is None else rule.apply(rows), v)
        for rows in row_blocks(attention, block)
    ]
    return torch.cat(parts, dim=1)


def plain_row(p, rule, row):
    """One row's weights by the table, in float64; p is over the keys 0 to row."""
    if rule.kind == "top":
        stays = np.argsort(-p)[: int(rule.amount)]
    elif rule.kind == "over":
        stays = [j for j in range(len(p)) if p[j] > rule.amount or j == p.argmax()]
    elif rule.kind == "window":
        stays = [j for j in range(len(p)) if row - j < rule.amount or j < rule.sink]
    else:
        return plain_entmax(np.log(p), rule.amount)
    new = np.zeros_like(p)
    new[stays] = p[stays]
    return new / new.sum() if rule.renormalise else new


def plain_entmax(logits, alpha):
    """By bisection."""
    x = (alpha - 1) * logits
    low, high = x.max() - 1, x.max()
    for _ in range(200):
        tau = (low + high) / 2
        if (np.clip(x - tau, 0, None) ** (1 / (alpha - 1))).sum() > 1:
            low = tau
        else:
            high = tau
    return np.clip(x - low, 0, None) ** (1 / (alpha - 1))


@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("rule", RULES[:4], ids=lambda rule: rule.kind)
def test_each_rule_is_its_plain_form(rule, renormalise):
    rule = SparsityRule(rule.kind, rule.amount, rule.sink, renormalise)
    attention, v = layer()
    p = attention.weights(dtype=torch.float64).numpy()
    expected = np.zeros((BATCH, TOKENS, HEADS, WIDTH))
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(TOKENS):
                expected[b, i, h] = plain_row(p[b, h, i, : i + 1], rule, i) @ v[b, h // 2, : i + 1].double().numpy()
    assert np.allclose(output(attention, v, rule), expected, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.1, 1.25, 1.5, 1.7, 2.0])
def test_entmax_is_what_bisection_finds(alpha):
    logits = np.random.default_rng(0).normal(size=(50, 20)) * 3
    found = entmax(torch.from_numpy(logits).softmax(-1), alpha)
    expected = np.stack([plain_entmax(row, alpha) for row in logits])
    assert np.allclose(found, expected, atol=1e-7)
    assert np.allclose(found.sum(-1), 1)


def test_entmax_near_one_is_softmax_and_at_two_the_projection_on_the_simplex():
    p = torch.randn(5, 12, dtype=torch.float64).softmax(-1)
    assert torch.allclose(entmax(p, 1.001), p, atol=5e-3)
    one = entmax(torch.tensor([[2.0, 1.5, -1.0]], dtype=torch.float64).softmax(-1), 2.0)
    assert torch.allclose(one, torch.tensor([[0.75, 0.25, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    "rule", [SparsityRule("top", 99), SparsityRule("over", 0.0), SparsityRule("window", 99), SparsityRule("random", 99)]
)
def test_what_keeps_all_gives_the_dense_output(rule):
    attention, v = layer()
    assert torch.allclose(output(attention, v, rule), output(attention, v), atol=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
@pytest.mark.parametrize("window", [None, 4])
def test_blocks_do_not_matter(rule, window):
    attention, v = layer(window=window)
    one_row = BATCH * HEADS * TOKENS
    assert torch.allclose(output(attention, v, rule, one_row), output(attention, v, rule), atol=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_padding_in_front_is_never_kept(rule):
    """Weights on padding keys are nought before and after; a text in a padded batch gives what it gives alone."""
    valid = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    valid[1, :3] = False
    attention, _ = layer(key_valid=valid)
    for rows in row_blocks(attention, 500):
        padding = ~valid[1, rows.keys]
        assert float(rule.apply(rows)[1][..., padding].sum()) == 0


def test_random_keeps_as_many_as_it_should_and_only_what_is_seen():
    attention, _ = layer()
    (rows,) = row_blocks(attention)
    kept = (SparsityRule("random", 3).apply(rows) > 0).sum(-1)
    assert kept.tolist() == [[[min(i + 1, 3) for i in range(TOKENS)]] * HEADS] * BATCH
    other = SparsityRule("random", 3, seed=1).apply(rows)
    assert not torch.equal(other > 0, SparsityRule("random", 3).apply(rows) > 0)


def test_a_sparse_models_cut_edges_stay_cut():
    attention, _ = layer()
    gated = Attention(attention.q, attention.k, attention.scale, attention.mask, gate=0.0)
    (rows,) = row_blocks(gated)
    for rule in RULES[:4]:
        assert not bool(((rule.apply(rows) > 0) & (rows.weights == 0)).any())
        assert bool(rule.apply(rows).isfinite().all())


@pytest.mark.parametrize(
    "wrong",
    [("topk", 3, 0), ("top", 0, 0), ("top", 2.5, 0), ("over", 1.0, 0), ("entmax", 1.0, 0), ("window", 3, -1)],
)
def test_what_is_no_rule_is_refused(wrong):
    with pytest.raises(StudyError):
        SparsityRule(*wrong)
