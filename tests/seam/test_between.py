"""A gate or a norm between the heads and the output projection: found by property, and z is read behind it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import FAMILIES, HYBRID, NORMED, SCALED, build, texts, tiny
from torch import Tensor, nn
from watchers import Recorder

from headwise.core.errors import SeamError
from headwise.instruments import Profile
from headwise.interventions import DropAttention, ScaleHeads
from headwise.kernels import SparsityRule
from headwise.kernels.sparsify import row_blocks, sparse_output
from headwise.seam import Structure, check, observe, output_projections
from headwise.seam.between import between, choices

IDS = texts(9)[0][None]


def attention_of(model: nn.Module, layer: int) -> nn.Module:
    return Structure(model).layers[layer].self_attn


def run(model: nn.Module, *instruments) -> tuple[Recorder, dict[int, Tensor], dict[int, Tensor]]:
    """What was seen, and input and output of every output projection, by its name in the family's files."""
    seen, given, made, handles = Recorder(), {}, {}, []
    for layer in Structure(model).attention_layers:
        projection = attention_of(model, layer).o_proj

        def keep(module, args, result, layer=layer):
            given[layer], made[layer] = args[0].detach(), result.detach()

        handles.append(projection.register_forward_hook(keep))
    try:
        with torch.no_grad(), observe(model, *instruments, seen):
            model(input_ids=IDS)
    finally:
        for handle in handles:
            handle.remove()
    return seen, given, made


@pytest.mark.parametrize("family", [*FAMILIES, *SCALED, "jamba"])
def test_in_most_families_nothing_stands_in_between(family):
    assert between(Structure(tiny(family))) == {}


@pytest.mark.parametrize(("family", "kind"), [("qwen3_next", "gate"), ("bitnet", "norm")])
def test_what_stands_in_between_is_found(family, kind):
    structure = Structure(tiny(family))
    found = between(structure)
    assert set(found) == set(structure.attention_layers)
    for layer, there in found.items():
        assert there.kind == kind
        assert there.projection is attention_of(tiny(family), layer).o_proj
    assert {one.between for one in output_projections(structure).values()} == {kind}


@pytest.mark.parametrize("family", ["qwen3_next", "bitnet"])
def test_check_passes_with_small_errors(family):
    report = check(tiny(family))
    assert report.passed, report
    assert all(one.error is None or one.error <= 1e-4 for one in report.checks)  # 6e-5 with transformers 5.13


