"""A head's W_O: the right matrix in every family, with adapters on top, and never a slice of the output."""

import pytest
import torch
from families import FAMILIES, HYBRID, NORMED, build, texts, tiny
from peft import LoraConfig, get_peft_model
from watchers import Recorder

from headwise.instruments import Activations, Profile
from headwise.seam import Structure, check, observe, output_projections


def written_by_heads(model) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Sum over heads of z_h W_O^h, and the output of the projection, of the last layer."""
    structure = Structure(model)
    projections = output_projections(structure)
    layer = max(projections)
    outputs, recorder = [], Recorder()
    handle = projections[layer].module.register_forward_hook(lambda *a: outputs.append(a[-1].detach()))
    with torch.no_grad(), observe(structure, recorder):
        structure.hf(input_ids=texts(9)[0][None])
    handle.remove()
    summed = torch.einsum("bqhd,hdm->bqm", recorder.calls[layer].z.float(), projections[layer].weight.float())
    if projections[layer].bias is not None:
        summed = summed + projections[layer].bias
    return summed, outputs[0].float().reshape(summed.shape), layer


@pytest.mark.parametrize("family", [*FAMILIES, *HYBRID, *NORMED])
def test_heads_add_up_to_the_attention_output(family):
    summed, output, layer = written_by_heads(tiny(family))
    torch.testing.assert_close(summed, output, rtol=1e-4, atol=1e-4 * float(output.std()))
    weight = output_projections(Structure(tiny(family)))[layer].weight
    card = Structure(tiny(family)).card.per_layer[layer]
    assert weight.shape == (card.heads, card.value_dim, 48)


def lora(family: str, **options) -> torch.nn.Module:
    """A LoRA model whose adapter does something: peft starts it at nought."""
    model = get_peft_model(build(family), LoraConfig(r=3, lora_alpha=6, **options)).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {"target_modules": ["q_proj", "v_proj"]}),
        ("llama", {"target_modules": ["o_proj"]}),
        ("llama", {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"], "lora_dropout": 0.1}),
        ("llama", {"target_modules": ["o_proj"], "use_dora": True}),
        ("phi", {"target_modules": ["dense"]}),
        ("gpt2", {"target_modules": ["attn.c_proj"], "fan_in_fan_out": True}),
    ],
)
def test_lora(family, options):
    """The adapter's part of what a head writes is in W_O; the check passes; both wrapped and unwrapped."""
    model = lora(family, **options)
    report = check(model)
    assert report.passed, [c for c in report.checks if not c.passed]
    for whole in (model, model.get_base_model()):
        summed, output, _ = written_by_heads(whole)
        torch.testing.assert_close(summed, output, rtol=1e-4, atol=1e-4 * float(output.std()))
    with torch.no_grad(), observe(model, Profile(), Activations(("attention_out", "mlp_out"))) as seen:
        model(input_ids=texts(9)[0][None])
    assert not bool(seen["profile"].value.sel(statistic="output_norm_ratio").isnull().any())
    assert not bool(seen["activations"].activation.isnull().any())


def test_the_adapter_matters():
    """Else the test above would prove nothing."""
    model = lora("llama", target_modules=["o_proj"])
    with_adapter = output_projections(Structure(model))[0].weight
    with model.disable_adapter():
        without = output_projections(Structure(model))[0].weight
    assert float((with_adapter - without).abs().max()) > 0.01
    plain = model.get_base_model().model.layers[0].self_attn.o_proj.base_layer.weight
    torch.testing.assert_close(without, plain.T.unflatten(0, (6, 16)), rtol=1e-5, atol=1e-6)


def test_found_once_a_structure():
    structure = Structure(tiny("llama"))
    assert output_projections(structure) is output_projections(structure)


def test_gram():
    projection = output_projections(Structure(tiny("llama")))[0]
    z = torch.randn(5, 6, 16)
    square = torch.einsum("nhd,hde,nhe->nh", z, projection.gram().whole, z)
    norm = torch.einsum("nhd,hdm->nhm", z, projection.weight).norm(dim=-1)
    torch.testing.assert_close(square.sqrt(), norm, rtol=1e-4, atol=1e-5)
