"""The kernel of a decode step against the plain definition in float64, on a GPU or through the interpreter (see `test_fused`).

Its z in half precision may be at most twice as wrong as SDPA's; its sums, in float32, as a plain computation of them.
"""

from dataclasses import replace

import pytest
import torch
from closeness import assert_no_worse_than_twice
from layers import Setting, attention_of, condition_of
from torch.nn.functional import scaled_dot_product_attention
from triton_here import (
    DEVICE,
    HAS_TRITON,
    INTERPRETED,
    interprets,
    needs_triton,
    on_device,
    runs,
    under_the_interpreter,
)

from headwise.kernels import Attention, AttentionMask
from headwise.kernels.contract import RowMarks, RowStatistics
from headwise.kernels.rows import RowKeys, row_logs, row_output, row_statistics

if HAS_TRITON:
    from headwise.kernels import decode as host
    from headwise.kernels.decode import decode

SETTINGS = {
    "plain": Setting(keys=150),
    "one tile": Setting(keys=9),
    "one key": Setting(keys=1),
    "groups of three": Setting(heads=9, kv_heads=3, width=20, keys=90),
    "no groups": Setting(heads=4, kv_heads=4, keys=70),
    "a group of 20": Setting(batch=1, heads=20, kv_heads=1, keys=70),
    "heads of 80": Setting(width=80, heads=2, kv_heads=1, keys=70),
    "the widest heads": Setting(width=256, heads=2, kv_heads=1, keys=70, dtype=torch.float16),
    "heads of 128, half": Setting(width=128, heads=8, kv_heads=2, keys=300, dtype=torch.float16),
    "left padding": Setting(batch=3, padding="left", keys=150),
    "window, left padding": Setting(batch=3, window=60, padding="left", keys=150),
    "cap": Setting(softcap=3.0, keys=70),
    "sinks": Setting(sinks=True, keys=150),
    "sinks, cap, left padding": Setting(batch=3, sinks=True, softcap=4.0, padding="left", keys=70),
    "a mask of its own": Setting(mask="batched", keys=150),
    "sharp": Setting(spread=12.0, keys=150),
    "bfloat16": Setting(width=128, dtype=torch.bfloat16, keys=300),
    "float16, left padding": Setting(batch=3, dtype=torch.float16, padding="left", keys=150),
    "many splits": Setting(batch=1, heads=4, kv_heads=1, keys=2500, width=64, dtype=torch.float16),
}
BOUNDARY = 0.6  # of the keys are the prompt's


def ready(setting: Setting) -> tuple[Attention, torch.Tensor]:
    attention = attention_of(replace(setting, queries=1))
    generator = torch.Generator().manual_seed(7)
    v = torch.randn(attention.k.shape, generator=generator).to(attention.k.dtype)
    return attention, v


def marks_of(attention: Attention, forgotten: int = 0, unused: int = 0) -> RowMarks:
    """The own token is the last one; the first one is the first that is visible."""
    batch, keys = len(attention.q), attention.k.shape[2] - unused + forgotten
    marks = RowMarks(3, attention.q.shape[1])
    visible = attention.mask.rows(None)
    valid = attention.mask.key_valid
    first = torch.zeros(batch, dtype=torch.long) if valid is None else valid.int().argmax(dim=1)
    assert visible is None or len(visible) in (1, batch)
    own = torch.full((batch,), keys - 1)
    end = torch.full((batch,), int(BOUNDARY * keys))
    numbers = torch.full((batch,), 13), torch.full((batch,), 5)
    marks.step(torch.stack([own, own - 1, first, end, *numbers], dim=1), keys)
    return marks


def expected(
    attention: Attention, v: torch.Tensor, marks: RowMarks, dtype: torch.dtype
) -> tuple[torch.Tensor, RowStatistics]:
    """From whole maps."""
    a = attention.weights(dtype=dtype)
    seen = attention.mask.n_visible_keys(len(a))
    keys = RowKeys.of_step(marks, seen, a.shape[3])
    sums = row_statistics(a.log(), keys, mass=attention.sinks is not None)
    return row_output(a, v.to(dtype)), sums


def assert_right(attention: Attention, v: torch.Tensor, marks: RowMarks, layer: int = 1) -> RowStatistics:
    moved = on_device(attention)
    marks.step(marks.places.to(DEVICE), marks.tokens)
    z = decode(moved, v.to(DEVICE), marks, layer)
    assert z is not None
    sums = marks.on(z.device)[1].cpu()
    assert bool(sums[[one for one in range(3) if one != layer]].isnan().all())
    marks.step(marks.places.cpu(), marks.tokens)
    exact_z, exact = expected(attention, v, marks, torch.float64)
    plain_z, plain = expected(attention, v, marks, torch.float32)
    condition = condition_of(attention)
    if attention.q.dtype != torch.float32 and attention.softcap is None and attention.sinks is None:
        k, values = (one.repeat_interleave(attention.group, 1) for one in (moved.k, v.to(DEVICE)))
        plain_z = scaled_dot_product_attention(
            moved.q, k, values, attn_mask=moved.mask.matrix(), scale=attention.scale
        ).transpose(1, 2)
    assert z.dtype == attention.q.dtype
    assert_no_worse_than_twice(z.cpu(), exact_z, plain_z.cpu(), condition=condition, what="z")
    for name, got, sure, plainly in zip(RowStatistics._fields, sums[layer].unbind(-1), exact, plain, strict=True):
        wide = sure.expand(*got.shape, 1)[..., 0]
        assert_no_worse_than_twice(got, wide, plainly.expand(*got.shape, 1)[..., 0], condition=condition, what=name)
    return RowStatistics(*sums[layer].unbind(-1))


