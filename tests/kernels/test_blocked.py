"""The streamed reductions against the plain definition in float64: at most twice as wrong as plain float32."""

from dataclasses import replace

import pytest
import torch
from closeness import assert_no_worse_than_twice, assert_reductions_close
from layers import Setting, attention_of, condition_of, everything

from headwise.kernels import Attention, AttentionMask, Match, ReductionRequest, Reductions, blocked, reference
from headwise.kernels.blocked import reduce

SETTINGS = {
    "plain": Setting(),
    "one head": Setting(heads=1, kv_heads=1),
    "no groups": Setting(kv_heads=6),
    "one group": Setting(kv_heads=1),
    "groups of three": Setting(heads=9, kv_heads=3, width=20),
    "wide heads": Setting(width=128),
    "narrow heads": Setting(width=3),
    "batch of one": Setting(batch=1),
    "batch of five": Setting(batch=5, queries=33),
    "window": Setting(window=7),
    "window of one": Setting(window=1),
    "window over all": Setting(window=40),
    "window over more than all": Setting(window=1000),
    "left padding": Setting(batch=3, padding="left"),
    "right padding": Setting(batch=3, padding="right"),
    "window, left padding": Setting(batch=3, window=5, padding="left"),
    "window, right padding": Setting(batch=3, window=5, padding="right"),
    "cap": Setting(softcap=3.0),
    "cap, left padding": Setting(batch=3, softcap=3.0, padding="left"),
    "cap, window, left padding": Setting(batch=3, softcap=3.0, window=6, padding="left"),
    "sinks": Setting(sinks=True),
    "sinks, window, left padding": Setting(batch=3, sinks=True, window=6, padding="left"),
    "sinks and cap": Setting(sinks=True, softcap=4.0),
    "mask": Setting(mask="shared"),
    "mask of each example": Setting(mask="batched"),
    "mask of each head": Setting(mask="per_head"),
    "mask of each head, padding": Setting(mask="per_head", padding="right", kv_heads=3),
    "mask, sinks, cap": Setting(mask="per_head", sinks=True, softcap=4.0),
    "cached keys": Setting(queries=9, keys=31),
    "cached keys, window": Setting(queries=9, keys=31, window=4),
    "cached keys, left padding": Setting(batch=3, queries=9, keys=31, padding="left"),
    "cached keys, mask": Setting(queries=9, keys=31, mask="per_head"),
    "decode step": Setting(queries=1, keys=31),
    "decode step, window": Setting(queries=1, keys=31, window=5),
    "decode step, left padding": Setting(batch=3, queries=1, keys=31, padding="left"),
    "one token": Setting(queries=1),
    "two tokens": Setting(queries=2),
    "more queries than keys": Setting(queries=31, keys=20),
    "more queries than keys, window": Setting(queries=31, keys=20, window=4),
    "long": Setting(batch=1, heads=2, kv_heads=1, queries=400),
    "long, window": Setting(batch=1, heads=2, kv_heads=1, queries=400, window=90),
    "sharp": Setting(spread=12.0),
    "even": Setting(spread=1e-4),
    "bfloat16": Setting(dtype=torch.bfloat16),
    "float16": Setting(dtype=torch.float16),
    "float16, left padding": Setting(batch=3, dtype=torch.float16, padding="left"),
}
WITH_LSE = [name for name, s in SETTINGS.items() if s.softcap is None and s.spread <= 2]


def assert_agrees(attention: Attention, wanted: ReductionRequest, *, block: int | None = None) -> Reductions:
    got = reduce(attention, wanted, block=block)
    exact = reference.reduce(attention, wanted)
    plain = reference.reduce(attention, wanted, dtype=torch.float32)
    assert all(t.dtype == torch.float32 for name, t in got.flat().items() if name != "top_keys")
    maps = attention.weights(dtype=torch.float64)
    assert_reductions_close(got, exact, plain, condition=condition_of(attention), maps=maps)
    return got


@pytest.mark.parametrize("name", SETTINGS)
def test_every_reduction(name):
    attention = attention_of(SETTINGS[name])
    assert_agrees(attention, everything(attention))


@pytest.mark.parametrize("name", WITH_LSE)
def test_every_reduction_with_the_forward_kernels_log_sum_exp(name):
    attention = attention_of(replace(SETTINGS[name], with_lse=True))
    assert attention.lse is not None
    assert_agrees(attention, everything(attention))


@pytest.mark.parametrize("block", [1, 700, 5_000, 40_000, 10**9])
@pytest.mark.parametrize(
    "name", ["batch of five", "window, left padding", "sinks and cap", "mask of each head", "cached keys", "long"]
)
def test_block_size_changes_nothing_beyond_rounding(name, block):
    attention = attention_of(SETTINGS[name])
    assert_agrees(attention, everything(attention), block=block)


