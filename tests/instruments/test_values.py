"""HeadValues is what a head puts out when it can look at one token only."""

import numpy as np
import pytest
import torch
from families import FAMILIES, padded, texts, tiny

from headwise.core.errors import SeamError
from headwise.instruments import HeadOutputs, HeadValues
from headwise.seam import observe

ROWS = texts(12, 8)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_token_alone_puts_out_its_value(family):
    """A text of one token leaves no choice: z = v, or a multiple of it where a learned sink takes a part."""
    model = tiny(family)
    with torch.no_grad(), observe(model, HeadOutputs("last"), HeadValues("last")) as seen:
        model(input_ids=ROWS[0][None, :1])
    z, v = seen["outputs"].z.values, seen["values"].v.values
    assert z.shape == v.shape
    known = np.isfinite(z)
    assert (known == np.isfinite(v)).all() and known.any()
    if family == "gpt_oss":
        factor = np.nansum(z * v, -1) / np.nansum(v * v, -1)
        assert (factor[np.isfinite(factor)] < 1).all()
        v = v * factor[..., None]
    np.testing.assert_allclose(z[known], v[known], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_values_are_those_of_the_group_at_the_chosen_tokens(side):
    """Llama with 6 heads on fewer kv heads: against a hook on the value projection."""
    model, batch = tiny("llama"), padded(ROWS, side)
    starts = [12 - len(row) if side == "left" else 0 for row in ROWS]
    places = torch.tensor([[start + 2, -1] for start in starts])
    taken: dict[int, torch.Tensor] = {}
    handles = [
        layer.self_attn.v_proj.register_forward_hook(lambda _, args, out, index=index: taken.update({index: out}))
        for index, layer in enumerate(model.model.layers)
    ]
    with torch.no_grad(), observe(model, HeadValues(places)) as seen:
        model(**batch)
    for handle in handles:
        handle.remove()
    v, kv = seen["values"].v, model.config.num_key_value_heads
    assert v.dims == ("example", "layer", "head", "token", "width")
    for layer, whole in taken.items():
        for example, start in enumerate(starts):
            of_token = whole[example, start + 2].view(kv, -1).numpy()
            for head in range(6):
                got = v.sel(layer=layer, head=head).isel(example=example, token=0).values
                np.testing.assert_allclose(got, of_token[head // (6 // kv)], rtol=1e-5, atol=1e-6)
    assert np.isnan(v.isel(token=1)).all()


def test_a_pass_on_a_cache_is_refused():
    model = tiny("llama")
    with torch.no_grad(), observe(model, HeadValues("last")):
        cache = model(input_ids=ROWS[0][None], use_cache=True).past_key_values
        with pytest.raises(SeamError, match="complete sequences"):
            model(input_ids=ROWS[0][None, :1], past_key_values=cache, use_cache=True)
