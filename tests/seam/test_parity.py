"""Tiny random models of 26 families: what the seam sees is what the family's own eager attention does."""

import pytest
import torch
from closeness import assert_reductions_close
from families import FAMILIES, SCALED, WINDOW, WINDOWED, padded, texts, tiny
from layers import condition_of
from watchers import PLACELESS, Call, Recorder, float64_softmax

from headwise.kernels import reference
from headwise.seam import AttentionCall, Structure, check, observe
from headwise.seam.interface import routed
from headwise.seam.outputs import eager_weights
from headwise.seam.verify import everything

LENGTHS = (40, 27)


def inputs(side: str) -> dict[str, torch.Tensor]:
    """One text alone, or two of them padded."""
    if side == "alone":
        return {"input_ids": texts(*LENGTHS)[0][None]}
    return padded(texts(*LENGTHS), side)


@pytest.mark.parametrize("family", FAMILIES)
def test_check_passes_with_small_errors(family):
    report = check(tiny(family))
    assert report.passed, [c for c in report.checks if not c.passed]
    assert [c.name for c in report.checks] == [
        "layers",
        "plain",
        "logits",
        "reductions",
        "heads",
        "causality",
        "padding",
        "decoding",
    ]
    assert report.refused == {}
    for one in report.checks:
        assert one.error is None or one.error <= 2e-5, one


@pytest.mark.parametrize("family", SCALED)
def test_weights_are_those_that_act_and_not_those_that_eager_returns(family):
    report = check(tiny(family))
    assert report.passed, [c for c in report.checks if not c.passed]
    seen = Recorder()
    with torch.no_grad(), routed(tiny(family), "eager"):
        returned = tiny(family)(**inputs("alone"), output_attentions=True).attentions
    with torch.no_grad(), observe(tiny(family), seen):
        tiny(family)(**inputs("alone"))
        maps = seen.calls[0].attention.weights()
    mass = maps.sum(dim=-1, keepdim=True)
    assert float(mass.max()) < 0.999
    torch.testing.assert_close(maps / mass, returned[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", ["alone", "right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_maps_are_those_of_the_plain_model(family, side):
    model, batch = tiny(family), inputs(side)
    real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    seen = Recorder()
    with torch.no_grad():
        plain = model(**batch).logits
        with routed(model, "eager"):
            eager = model(**batch, output_attentions=True)
        with observe(model, seen):
            observed = model(**batch).logits
    for expected in (plain, eager.logits):
        torch.testing.assert_close(observed[real], expected[real], rtol=0, atol=2e-5 * float(plain.std()))
    assert len(eager.attentions) == len(seen.calls)
    for layer, weights in enumerate(eager.attentions):
        maps = seen.calls[layer].attention.weights().transpose(1, 2)[real]
        torch.testing.assert_close(maps, weights.transpose(1, 2)[real], rtol=0, atol=1e-5, msg=f"layer {layer}")


@pytest.mark.parametrize("side", ["alone", "right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_reductions_are_at_most_twice_as_wrong_as_plain_float32(family, side):
    """Against float64, from the weights of the family's own eager function."""
    layers = []

    def see(call: AttentionCall) -> None:
        wanted = everything(call.context.input_ids)
        with float64_softmax():
            exact = eager_weights(call, torch.float64)
        assert exact.dtype == torch.float64
        plain = eager_weights(call)
        assert_reductions_close(
            call.reductions,
            reference.reduce_weights(exact, call.attention, wanted),
            reference.reduce_weights(plain, call.attention, wanted),
            condition=condition_of(call.attention),
            maps=exact,
        )
        layers.append(call.layer)

    with torch.no_grad(), observe(tiny(family), Call(see, lambda context: everything(context.input_ids))):
        tiny(family)(**inputs(side))
    assert layers == list(range(tiny(family).config.num_hidden_layers))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_in_a_padded_batch_is_the_text_alone(family, side):
    rows = texts(*LENGTHS)
    together = Recorder()
    with torch.no_grad(), observe(tiny(family), together):
        tiny(family)(**padded(rows, side))
    width = max(LENGTHS)
    for i, row in enumerate(rows):
        alone = Recorder()
        with torch.no_grad(), observe(tiny(family), alone):
            tiny(family)(input_ids=row[None])
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        for layer, call in alone.calls.items():
            expected, got = call.reductions.flat(), together.calls[layer].reductions.flat()
            for name in expected.keys() - {"top_keys"}:
                torch.testing.assert_close(got[name][i, :, place], expected[name][0], rtol=1e-4, atol=1e-5, msg=name)
            torch.testing.assert_close(together.calls[layer].z[i, place], call.z[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", WINDOWED)
@pytest.mark.parametrize("side", ["alone", "right", "left"])
def test_windows_shorter_than_the_text_are_found_in_the_mask(family, side):
    seen = Recorder()
    with torch.no_grad(), observe(tiny(family), seen):
        tiny(family)(**inputs(side))
    card = Structure(tiny(family)).card
    assert any(layer.kind == "window" for layer in card.per_layer)
    for layer, call in seen.calls.items():
        mask = call.attention.mask
        assert mask.explicit is None, "a window and padding need no T x T mask"
        assert mask.window == (WINDOW if card.per_layer[layer].kind == "window" else None)
        looked = call.reductions.distance_mean[call.valid[:, None].expand(-1, call.heads, -1)]
        assert float(looked.max()) < (WINDOW if mask.window else LENGTHS[0])


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss", "deepseek_v3"])
def test_order_and_size_of_the_batch_change_nothing(family):
    rows = texts(30, 30, 30)
    whole = Recorder()
    with torch.no_grad(), observe(tiny(family), whole):
        tiny(family)(input_ids=torch.stack(rows)[[2, 0, 1]])
    for i, row in zip((1, 2, 0), rows, strict=True):
        alone = Recorder(PLACELESS)
        with torch.no_grad(), observe(tiny(family), alone):
            tiny(family)(input_ids=row[None])
        for layer, call in alone.calls.items():
            got = whole.calls[layer].reductions.flat()
            for name, value in call.reductions.flat().items():
                if name != "top_keys":
                    torch.testing.assert_close(got[name][i], value[0], rtol=1e-4, atol=1e-5, msg=name)


def test_attention_rows_of_the_tiny_models_are_neither_even_nor_one_hot():
    """Else the tests above would prove little."""
    for family in FAMILIES:
        seen = Recorder()
        with torch.no_grad(), observe(tiny(family), seen):
            tiny(family)(**inputs("alone"))
        for call in seen.calls.values():
            entropy = call.reductions.entropy / call.attention.mask.n_visible_keys(1).clamp(min=2).log()
            assert 0.1 < float(entropy[..., 8:].mean()) < 0.99, (family, call.layer)
