"""The Triton kernels against the plain definition in float64: at most twice as wrong as plain float32.

On a machine with a GPU they run there. Elsewhere Triton's interpreter runs them on the CPU, in a process of its own,
because it must be chosen before Triton is loaded: so that their arithmetic is guarded without a GPU.
"""

from dataclasses import replace

import pytest
import torch
from closeness import assert_reductions_close
from layers import Setting, attention_of, condition_of, everything
from triton_here import HAS_TRITON, INTERPRETED, interprets, needs_triton, on_device, runs, under_the_interpreter

from headwise.kernels import Attention, ReductionRequest, dispatch, reference

if HAS_TRITON:
    from headwise.kernels import fused

SETTINGS = {
    "plain": Setting(),
    "groups": Setting(heads=9, kv_heads=3, width=20),
    "several tiles": Setting(batch=1, heads=2, kv_heads=1, queries=200, width=16),
    "several tiles, window": Setting(batch=1, heads=2, kv_heads=1, queries=200, width=16, window=70),
    "wide heads": Setting(width=96, heads=2, kv_heads=1),
    "heads of 80": Setting(width=80, heads=2, kv_heads=1),
    "the widest heads": Setting(width=256, heads=2, kv_heads=1, dtype=torch.float16),
    "window": Setting(window=7),
    "left padding": Setting(batch=3, padding="left"),
    "window, right padding": Setting(batch=3, window=5, padding="right"),
    "cap, window, left padding": Setting(batch=3, softcap=3.0, window=6, padding="left"),
    "sinks": Setting(sinks=True),
    "sinks and cap": Setting(sinks=True, softcap=4.0),
    "cached keys, left padding": Setting(batch=3, queries=9, keys=31, padding="left"),
    "decode step": Setting(queries=1, keys=31),
    "more queries than keys": Setting(queries=31, keys=20),
    "sharp": Setting(spread=12.0),
    "bfloat16": Setting(dtype=torch.bfloat16),
    "float16, left padding": Setting(batch=3, dtype=torch.float16, padding="left"),
}
INTERPRETED_WITH_LSE = (
    "groups",
    "several tiles, window",
    "window, right padding",
    "cached keys, left padding",
    "sinks",
)


def all_but_top(attention: Attention) -> ReductionRequest:
    return replace(everything(attention), top=0)


@runs
@pytest.mark.parametrize("with_lse", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_reduction(name, with_lse, monkeypatch):
    setting = SETTINGS[name]
    queries = 1 if with_lse else fused.MIN_SORTED_QUERIES  # matches by sorting, or by comparing all keys
    monkeypatch.setattr(fused, "MIN_SORTED_QUERIES", queries)
    if with_lse and (setting.softcap is not None or setting.spread > 2):
        pytest.skip("the forward kernel gives none")
    if INTERPRETED and with_lse and name not in INTERPRETED_WITH_LSE:
        pytest.skip("the interpreter is slow, and this path runs with other settings")
    if INTERPRETED and setting.dtype == torch.bfloat16:
        pytest.skip("numpy, which the interpreter computes with, has no bfloat16")
    attention = attention_of(replace(setting, with_lse=with_lse))
    wanted = all_but_top(attention)
    assert fused.can_reduce(attention, wanted)
    got = fused.reduce(on_device(attention), wanted)
    for tensors in (got.query_weights, got.key_weights, got.token_matches, got.offsets, got.count_above):
        tensors |= {key: value.cpu() for key, value in tensors.items()}
    for key, value in vars(got).items():
        if isinstance(value, torch.Tensor):
            setattr(got, key, value.cpu())
    exact = reference.reduce(attention, wanted)
    plain = reference.reduce(attention, wanted, dtype=torch.float32)
    maps = attention.weights(dtype=torch.float64)
    cut = 3 if setting.width > 128 else 1  # many products are summed, by tensor cores that cut (H200: 2.5 times)
    assert_reductions_close(got, exact, plain, condition=cut * condition_of(attention), maps=maps)


@runs
def test_only_what_was_asked_for_comes_back():
    attention = on_device(attention_of(Setting()))
    assert list(fused.reduce(attention, ReductionRequest(column_sums=True)).flat()) == ["column_sums"]
    assert list(fused.reduce(attention, ReductionRequest(row_max=True)).flat()) == ["row_max"]


@runs
@pytest.mark.parametrize(
    "setting", [Setting(queries=150), Setting(batch=3, window=5, padding="right"), Setting(sinks=True)]
)
def test_column_sums_alone_and_beside_rows_a_few_heads_at_a_time(setting, monkeypatch):
    attention = attention_of(setting)
    exact = reference.reduce(attention, ReductionRequest(column_sums=True)).column_sums
    alone = fused.reduce(on_device(attention), ReductionRequest(column_sums=True)).column_sums
    monkeypatch.setattr(fused, "PARTIAL_SUM_BYTES", 3 * 4 * 4 * setting.queries**2)
    beside = fused.reduce(on_device(attention), ReductionRequest(column_sums=True, row_max=True)).column_sums
    for sums in (alone, beside):
        torch.testing.assert_close(sums.cpu().double(), exact, rtol=1e-5, atol=1e-5)


@runs
@pytest.mark.parametrize("also", [False, True])
def test_the_same_bits_every_time(also):
    attention = on_device(attention_of(Setting(batch=1, heads=2, kv_heads=1, queries=300, width=16)))
    wanted = ReductionRequest(column_sums=True, entropy=also)
    first, second = (fused.reduce(attention, wanted).column_sums for _ in range(2))
    assert torch.equal(first, second)


@needs_triton
def test_what_it_cannot_do_is_left_to_blocks():
    masked, plain = attention_of(Setting(mask="shared")), attention_of(Setting())
    assert not fused.can_reduce(masked, ReductionRequest(row_max=True))
    assert not fused.can_reduce(plain, ReductionRequest(top=3))
    assert not fused.can_reduce(replace(plain, q=plain.q.double()), ReductionRequest(row_max=True))


def test_a_cpu_never_asks_for_it(monkeypatch):
    monkeypatch.setattr(dispatch, "triton_module", lambda _: pytest.fail("imported"))
    attention = attention_of(Setting())
    assert dispatch.reduce(attention, ReductionRequest(row_max=True)).row_max is not None


@interprets
def test_under_the_interpreter():
    under_the_interpreter(__file__)
