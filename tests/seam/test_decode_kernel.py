"""Generation under the kernel of a decode step: what `RunningAnswerRows` reads is what it reads without, and so are the tokens.

On a GPU the seam chooses the kernel itself; through Triton's interpreter it is put in its place (see `kernels/test_fused`).
"""

from typing import Any

import numpy as np
import pytest
import torch
from families import build, padded, texts
from transformers import StaticCache
from triton_here import DEVICE, HAS_TRITON, INTERPRETED, interprets, runs, under_the_interpreter

from headwise.instruments import HeadOutputs, RunningAnswerRows
from headwise.interventions import ScaleHeads
from headwise.model.gate import put_gate
from headwise.seam import forward, observe

if HAS_TRITON:
    from headwise.kernels import decode as host

NEW = 5
FAMILIES = ["llama", "gpt2", "mistral", "gemma2", "gemma3_text", "gpt_oss", "jamba"]
HALF = torch.float16 if INTERPRETED else torch.bfloat16


@pytest.fixture
def launched(monkeypatch):
    """The layers whose row the kernel summed, in order."""
    layers: list[int] = []

    def counted(self: Any, layer: int, *given: Any) -> Any:
        layers.append(layer)
        return call(self, layer, *given)

    call = host.Launch.__call__
    monkeypatch.setattr(host.Launch, "__call__", counted)
    monkeypatch.setattr(forward, "decode_step", lambda marks, device, *, alone: host.DecodeStep(marks))
    return layers


def generate(model: Any, *instruments: Any, static: bool = False) -> torch.Tensor:
    batch = padded(texts(12, 7), "left")
    prompt = {name: batch[name].to(DEVICE) for name in ("input_ids", "attention_mask")}
    cache = {"past_key_values": StaticCache(config=model.config, max_cache_len=40)} if static else {}
    with torch.no_grad(), observe(model, *instruments):
        return model.generate(**prompt, **cache, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False).cpu()


def without_kernel(monkeypatch, model: Any, *instruments: Any, **kwargs: Any) -> torch.Tensor:
    with monkeypatch.context() as patch:
        patch.setattr(forward, "decode_step", lambda *args, **alone: None)
        return generate(model, *instruments, **kwargs)


@runs
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_same_tokens_and_same_means(family, static, launched, monkeypatch):
    if static and family == "jamba":
        pytest.skip("its cache is its own")
    model, plain, kernel = build(family).to(DEVICE), RunningAnswerRows(), RunningAnswerRows()
    expected = without_kernel(monkeypatch, model, plain, static=static)
    assert launched == []
    assert torch.equal(generate(model, kernel, static=static), expected)
    assert len(launched) == len(set(launched)) * (NEW - 1) > 0
    torch.testing.assert_close(kernel.last, plain.last, rtol=1e-3, atol=1e-4, equal_nan=True)
    torch.testing.assert_close(kernel.means, plain.means, rtol=1e-3, atol=1e-4, equal_nan=True)


@runs
def test_beside_an_intervention_and_another_instrument(launched, monkeypatch):
    model = build("llama").to(DEVICE)
    found = []
    for run in (lambda *given: without_kernel(monkeypatch, *given), generate):
        outputs, rows = HeadOutputs("last"), RunningAnswerRows()
        ids = run(model, rows, outputs, ScaleHeads("L1H2", 0.0))
        found.append((ids, outputs.result().z.values, rows.means))
    assert len(launched) == len(set(launched)) * (NEW - 1)
    assert torch.equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[0][2], found[1][2], rtol=1e-3, atol=1e-4)


@runs
def test_two_readers_read_the_row_itself(launched, monkeypatch):
    """Unlike marks: neither is summed by the kernel."""
    model, one, other = build("llama").to(DEVICE), RunningAnswerRows(), RunningAnswerRows()
    generate(model, one, other)
    assert launched == []
    torch.testing.assert_close(one.means, other.means)


@runs
def test_examples_leave_the_batch(launched):
    model, both, single = build("llama").to(DEVICE), RunningAnswerRows(), RunningAnswerRows()
    ids = torch.stack([texts(9)[0], texts(9, seed=4)[0]]).to(DEVICE)
    follow = texts(3, seed=5)[0].to(DEVICE)
    for running, start, chosen in ((both, ids, [1]), (single, ids[1:], [0])):
        with torch.no_grad(), observe(model, running):
            cache = model(input_ids=start, use_cache=True).past_key_values
            model(input_ids=follow[:1].expand(len(start), 1), past_key_values=cache)
            lines = torch.tensor(chosen, device=DEVICE)
            cache.batch_select_indices(lines)
            running.select(lines)
            for token in follow[1:]:
                model(input_ids=token.view(1, 1), past_key_values=cache)
    assert both.rows.tolist() == [4]
    torch.testing.assert_close(both.means, single.means, rtol=1e-3, atol=1e-4)


@runs
def test_half_precision(launched):
    """The output is the kernel's own, as near to the model in float32 as SDPA's is."""
    model = build("llama").to(DEVICE)
    outputs = []
    for dtype, instruments in ((torch.float32, ()), (HALF, ()), (HALF, (RunningAnswerRows(),))):
        seen = HeadOutputs("last")
        with torch.no_grad(), observe(model.to(dtype), seen, *instruments):
            cache = model(input_ids=texts(12)[0][None].to(DEVICE), use_cache=True).past_key_values
            model(input_ids=texts(1, seed=3)[0][None].to(DEVICE), past_key_values=cache)
        outputs.append(seen.result().z.values[-1])
    assert launched
    exact, plain, kernel = outputs
    assert np.abs(kernel - exact).max() <= 2 * np.abs(plain - exact).max() + 1e-6


@runs
def test_a_sparse_model_is_left_to_the_row(launched):
    model = build("llama")
    put_gate(model, -0.3)
    running = RunningAnswerRows()
    generate(model.to(DEVICE), running)
    assert launched == []
    assert running.rows.tolist() == [NEW, NEW]


@interprets
def test_under_the_interpreter():
    under_the_interpreter(__file__)
