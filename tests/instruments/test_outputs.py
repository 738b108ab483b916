"""HeadOutputs is the input of the output projection; Patterns are eager's maps."""

import numpy as np
import pytest
import torch
from families import FAMILIES, build, padded, texts, tiny

from headwise.core.errors import DataError, SeamError
from headwise.instruments import HeadOutputs, Patterns
from headwise.seam import Structure, observe, output_projections
from headwise.seam.interface import routed

ROWS = texts(12, 8)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_are_what_the_projection_takes_in(family, side):
    """A plain hook on the projection's input, without any seam."""
    model, batch = tiny(family), padded(ROWS, side)
    projections = output_projections(Structure(model))
    taken: dict[int, torch.Tensor] = {}
    handles = [
        p.module.register_forward_pre_hook(lambda _, args, layer=layer: taken.update({layer: args[0]}))
        for layer, p in projections.items()
    ]
    with torch.no_grad():
        model(**batch)
        for handle in handles:
            handle.remove()
        with observe(model, HeadOutputs([0, -1, 9])) as seen:
            model(**batch)
    z = seen["outputs"].z
    assert z.dims == ("example", "layer", "head", "token", "width")
    for example, row in enumerate(ROWS):
        start = 12 - len(row) if side == "left" else 0
        for place, token in enumerate([0, len(row) - 1, 9]):
            for layer, whole in taken.items():
                got = z.isel(example=example, token=place).sel(layer=layer).values
                if token >= len(row):
                    assert np.isnan(got).all()
                    continue
                expected = whole.view(2, 12, 6, -1)[example, start + token].numpy()
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * expected.std())


def test_outputs_of_many_passes_and_dtypes():
    model = build("llama").to(torch.bfloat16)
    outputs = HeadOutputs()
    with torch.no_grad(), observe(model, outputs):
        for row in ROWS:
            model(input_ids=row[None])
    z = outputs.result().z
    assert z.sizes == {"example": 2, "layer": 2, "head": 6, "token": 1, "width": 16}
    assert z.dtype == np.float32


@pytest.mark.parametrize("positions", ["all", "prompt"])
def test_outputs_want_single_tokens(positions):
    with observe(tiny("llama"), HeadOutputs(positions)), pytest.raises(DataError, match="name single tokens instead"):
        tiny("llama")(input_ids=ROWS[0][None])


def test_nothing_seen_yet():
    for instrument in (HeadOutputs(), Patterns()):
        with pytest.raises(SeamError, match="has no readings yet; run the model inside"):
            instrument.result()


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt_oss"])
def test_patterns_are_eagers_maps(family):
    model, batch = tiny(family), padded(ROWS, "left")
    with torch.no_grad():
        with routed(model, "eager"):
            eager = model(**batch, output_attentions=True).attentions
        with observe(model, Patterns()) as seen:
            model(**batch)
    weights = seen["patterns"].weights
    assert weights.dims == ("example", "place", "query", "key")
    assert weights.sizes["place"] == 6 * len(eager)
    real = batch["attention_mask"].bool().numpy()
    place = np.arange(12)
    for layer, expected in enumerate(eager):
        seen_by_window = 8 if seen_window(model, layer) else 100
        lag = place[:, None] - place
        visible = (lag >= 0) & (lag < seen_by_window) & real[:, None, :] & real[:, :, None]
        for head in range(6):
            got = weights.sel(place=f"L{layer}H{head}")
            assert int(got["layer"]) == layer
            assert int(got["head"]) == head
            assert (np.isnan(got.values) == ~visible).all()
            np.testing.assert_allclose(got.values[visible], expected[:, head].numpy()[visible], rtol=1e-4, atol=1e-5)


def seen_window(model, layer: int) -> bool:
    return Structure(model).card.per_layer[layer].kind == "window"


def test_patterns_of_chosen_heads():
    with torch.no_grad(), observe(tiny("llama"), Patterns("L1H3, L0H5, L1H3")) as seen:
        tiny("llama")(input_ids=torch.stack([ROWS[0], ROWS[0]]))
        tiny("llama")(input_ids=ROWS[0][None])
    weights = seen["patterns"].weights
    assert weights.place.values.tolist() == ["L0H5", "L1H3"]
    assert weights.sizes == {"example": 3, "place": 2, "query": 12, "key": 12}
    np.testing.assert_allclose(np.nansum(weights.values, axis=-1), 1, rtol=1e-5)


def test_patterns_mind_the_memory():
    ids = ROWS[0][None]
    one_pass = 4 * 2 * 6 * 12 * 12
    with torch.no_grad(), observe(tiny("llama"), Patterns(limit=2 * one_pass)) as seen:
        tiny("llama")(input_ids=ids)
        tiny("llama")(input_ids=ids)
        with pytest.raises(DataError, match=r"more than 0\.0 GiB; choose fewer heads .*or raise Patterns\(limit"):
            tiny("llama")(input_ids=ids)
    assert seen["patterns"].sizes["example"] == 2


def test_a_failed_pass_takes_no_room():
    patterns = Patterns(limit=4 * 2 * 6 * 12 * 12)

    def fail(_, args):
        raise ZeroDivisionError

    with torch.no_grad(), observe(tiny("llama"), patterns) as seen:
        handle = tiny("llama").model.layers[1].mlp.register_forward_pre_hook(fail)
        with pytest.raises(ZeroDivisionError):
            tiny("llama")(input_ids=ROWS[0][None])
        handle.remove()
        tiny("llama")(input_ids=ROWS[0][None])
    assert seen["patterns"].sizes["example"] == 1


def test_patterns_of_unlike_lengths():
    with torch.no_grad(), observe(tiny("llama"), Patterns("L0H0")) as seen:
        for row in ROWS:
            tiny("llama")(input_ids=row[None])
    with pytest.raises(DataError, match=r"passes have different lengths \[\(8, 8\), \(12, 12\)\]"):
        seen["patterns"]


@pytest.mark.parametrize("head", ["L2H0", "L0H6"])
def test_patterns_of_heads_that_are_not_there(head):
    with pytest.raises(DataError, match=f"there is no head {head}"), observe(tiny("llama"), Patterns(head)):
        pytest.fail("was let in")
