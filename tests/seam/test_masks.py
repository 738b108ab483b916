"""Masks in every form transformers takes, packed texts, `valid=`, embeddings, gradients, half precision."""

import pytest
import torch
from families import WINDOW, build, padded, texts, tiny
from watchers import Recorder

from headwise.core.errors import SeamError
from headwise.instruments import Activations, HeadOutputs, Patterns, Profile, Spectrum
from headwise.interventions import ScaleHeads
from headwise.seam import observe
from headwise.seam.mask import parse_mask

ROWS = texts(14, 9, 11)
CPU = torch.device("cpu")


def seen(model, valid=None, **batch) -> Recorder:
    recorder = Recorder()
    with torch.no_grad(), observe(model, recorder, valid=valid):
        model(**batch)
    return recorder


def assert_same(one: Recorder, other: Recorder, *, place=slice(None)) -> None:
    for layer, call in one.calls.items():
        mine, theirs = call.reductions.flat(), other.calls[layer].reductions.flat()
        for name in mine.keys() - {"top_keys"}:
            a, b = mine[name][:, :, place], theirs[name][:, :, place]
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True, msg=f"{name}, layer {layer}")


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mistral", "gpt_oss"])
def test_valid_without_a_mask_is_the_masked_batch_and_each_text_alone(family):
    batch = padded(ROWS)
    valid = batch["attention_mask"].bool()
    without = seen(tiny(family), valid=valid, input_ids=batch["input_ids"])
    masked = seen(tiny(family), input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    for layer, call in without.calls.items():
        mine, theirs = call.reductions.flat(), masked.calls[layer].reductions.flat()
        for name in mine.keys() - {"top_keys", "column_sums"}:
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-4, atol=1e-5, equal_nan=True, msg=name)
        assert torch.equal(call.valid, valid)
    for i, row in enumerate(ROWS):
        alone = seen(tiny(family), input_ids=row[None])
        for layer, call in alone.calls.items():
            got = without.calls[layer].reductions.column_sums[i, :, : len(row)]
            torch.testing.assert_close(got, call.reductions.column_sums[0], rtol=1e-4, atol=1e-5)


def test_valid_may_be_numbers_and_must_fit():
    batch = padded(ROWS)
    ids, ones = batch["input_ids"], batch["attention_mask"]
    assert_same(seen(tiny("llama"), valid=ones, input_ids=ids), seen(tiny("llama"), valid=ones.bool(), input_ids=ids))
    with pytest.raises(SeamError, match="valid is 3 x 13 and the model was given 3 x 14 tokens"):
        seen(tiny("llama"), valid=ones[:, 1:], input_ids=ids)
    with pytest.raises(SeamError, match="valid is 1 x 14 and the model was given 3 x 14 tokens"):
        seen(tiny("llama"), valid=ones[:1], input_ids=ids)
    with pytest.raises(SeamError, match=r"padding before real tokens.*pad on the right"):
        seen(tiny("llama"), valid=padded(ROWS, "left")["attention_mask"], input_ids=ids)
    with (
        observe(tiny("llama"), valid=ones),
        observe(tiny("llama"), valid=torch.ones_like(ones)),
        pytest.raises(SeamError, match="nested observations were given different valid tokens"),
    ):
        tiny("llama")(input_ids=ids)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "gemma3_text"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_of_four_dims(family, side, kind):
    """A mask the caller made, boolean or additive, in place of the two-dim one."""
    batch = padded(ROWS, side)
    two = batch["attention_mask"].bool()
    four = (torch.ones(14, 14).tril().bool() & two[:, None, None, :]).expand(3, 1, -1, -1)
    if kind != torch.bool:
        lowest = torch.finfo(kind).min if side == "left" else -torch.inf
        four = torch.zeros(four.shape, dtype=kind).masked_fill(~four, lowest)
    windowless = build(family, sliding_window=100)  # a mask of four dims holds for all layers alike
    got = seen(windowless, **{**batch, "attention_mask": four})
    assert_same(got, seen(windowless, **batch))
    for call in got.calls.values():
        assert torch.equal(call.valid, two)
        assert call.attention.mask.explicit is None