@pytest.mark.parametrize("family", ["qwen3_next", "bitnet"])
def test_z_is_the_input_of_the_projection_and_mean_that_of_the_gate(family):
    seen, given, _ = run(tiny(family))
    for layer, call in seen.calls.items():
        assert torch.equal(call.z.flatten(2), given[layer])
        mean = call.attention.weights() @ call.v.repeat_interleave(call.attention.group, dim=1)
        torch.testing.assert_close(call.mean.transpose(1, 2), mean, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(call.mean, call.z, atol=1e-2)


@pytest.mark.parametrize("family", ["qwen3_next", "bitnet"])
def test_switching_a_head_off_takes_out_what_it_writes_and_nothing_else(family):
    model = tiny(family)
    layer = min(Structure(model).attention_layers)
    seen, _, whole = run(model)
    weight = output_projections(Structure(model))[layer].weight
    for head in range(6):
        _, _, without = run(model, ScaleHeads((f"L{layer}H{head}",), 0.0))
        own = seen.calls[layer].z[:, :, head] @ weight[head]
        torch.testing.assert_close(whole[layer] - without[layer], own, rtol=1e-3, atol=1e-4)


def test_a_gate_commutes_with_scaling():
    """Zero before the gate is zero behind it: the family's own ablation, made with a hook on its values."""
    model, layer = build("qwen3_next"), 1
    _, _, ours = run(model, ScaleHeads([f"L{layer}H{head}" for head in range(6)], 0.0))
    with torch.no_grad():
        attention_of(model, layer).v_proj.weight.zero_()
    _, _, theirs = run(model)
    assert torch.equal(ours[layer], theirs[layer])


@pytest.mark.parametrize("family", ["qwen3_next", "bitnet"])
def test_dropped_attention_acts_before_the_gate(family):
    model, rule = tiny(family), SparsityRule("top", 2)
    layer = min(Structure(model).attention_layers)
    seen, given, _ = run(model, DropAttention(rule))
    call = seen.calls[layer]
    sparse = torch.cat([sparse_output(rows, rule.apply(rows), call.v) for rows in row_blocks(call.attention)], dim=1)
    torch.testing.assert_close(call.mean, sparse, rtol=1e-5, atol=1e-6)
    plain, before, _ = run(model)
    if family == "qwen3_next":  # the gate of this layer does not depend on what is dropped in it
        ratio = before[layer] / plain.calls[layer].mean.flatten(2)
        expected = ratio * sparse.flatten(2)
    else:
        expected = attention_of(model, layer).attn_sub_norm(sparse.flatten(2))
    torch.testing.assert_close(given[layer], expected.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["qwen3_next", "bitnet"])
def test_profile_has_the_norm_of_what_each_head_writes(family):
    """Over the residual stream before the layer, mean over all tokens but the first."""
    seen, structure, residual = Profile(), Structure(tiny(family)), {}
    handles = [
        layer.register_forward_pre_hook(lambda _, args, index=index: residual.update({index: args[0][0].norm(dim=-1)}))
        for index, layer in enumerate(structure.layers)
    ]
    recorder, _, _ = run(tiny(family), seen)
    for handle in handles:
        handle.remove()
    found = seen.result().value.sel(statistic="output_norm_ratio").isel(example=0)
    for layer in structure.attention_layers:
        weight = output_projections(structure)[layer].weight
        norms = torch.einsum("qhd,hdm->qhm", recorder.calls[layer].z[0], weight).norm(dim=-1)
        expected = (norms / residual[layer][:, None])[1:].mean(0).detach().numpy()
        np.testing.assert_allclose(found.sel(layer=layer).values, expected, rtol=1e-4)


class Mixing(nn.Module):
    """A norm that first subtracts the mean over all heads: one head's output enters the others'."""

    def forward(self, z: Tensor) -> Tensor:
        z = z - z.mean(dim=-1, keepdim=True)
        return z / (z.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt()


class Swapping(nn.Module):
    """Heads change places."""

    def forward(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (6, 8))[..., [1, 0, 2, 3, 4, 5], :].flatten(-2) * 2


@pytest.mark.parametrize("mixes", [Mixing, Swapping])
def test_heads_that_are_mixed_are_refused_and_their_maps_are_read(mixes):
    model = build("bitnet")
    for layer in model.model.layers:
        layer.self_attn.attn_sub_norm = mixes()
    assert between(Structure(model)) == {}
    with pytest.raises(SeamError, match="outputs of single heads are not defined for this family"):
        output_projections(Structure(model))
    with torch.no_grad(), observe(model, Profile()) as seen:
        model(input_ids=IDS)
    value = seen["profile"].value
    assert bool(value.sel(statistic="output_norm_ratio").isnull().all())
    assert bool(value.sel(statistic="entropy").notnull().all())
    report = {one.name: one.passed for one in check(model).checks}
    assert [name for name, passed in report.items() if not passed] == ["heads"]


def test_an_adapter_on_the_projection_is_found_behind_the_gate():
    from peft import LoraConfig, get_peft_model

    model = build("qwen3_next")
    assert between(Structure(model))[1].projection is attention_of(model, 1).o_proj
    wrapped = get_peft_model(model, LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights=False)).eval()
    found = between(Structure(wrapped))[1]
    assert (found.kind, found.projection) == ("gate", attention_of(model, 1).o_proj)
    assert check(wrapped).passed


@pytest.mark.parametrize("heads", [1, 2, 5, 8])
def test_some_choice_tells_every_two_heads_apart(heads):
    alive = torch.stack(list(choices(heads)))
    for one in range(heads):
        for other in range(heads):
            assert one == other or bool((alive[:, one] & ~alive[:, other]).any())


def test_every_family_with_something_in_between_is_tested():
    assert set(NORMED) == {"bitnet"}
    assert "qwen3_next" in HYBRID