@pytest.mark.parametrize("name", ["plain", "left padding", "mask of each head", "sinks"])
def test_order_of_the_sequences_changes_nothing(name):
    s = replace(SETTINGS[name], batch=4)
    attention = attention_of(s)
    wanted = everything(attention)
    order = torch.tensor([2, 0, 3, 1])
    mask = attention.mask
    moved = replace(
        attention,
        q=attention.q[order],
        k=attention.k[order],
        mask=replace(
            mask,
            key_valid=None if mask.key_valid is None else mask.key_valid[order],
            query_valid=None if mask.query_valid is None else mask.query_valid[order],
            explicit=None if mask.explicit is None else mask.explicit[order],
        ),
    )
    wanted_moved = replace(
        wanted,
        query_weights={"weighted": wanted.query_weights["weighted"][order], "shared": wanted.query_weights["shared"]},
        key_weights={"some": wanted.key_weights["some"][order]},
        token_matches={n: Match(m.query[order], m.key[order]) for n, m in wanted.token_matches.items()},
    )
    before, after = reduce(attention, wanted).flat(), reduce(moved, wanted_moved).flat()
    for name, value in after.items():
        torch.testing.assert_close(value, before[name][order], rtol=1e-5, atol=1e-6, equal_nan=True, msg=name)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("reach", [30.0, 100.0])
def test_extreme_logits(reach, given):
    """Logits from -reach to reach: denormals, underflow, one-hot rows. The log of the diagonal survives."""
    attention = attention_of(Setting(spread=reach / 4, with_lse=given, seed=5))
    got = assert_agrees(attention, everything(attention))
    assert got.log_diagonal is not None
    assert got.log_diagonal.min() < (-104 if reach == 100 else -40)  # e^-104 is nothing in float32
    assert bool(got.log_diagonal.isfinite().all())


def test_rows_that_see_one_key_alone():
    """Exactly known: all on itself."""
    attention = attention_of(Setting(window=1, spread=50.0))
    got = reduce(attention, everything(attention))
    ones = torch.ones(2, 6, 40)
    torch.testing.assert_close(got.column_sums, ones, rtol=1e-6, atol=0)
    torch.testing.assert_close(got.row_max, ones, rtol=1e-6, atol=0)
    for name in ("log_diagonal", "entropy", "distance_mean", "distance_variance"):
        torch.testing.assert_close(getattr(got, name), torch.zeros_like(ones), rtol=0, atol=1e-5)


@pytest.mark.parametrize("far", [100, 900])
def test_the_spread_of_a_head_that_looks_far_at_one_key(far):
    """Mean distance is large, and its variance nought: a difference of two large numbers would not show it."""
    tokens = far + 50
    q = torch.zeros(1, 1, tokens, 2)
    k = torch.zeros(1, 1, tokens, 2)
    q[..., 0], k[0, 0, 7, 0] = 1.0, 40.0
    attention = Attention(q, k, 1.0, AttentionMask(tokens, tokens, 0, torch.device("cpu")))
    got = reduce(attention, ReductionRequest(distance=True))
    late = torch.arange(10, tokens)
    torch.testing.assert_close(got.distance_mean[0, 0, late], (late - 7).float(), rtol=1e-6, atol=1e-4)
    assert got.distance_variance[0, 0, late].max() < 1e-4


