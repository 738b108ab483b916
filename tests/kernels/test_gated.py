"""Gated attention against the plain way: whole maps and autograd in float64, straight-through gates written out.

The Triton kernels are held to the same, on a GPU where there is one, else through the interpreter (see `test_fused`).
"""

from dataclasses import replace

import pytest
import torch
from layers import Setting, attention_of
from triton_here import DEVICE, HAS_TRITON, interprets, needs_triton, runs, under_the_interpreter

from headwise.kernels import gated as gating
from headwise.kernels.gated import gated

if HAS_TRITON:
    from headwise.kernels import triton_gated

SETTINGS = {
    "plain": Setting(),
    "groups": Setting(heads=9, kv_heads=3, width=16),
    "window": Setting(window=7),
    "left padding": Setting(batch=3, padding="left"),
    "cap, right padding": Setting(batch=3, softcap=3.0, padding="right"),
    "cached keys": Setting(queries=9, keys=31),
    "masks of their own": Setting(mask="per_head"),
}


def ready(setting, gate=0.3):
    attention = attention_of(replace(setting, dtype=torch.float64))
    v = torch.randn(*attention.k.shape[:3], 5, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    return replace(attention, gate=gate, lse=None), v


def plainly(attention, v, is_open=None, straight=True):
    """y, expected and opened by the book; gates are given, or hard."""
    group = attention.group
    k, v = attention.k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = attention.q @ k.transpose(-1, -2) * attention.scale
    if attention.softcap is not None:
        s = torch.tanh(s / attention.softcap) * attention.softcap
    seen = attention.mask.matrix()
    s = s.masked_fill(~seen, -1e30)
    counts = attention.mask.valid_queries(len(s))[:, None, :, None]
    chance = torch.sigmoid(s + attention.gate) * counts
    hard = ((s + attention.gate > 0) & counts if is_open is None else is_open).to(s.dtype)
    gates = hard + chance - chance.detach() if straight else hard
    y = (gates * s.softmax(-1)) @ v
    return y.transpose(1, 2), chance.sum((-2, -1)), hard.sum((-2, -1))


def gradients(outputs, inputs):
    weights = torch.Generator().manual_seed(1)
    total = sum((out * torch.randn(out.shape, generator=weights, dtype=torch.float64)).sum() for out in outputs)
    return torch.autograd.grad(total, inputs)


@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_output_and_gradient(name, straight, monkeypatch):
    monkeypatch.setattr(gating, "BLOCK", 3000)  # several blocks
    attention, v = ready(SETTINGS[name])
    inputs = [t.requires_grad_() for t in (attention.q, attention.k, v)]
    got, expected = gated(attention, v, straight=straight), plainly(attention, v, straight=straight)
    for mine, plain in zip(got, expected, strict=True):
        assert torch.allclose(mine, plain, atol=1e-12)
    assert 0 < float(got.opened.sum()) < float(attention.mask.matrix().expand(*got.opened.shape, -1, -1).sum())
    for mine, plain in zip(gradients(got[:2], inputs), gradients(expected[:2], inputs), strict=True):
        assert torch.allclose(mine, plain, atol=1e-11)


def test_the_soft_part_by_differences():
    attention, v = ready(Setting(batch=1, heads=2, kv_heads=1, queries=6, keys=6, width=4))
    inputs = [t.requires_grad_() for t in (attention.q, attention.k, v)]

    def soft(q, k, v):
        one = replace(attention, q=q, k=k)
        found = gated(one, v, straight=False)
        return found.y, found.expected

    assert torch.autograd.gradcheck(soft, inputs)


def test_noise_is_the_same_going_back_and_has_the_right_odds(monkeypatch):
    monkeypatch.setattr(gating, "BLOCK", 5000)
    attention, _ = ready(Setting(batch=4, heads=4, kv_heads=2, queries=24, keys=24, width=8))
    v = torch.eye(24, dtype=torch.float64).expand(4, 2, -1, -1).clone()
    inputs = [t.requires_grad_() for t in (attention.q, attention.k, v)]
    got = gated(attention, v, noise=5)
    is_open = got.y.detach().transpose(1, 2) > 0
    expected = plainly(attention, v, is_open)
    for mine, plain in zip(gradients(got[:2], inputs), gradients(expected[:2], inputs), strict=True):
        assert torch.allclose(mine, plain, atol=1e-11)
    draws = torch.stack([gated(attention, v, noise=seed).opened.sum() for seed in range(40)])
    mean, deviation = float(got.expected.detach().sum()), float(draws.std())
    assert abs(float(draws.mean()) - mean) < 5 * deviation / 40**0.5


def test_a_row_without_an_open_edge_writes_nothing():
    attention, v = ready(Setting(), gate=-1e6)
    got = gated(attention, v)
    assert float(got.opened.sum()) == 0
    assert not got.y.any()


@runs
@pytest.mark.parametrize("noise", [None, 3])
@pytest.mark.parametrize("tokens", [16, 150])
def test_tiles(tokens, noise):
    width = 16 if tokens == 16 else 32
    setting = Setting(batch=2, heads=6, kv_heads=2, queries=tokens, keys=tokens, width=width)
    exact, _ = ready(setting)
    v = torch.randn(2, 2, tokens, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    if noise is not None and tokens == width:
        v = torch.eye(tokens, dtype=torch.float64).expand(2, 2, -1, -1).clone()
    single = [t.float().to(DEVICE).requires_grad_() for t in (exact.q, exact.k, v)]
    mask = replace(exact.mask, device=DEVICE)
    attention = replace(exact, q=single[0], k=single[1], mask=mask)
    assert triton_gated.can_gate(attention, single[2])
    got = gating.Gated(*triton_gated.gated(attention, single[2], noise, True))
    if noise is not None and tokens != width:
        assert 0 < float(got.opened.sum()) < float(exact.mask.matrix().sum()) * 12
        return
    is_open = None if noise is None else (got.y.detach().transpose(1, 2) > 0).cpu()
    inputs = [t.requires_grad_() for t in (exact.q, exact.k, v)]
    expected = plainly(exact, v, is_open)
    for mine, plain in zip(got, expected, strict=True):
        assert torch.allclose(mine.cpu().double(), plain, atol=2e-5, rtol=1e-5)
    got_cpu = [got.y.cpu().double(), got.expected.cpu().double()]
    for mine, plain in zip(gradients(got_cpu, single), gradients(expected[:2], inputs), strict=True):
        assert torch.allclose(mine.cpu().double(), plain, atol=2e-4, rtol=1e-4)


@needs_triton
def test_what_the_tiles_cannot_do_is_left_to_blocks():
    for setting in (Setting(window=5), Setting(batch=3, padding="left"), Setting(queries=3, keys=9), Setting(width=20)):
        attention, v = ready(setting)
        assert not triton_gated.can_gate(attention, v)


@interprets
def test_under_the_interpreter():
    under_the_interpreter(__file__, "-k", "tiles")
