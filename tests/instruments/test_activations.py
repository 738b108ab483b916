"""Sites are what plain forward hooks see, at the chosen tokens and no others."""

from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, HYBRID, SCALED, padded, texts, tiny
from transformers import DynamicCache, StaticCache
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


@pytest.mark.parametrize("family", [*FAMILIES, *HYBRID, *SCALED])
def test_each_token_of_a_generation(family):
    """One pass per emitted token: its hidden state is that of the whole sequence, also in a padded batch."""
    model, batch, new = tiny(family), padded(ROWS, "left"), 5
    names = ("residual",) if family == "qwen3_next" else ("residual", "attention_out")  # it gates its heads' outputs
    sites = Activations(names)
    with torch.no_grad(), observe(model, sites):
        ids = model.generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=new,
            min_new_tokens=new, do_sample=False,
        )  # fmt: skip
    found = sites.result().activation.values.reshape(new, 2, len(names), -1, 48)  # pass, example, site, layer, width
    mask = torch.nn.functional.pad(batch["attention_mask"], (0, new - 1), value=1)
    rows = [ids[i, :-1][mask[i].bool()] for i in range(2)]
    whole = Activations(names, torch.tensor([[len(row) - 1 + i for i in range(new)] for row in ROWS]))
    with torch.no_grad(), observe(model, whole):
        model(**padded(rows))
    expected = whole.result().activation.transpose("token", "example", "site", "layer", "width").values
    scale = float(np.nanstd(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * scale)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_decode_steps_after_padding_on_the_right_and_a_prompt_in_parts(family, kind):
    """ "last" is the last real token of each pass; a part that is all padding has none."""
    model, batch, step = tiny(family), padded(ROWS, "right"), torch.tensor([[9], [17]])
    held = (
        DynamicCache(config=model.config) if kind == "dynamic" else StaticCache(config=model.config, max_cache_len=20)
    )
    mask = torch.nn.functional.pad(batch["attention_mask"], (0, 1), value=1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    ids = torch.cat([batch["input_ids"], step], dim=1)
    parts, whole = Activations(), Activations(positions=torch.tensor([[7, 11, 12], [7, -1, 12]]))
    with torch.no_grad():
        with observe(model, parts):
            for part in (slice(0, 8), slice(8, 12), slice(12, 13)):
                inputs = {"input_ids": ids[:, part], "position_ids": places[:, part]}
                model(**inputs, attention_mask=mask[:, : part.stop], past_key_values=held)
        with observe(model, whole):
            model(input_ids=ids, attention_mask=mask, position_ids=places)
    found = parts.result().activation.values.reshape(3, 2, -1, 48)  # pass, example, layer, width
    expected = whole.result().activation.isel(site=0).transpose("token", "example", "layer", "width").values
    assert np.isnan(found[1, 1]).all()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * float(np.nanstd(expected)))
