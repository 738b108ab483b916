"""Where a layer's output comes from: a fused kernel that gives its log-sum-exp away, or eager in slices."""

import pytest
import torch
from families import build, padded, texts, tiny
from layers import logits_of
from watchers import Recorder

from headwise.seam import observe, outputs


def seen(model, **batch) -> tuple[Recorder, torch.Tensor]:
    recorder = Recorder()
    with torch.no_grad(), observe(model, recorder):
        logits = model(**batch).logits
    return recorder, logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "granite"])
@pytest.mark.parametrize("length", [1, 2, 77])
def test_the_kernels_log_sum_exp(family, dtype, length):
    """Plain causal mask on a CPU: kept from the fused kernel, and right for every head, with shared keys too."""
    model = tiny(family) if dtype == torch.float32 else build(family).to(dtype)
    recorder, _ = seen(model, input_ids=torch.stack(texts(length, length)))
    for call in recorder.calls.values():
        lse = call.attention.lse
        assert lse is not None
        assert lse.dtype == torch.float32
        exact = logits_of(call.attention).logsumexp(dim=-1)
        torch.testing.assert_close(lse.double(), exact, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 2e-2)


def test_where_the_kernel_cannot_tell():
    """Masks, unlike widths, gradients: another way, without a log-sum-exp, to the same z."""
    for family, batch in (("llama", padded(texts(9, 5), "left")), ("deepseek_v3", {"input_ids": texts(9)[0][None]})):
        recorder, _ = seen(tiny(family), **batch)
        assert all(call.attention.lse is None for call in recorder.calls.values())
    model, ids = build("llama"), texts(9)[0][None]
    with_gradient = Recorder()
    with observe(model, with_gradient):
        model(input_ids=ids)
    without, _ = seen(model, input_ids=ids)
    assert with_gradient.calls[0].attention.lse is None
    torch.testing.assert_close(with_gradient.zs[0][0], without.zs[0][0], rtol=1e-5, atol=1e-5)
    for name, value in with_gradient.calls[0].reductions.flat().items():
        expected = without.calls[0].reductions.flat()[name]
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
@pytest.mark.parametrize("rows", [1, 8, 1000])
@pytest.mark.parametrize("side", ["alone", "left"])
def test_eager_in_slices(monkeypatch, family, rows, side):
    """Soft-caps and sinks: the family's own eager function, some queries at a time."""
    batch = {"input_ids": texts(21)[0][None]} if side == "alone" else padded(texts(21, 13), "left")
    with torch.no_grad():
        expected = tiny(family)(**batch).logits
    monkeypatch.setattr(outputs, "EAGER_ROWS", rows)
    _, logits = seen(tiny(family), **batch)
    real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    torch.testing.assert_close(logits[real], expected[real], rtol=0, atol=2e-5 * float(expected.std()))


def test_a_module_without_an_eager_function():
    with pytest.raises(outputs.SeamError, match="Linear has no eager_attention_forward in its file"):
        outputs.eager_function(torch.nn.Linear(2, 2))