@pytest.mark.parametrize("name", ["left padding", "right padding", "mask of each head, padding"])
@pytest.mark.parametrize("given", [False, True])
def test_rows_that_do_not_count_are_nan_and_give_nothing(name, given):
    s = replace(SETTINGS[name], with_lse=given)
    attention = attention_of(s)
    wanted = everything(attention)
    got = reduce(attention, wanted)
    padding = ~attention.mask.valid_queries(s.batch)
    assert bool(padding.any())
    for key, value in got.flat().items():
        if value.shape[2:3] == (s.queries,) and not key.startswith(("column_sums", "query_weights", "top_keys")):
            assert bool(value.transpose(1, 2)[padding].isnan().all()), key
            assert not bool(value.transpose(1, 2)[~padding].isnan().any()), key
    # whatever padding queries ask, and whatever weight is put on them, column sums stay
    noise = torch.randn(attention.q.shape, generator=torch.Generator().manual_seed(9)) * 5
    q = torch.where(padding[:, None, :, None], noise, attention.q)
    row = wanted.query_weights["weighted"].masked_fill(padding, torch.nan)
    again = reduce(replace(attention, q=q), replace(wanted, query_weights={"weighted": row}))
    torch.testing.assert_close(again.column_sums, got.column_sums, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(again.query_weights["weighted"], got.query_weights["weighted"], rtol=1e-6, atol=1e-9)


def test_column_sums_count_every_counting_row_once():
    attention = attention_of(Setting(batch=3, padding="left"))
    got = reduce(attention, ReductionRequest(column_sums=True))
    total = attention.mask.valid_queries(3).sum(dim=1).float()
    torch.testing.assert_close(got.column_sums.sum(dim=-1), total[:, None].expand(-1, 6), rtol=1e-6, atol=0)


def test_a_counting_row_that_sees_nothing_is_nan_and_gives_nothing():
    """A head whose own mask is empty for one query: no weight is made up."""
    s = Setting(mask="per_head")
    mask = attention_of(s).mask
    explicit = mask.explicit.expand(2, -1, -1, -1).clone()
    explicit[1, 2, 17] = False
    attention = replace(attention_of(s), mask=replace(mask, explicit=explicit))
    got = assert_agrees(attention, everything(attention))
    assert bool(got.entropy[1, 2, 17].isnan())
    assert float(got.entropy.isnan().sum()) == 1
    assert float(got.column_sums[1, 2].sum()) == pytest.approx(39, rel=1e-6)


def test_top_more_than_there_are_keys():
    """Early rows see fewer than k keys: no weight and no key after the last one."""
    attention = attention_of(Setting(queries=12))
    got = assert_agrees(attention, ReductionRequest(top=20))
    assert got.top_weights.shape == (2, 6, 12, 20)
    for query in range(12):
        assert bool((got.top_keys[:, :, query, : query + 1] >= 0).all())
        assert bool((got.top_keys[:, :, query, query + 1 :] == -1).all())
        assert bool((got.top_weights[:, :, query, query + 1 :] == 0).all())


def test_nothing_is_computed_that_was_not_asked_for():
    attention = attention_of(Setting())
    got = reduce(attention, ReductionRequest(row_max=True, key_weights={"all": torch.ones(2, 40)}))
    assert set(got.flat()) == {"row_max", "key_weights[all]"}
    torch.testing.assert_close(got.key_weights["all"], torch.ones(2, 6, 40), rtol=1e-6, atol=0)


@pytest.mark.parametrize("block", [20_000, 100_000])
def test_memory_is_that_of_a_block(monkeypatch, block):
    """Never queries x keys: the one large buffer (and its twin) has `block` numbers at most."""
    sizes = []
    made = blocked.LogWeights.__init__

    def spy(self, *args):
        made(self, *args)
        sizes.append(self.buffer.numel())

    monkeypatch.setattr(blocked.LogWeights, "__init__", spy)
    attention = attention_of(Setting(batch=3, queries=400))
    reduce(attention, everything(attention), block=block)
    assert max(sizes) <= block < 3 * 6 * 400 * 400
    sizes.clear()
    reduce(
        attention, ReductionRequest(row_max=True), block=1
    )  # and at the least some rows of one head and those that share its keys
    assert max(sizes) == 16 * 400 * 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
@pytest.mark.parametrize("name", ["plain", "window, left padding", "cap, left padding", "sinks", "mask of each head"])
def test_on_an_accelerator(name):
    """The same numbers as on a CPU, with requests that still live there."""
    attention, device = attention_of(SETTINGS[name]), torch.device("cuda")
    mask = attention.mask
    there = {
        field: None if getattr(mask, field) is None else getattr(mask, field).to(device)
        for field in ("key_valid", "query_valid", "explicit")
    }
    moved = replace(
        attention,
        q=attention.q.to(device),
        k=attention.k.to(device),
        sinks=None if attention.sinks is None else attention.sinks.to(device),
        mask=replace(mask, device=device, **there),
    )
    wanted = everything(attention)
    expected, got = reduce(attention, wanted).flat(), reduce(moved, wanted).flat()
    for key, value in got.items():
        if not key.startswith(("top_keys", "count_above")):
            torch.testing.assert_close(value.cpu(), expected[key], rtol=1e-4, atol=1e-5, equal_nan=True, msg=key)


def test_inputs_are_left_alone():
    attention = attention_of(Setting(batch=3, padding="left", softcap=3.0))
    q, k = attention.q.clone(), attention.k.clone()
    reduce(attention, everything(attention))
    assert torch.equal(attention.q, q)
    assert torch.equal(attention.k, k)


def test_the_rule_catches_a_wrong_kernel():
    """The judge itself: an error of three float32 roundings passes where plain has it, a real mistake does not."""
    exact = torch.rand(50, dtype=torch.float64)
    plain = exact.float()
    assert_no_worse_than_twice(plain, exact, plain)
    with pytest.raises(AssertionError, match="sums: error"):
        assert_no_worse_than_twice(plain + 1e-5, exact, plain, what="sums")
    with pytest.raises(AssertionError, match="NaN"):
        assert_no_worse_than_twice(plain.masked_fill(plain > 0.5, torch.nan), exact, plain)
