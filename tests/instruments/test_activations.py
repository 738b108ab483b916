"""Sites are what plain forward hooks see, at the chosen tokens and no others."""

from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, padded, texts, tiny
from watchers import Call

from headwise.core.errors import DataError, SeamError
from headwise.instruments import Activations, HeadOutputs
from headwise.instruments.activations import SITES
from headwise.instruments.readings import HostCopy
from headwise.seam import observe

ROWS = texts(12, 8)


def hooked(model: Any, **batch: Any) -> dict[str, list[torch.Tensor]]:
    """Whole activations of a llama, by name and without any seam."""
    found: dict[str, list[torch.Tensor]] = {site: [] for site in SITES}

    def output(site: str) -> Any:
        return lambda _, args, out: found[site].append(out[0] if isinstance(out, tuple) else out)

    handles = []
    for layer in model.model.layers:
        handles.append(layer.register_forward_hook(output("residual")))
        handles.append(layer.self_attn.register_forward_hook(output("attention_out")))
        handles.append(layer.mlp.register_forward_hook(output("mlp_out")))
        handles.append(layer.mlp.register_forward_pre_hook(lambda _, args: found["mlp_in"].append(args[0])))
    with torch.no_grad():
        model(**batch)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("side", ["left", "right"])
def test_against_plain_hooks(side):
    model, batch = tiny("llama"), padded(ROWS, side)
    with torch.no_grad(), observe(model, Activations(SITES, [0, -1, 10])) as seen:
        model(**batch)
    activation = seen["activations"].activation
    assert activation.dims == ("example", "site", "layer", "token", "width")
    assert activation.sizes == {"example": 2, "site": 4, "layer": 2, "token": 3, "width": 48}
    for site, layers in hooked(model, **batch).items():
        for layer, whole in enumerate(layers):
            for example, row in enumerate(ROWS):
                start = 12 - len(row) if side == "left" else 0
                got = activation.sel(site=site, layer=layer).isel(example=example).values
                for place, token in enumerate([0, len(row) - 1, 10]):
                    expected = whole[example, start + token].numpy() if token < len(row) else np.full(48, np.nan)
                    np.testing.assert_allclose(got[place], expected, rtol=1e-4, atol=1e-4, err_msg=site)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"opt"}))
def test_every_family_has_all_four(family):
    """And the residual stream is what the parts add up to, where nothing else stands between them."""
    with torch.no_grad(), observe(tiny(family), Activations(SITES, "last")) as seen:
        tiny(family)(input_ids=ROWS[0][None])
    activation = seen["activations"].activation.isel(example=0, token=0)
    assert not bool(activation.isnull().any())
    if family in ("llama", "gpt2", "qwen3", "mixtral", "phi", "cohere", "deepseek_v3", "gpt_oss", "starcoder2"):
        later = activation.sel(site="residual", layer=1) - activation.sel(site="residual", layer=0)
        parts = activation.sel(site="attention_out", layer=1) + activation.sel(site="mlp_out", layer=1)
        np.testing.assert_allclose(later.values, parts.values, rtol=1e-3, atol=1e-3 * float(abs(later).max()))


def test_opt_has_no_mlp():
    with (
        pytest.raises(SeamError, match="layer 0 of opt has 2 modules with matrices besides its attention, not one MLP"),
        observe(tiny("opt"), Activations(("residual", "mlp_in"))),
    ):
        pytest.fail("was let in")
    with torch.no_grad(), observe(tiny("opt"), Activations(("residual", "attention_out"))) as seen:
        tiny("opt")(input_ids=ROWS[0][None])
    assert not bool(seen["activations"].activation.isnull().any())


def test_hybrids():
    with torch.no_grad(), observe(tiny("jamba"), Activations(("residual", "attention_out"))) as seen:
        tiny("jamba")(input_ids=ROWS[0][None])
    activation = seen["activations"].activation
    assert not bool(activation.sel(site="residual").isnull().any())
    assert bool(activation.sel(site="attention_out", layer=[0, 2]).isnull().all())
    assert not bool(activation.sel(site="attention_out", layer=[1, 3]).isnull().any())


@pytest.mark.parametrize("family", ["llama", "jamba"])
def test_only_chosen_tokens_are_kept(family):
    """While the pass runs, nothing holds a whole sequence."""
    sites = Activations(("residual", "attention_out"), [0, -1])
    most = []

    def look(call: Any) -> None:
        most.extend(kept.untyped_storage().nbytes() for kept in sites._captured.values())

    with torch.no_grad(), observe(tiny(family), sites, Call(look)):
        tiny(family)(input_ids=torch.stack([ROWS[0]] * 3))
    assert max(most) == 3 * 2 * 48 * 4  # examples x tokens x width x float32
    assert sites._captured == {}


def test_names_of_sites():
    with pytest.raises(DataError, match=r"there is no site 'mlp'. .*Known: attention_out, mlp_in, mlp_out, residual"):
        Activations(["residual", "mlp"])
    assert Activations("mlp_in").sites == ("mlp_in",)
    with pytest.raises(SeamError, match="Activations has no readings yet"):
        Activations().result()


def test_half_precision_is_the_rounded_value_and_larger_ones_are_scaled():
    """An example beyond the range of half precision keeps its relative precision, and comes back in single."""
    model, batch = tiny("llama"), padded(ROWS, "right")
    found = {}
    for half in (False, True):
        instruments = Activations(("residual",), [0, 10], half=half), HeadOutputs([0, 10], half=half)
        with torch.no_grad(), observe(model, *instruments) as seen:
            model(**batch)
        found[half] = seen["activations"].activation.values, seen["outputs"].z.values
    for whole, rounded in zip(found[False], found[True], strict=True):
        assert rounded.dtype == np.float16 and np.isnan(whole[1]).any()
        np.testing.assert_array_equal(rounded, whole.astype(np.float16))
    copy, large = HostCopy(), torch.tensor([[1.0, 3e5, np.nan, np.inf], [0.1, -2.0, 0.0, 1e-3]])
    read = copy.start(large, half=True)
    copy.wait()
    assert read().dtype == torch.float32
    np.testing.assert_allclose(read()[0], large[0], rtol=5e-4)
    np.testing.assert_array_equal(read()[1], large[1].half().float())