def test_a_mask_of_four_dims_with_whole_numbers_is_refused():
    with pytest.raises(SeamError, match=r"holds int64 numbers.*pass it as bool"):
        seen(tiny("llama"), input_ids=ROWS[0][None], attention_mask=torch.ones(14, 14).tril().long()[None, None])


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral"])
def test_packed_texts(family):
    """Two texts in one row, told apart by their position ids, see nothing of one another."""
    ids = torch.cat(ROWS[:2])[None]
    positions = torch.cat([torch.arange(14), torch.arange(9)])[None]
    packed = seen(tiny(family), input_ids=ids, position_ids=positions, use_cache=False)
    assert any(call.attention.mask.explicit is not None for call in packed.calls.values())
    for row, place in ((ROWS[0], slice(0, 14)), (ROWS[1], slice(14, 23))):
        alone = seen(tiny(family), input_ids=row[None])
        for layer, call in alone.calls.items():
            mine, theirs = packed.calls[layer].reductions.flat(), call.reductions.flat()
            for name in mine.keys() - {"top_keys"}:
                torch.testing.assert_close(mine[name][:, :, place], theirs[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt2"])
def test_padding_behind_every_text(family):
    """Batches padded to a round length: the last tokens of all rows are padding."""
    batch = padded(ROWS)
    longer = {
        "input_ids": torch.nn.functional.pad(batch["input_ids"], (0, 6)),
        "attention_mask": torch.nn.functional.pad(batch["attention_mask"], (0, 6)),
    }
    got = seen(tiny(family), **longer)
    assert all(call.attention.mask.offset == 0 for call in got.calls.values())
    assert_same(got, seen(tiny(family), **batch), place=slice(0, 9))


def test_every_sight_that_transformers_makes_needs_no_map():
    """From boolean masks, by hand: offset, window and padding are read off."""
    band = torch.ones(12, 12).tril().bool()
    windowed = band & ~torch.ones(12, 12).tril(-5).bool()
    padding = torch.arange(12) >= torch.tensor([0, 3])[:, None]
    for mask, window in ((band, None), (windowed, 5)):
        for rows in (slice(0, 12), slice(7, 12), slice(11, 12)):  # a pass, a chunk, a decode step
            four = mask[None, None, rows] & padding[:, None, None, :]
            sight = parse_mask(four, four.shape[2], 12, CPU)
            assert sight.explicit is None
            assert sight.offset == rows.start
            assert rows.start or sight.window == window
            assert torch.equal(sight.matrix().expand_as(four), four)
            assert torch.equal(sight.valid_queries(2), padding[:, rows])


def test_masks_that_stay_explicit():
    chunks = torch.ones(12, 12).tril().bool() & (torch.arange(12)[:, None] // 4 == torch.arange(12) // 4)
    sight = parse_mask(chunks[None, None], 12, 12, CPU)
    assert sight.explicit is not None
    assert sight.valid_queries(1).all()
    per_head = torch.stack([chunks, torch.ones(12, 12).tril().bool()])[None]
    assert parse_mask(per_head, 12, 12, CPU).explicit is not None
    # right padding under chunks: a padding query sees earlier keys, and is still none
    real = torch.arange(12) < 10
    assert parse_mask((chunks & real)[None, None], 12, 12, CPU).valid_queries(1).tolist() == [real.tolist()]
    # where no token sees itself, all that see anything are real
    blind = torch.ones(12, 12).tril(-1).bool()[None, None]
    sight = parse_mask(blind, 12, 12, CPU)
    assert sight.offset == 0
    assert sight.valid_queries(1).tolist() == [[False] + [True] * 11]


def test_masks_of_a_heads_own():
    model, ids = tiny("llama"), ROWS[0][None]
    mask = torch.ones(14, 14).tril().bool().expand(1, 6, -1, -1).clone()
    mask[:, 3] &= ~torch.ones(14, 14).tril(-2).bool()  # head 3 sees itself and the token before
    got, plain = seen(model, input_ids=ids, attention_mask=mask), seen(model, input_ids=ids)
    entropy = got.calls[0].reductions.entropy[0]
    assert float(entropy[3].max()) <= 0.6932
    others = [0, 1, 2, 4, 5]
    torch.testing.assert_close(entropy[others], plain.calls[0].reductions.entropy[0][others], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_embeddings_instead_of_ids(side):
    model, batch = tiny("llama"), padded(ROWS, side)
    embedded = {**batch, "inputs_embeds": model.get_input_embeddings()(batch["input_ids"]).detach()}
    del embedded["input_ids"]
    assert_same(seen(model, **embedded), seen(model, **batch))
    with observe(model, Profile()), pytest.raises(SeamError, match=r"Profile needs token ids.*pass input_ids"):
        model(**embedded)


def test_gradients_flow_through_an_observed_forward():
    """And through an intervention; instruments look on without any."""
    model, ids = build("llama"), ROWS[0][None]
    watchers = (Spectrum(), Profile(), HeadOutputs(), Patterns(), Activations(("residual", "mlp_out")), Recorder())

    def gradients(*on):
        model.zero_grad()
        with observe(model, *on) as observation:
            model(input_ids=ids).logits.logsumexp(-1).sum().backward()
        for instrument in observation.instruments:
            instrument.result()
        return [p.grad.clone() for p in model.parameters()]

    model.zero_grad()
    model(input_ids=ids).logits.logsumexp(-1).sum().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    for mine, theirs in zip(gradients(*watchers), plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    cut = gradients(ScaleHeads([(0, head) for head in range(6)], 0.0), *(type(w)() for w in watchers[:1]))
    names = [name for name, _ in model.named_parameters()]
    value = names.index("model.layers.0.self_attn.v_proj.weight")
    assert float(cut[value].abs().max()) == 0
    assert float(cut[names.index("model.layers.0.mlp.up_proj.weight")].abs().max()) > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_half_precision(family, dtype):
    """Reductions are float32 whatever the model is, and close to those of the same weights in float32."""
    model = build(family).to(dtype)
    twin = build(family)
    twin.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    batch = padded(ROWS, "left")
    half, full = seen(model, **batch), seen(twin, **batch)
    assert half.calls[0].z.dtype == dtype
    for name, value in half.calls[0].reductions.flat().items():
        if name != "top_keys":
            assert value.dtype == torch.float32
            torch.testing.assert_close(value, full.calls[0].reductions.flat()[name], rtol=0.1, atol=0.2, equal_nan=True)


def test_windows_and_the_cache():
    """A decode step in a window layer sees `window` keys, and knows how many tokens went before."""
    model, ids = tiny("mistral"), texts(30)[0][None]
    with torch.no_grad():
        cache = model(input_ids=ids, use_cache=True).past_key_values
        recorder = Recorder()
        with observe(model, recorder):
            model(input_ids=ids[:, :1], past_key_values=cache)
    assert recorder.contexts[0].cached == 30
    assert recorder.calls[0].attention.mask.n_visible_keys(1).tolist() == [[[WINDOW]]]