@runs
@pytest.mark.parametrize("name", SETTINGS)
def test_output_and_sums(name):
    if INTERPRETED and SETTINGS[name].dtype == torch.bfloat16:
        pytest.skip("numpy, which the interpreter computes with, has no bfloat16")
    attention, v = ready(SETTINGS[name])
    assert_right(attention, v, marks_of(attention))


@runs
def test_values_of_another_width():
    attention, _ = ready(Setting(keys=90, width=24))
    v = torch.randn(2, 2, 90, 16, generator=torch.Generator().manual_seed(1))
    assert_right(attention, v, marks_of(attention))


@runs
def test_a_window_that_has_forgotten_the_first_tokens():
    attention, v = ready(Setting(keys=70))
    marks = marks_of(attention, forgotten=50)
    assert bool((assert_right(attention, v, marks).sink == 0).all())


@runs
def test_a_cache_longer_than_its_content():
    """Keys that no query sees are not even read: here they are NaN."""
    attention, v = ready(Setting(keys=90))
    marks = marks_of(attention)
    exact_z, exact = expected(attention, v, marks, torch.float64)
    spoiled = torch.full((2, 2, 40, 16), torch.nan)
    k, v = torch.cat([attention.k, spoiled], dim=2), torch.cat([v, spoiled], dim=2)
    visible = (torch.arange(130) < 90).expand(2, 1, 1, -1)
    mask = AttentionMask(1, 130, 89, torch.device("cpu"), explicit=visible)
    marks.step(marks.places.to(DEVICE), 90)
    z = decode(on_device(replace(attention, k=k, mask=mask)), v.to(DEVICE), marks, 0)
    torch.testing.assert_close(z.cpu().double(), exact_z, rtol=1e-5, atol=1e-5)
    for got, sure in zip(marks.on(DEVICE)[1][0].cpu().unbind(-1), exact, strict=True):
        torch.testing.assert_close(got.double(), sure.double().expand(*got.shape, 1)[..., 0], rtol=1e-5, atol=1e-5)


@runs
def test_steps_of_one_answer_leave_nothing_behind():
    """The same marks step after step, with more keys and fewer examples: buffers are made again, arrivals are zero."""
    marks = RowMarks(3, 6)
    for keys, batch in ((150, 3), (151, 3), (400, 3), (401, 2)):
        attention, v = ready(Setting(batch=batch, keys=keys))
        fresh = marks_of(attention)
        marks.step(fresh.places, fresh.tokens)
        assert_right(attention, v, marks)
        assert marks.written == {}
    assert int(marks.scratch[DEVICE][1].abs().sum()) == 0


@runs
def test_a_row_without_keys():
    attention, v = ready(Setting(keys=70))
    hidden = torch.zeros(2, 1, 1, 70, dtype=torch.bool)
    attention = replace(attention, mask=AttentionMask(1, 70, 69, torch.device("cpu"), explicit=hidden))
    marks = marks_of(attention)
    marks.step(marks.places.to(DEVICE), marks.tokens)
    z = decode(on_device(attention), v.to(DEVICE), marks, 0)
    assert bool((z == 0).all())
    sums = RowStatistics(*marks.on(DEVICE)[1][0].cpu().unbind(-1))
    assert bool((sums.self_log == host.triton_decode.FLOOR.value).all())
    assert all(bool((one == 0).all()) for one in sums[1:])


@needs_triton
def test_what_it_cannot_do_is_left_to_rows():
    attention, v = ready(Setting(keys=20))
    marks = marks_of(attention)
    assert decode(replace(attention, gate=0.1), v, marks, 0) is None
    assert decode(replace(attention, q=attention.q.double()), v, marks, 0) is None
    assert decode(replace(attention, k=attention.k.half()), v, marks, 0) is None
    assert decode(attention_of(Setting()), v, marks, 0) is None
    assert decode(attention_of(Setting(queries=1, keys=20, mask="per_head")), v, marks, 0) is None
    assert decode(attention, v.transpose(2, 3).contiguous().transpose(2, 3), marks, 0) is None
    assert marks.written == {}


def test_rows_of_a_step_know_the_marks():
    """The path of every other device: the same sums from the row itself."""
    attention, _ = ready(Setting(batch=3, padding="left", keys=50))
    marks = marks_of(attention)
    keys = RowKeys.of_step(marks, attention.mask.n_visible_keys(3), 50)
    got = row_statistics(row_logs(attention), keys)
    a = attention.weights(dtype=torch.float64)[:, :, 0]
    first = marks.places[:, 2]
    torch.testing.assert_close(got.self_log[..., 0].double(), a[..., -1].log(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.previous[..., 0].double(), a[..., -2], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got.sink[2, :, 0].double(), a[2, :, first[2]], rtol=1e-5, atol=1e-6)
    x, y = a[..., :30].sum(-1) / 13, a[..., 30:].sum(-1) / 5
    torch.testing.assert_close(got.lookback[..., 0].double(), x / (x + y), rtol=1e-5, atol=1e-6)
    seen = torch.tensor([50.0, 42.0, 34.0]).log()[:, None]
    torch.testing.assert_close(
        got.entropy[..., 0].double(), -torch.special.xlogy(a, a).sum(-1) / seen, rtol=1e-5, atol=1e-5
    )


@interprets
def test_under_the_interpreter():
    under_the_interpreter(__file__)
