"""Every family's W_V, W_O and E', found by property, against what its own files call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from families import UNSEEABLE, build, tiny
from torch import Tensor

from headwise.core.errors import DataError, ModelError, SeamError
from headwise.model import ModelCard, load, open_stored
from headwise.model.stored import Checkpoint
from headwise.seam import HeadWeights


def rows_of(weight: Tensor, heads: int) -> Tensor:
    """(out, in) to (head, in, width)."""
    return weight.unflatten(0, (heads, -1)).transpose(1, 2)


def separate(layer: Any, heads: int) -> Tensor:
    return rows_of(layer.self_attn.v_proj.weight, heads)


def sequential(layer: Any, x: Tensor) -> Tensor:
    found = layer.mlp(layer.post_attention_layernorm(x))
    return found if isinstance(found, Tensor) else found[0]


VALUES: dict[str, Callable[[Any, int], Tensor]] = {
    "gpt2": lambda layer, heads: layer.attn.c_attn.weight[:, 96:].T.unflatten(0, (heads, -1)).transpose(1, 2),
    "gpt_neox": lambda layer, heads: layer.attention.query_key_value.weight.view(heads, 3, 8, 48)[:, 2].transpose(1, 2),
    "phi3": lambda layer, heads: rows_of(layer.self_attn.qkv_proj.weight[-32:], heads),
}
ADDED: dict[str, Callable[[Any, Tensor], Tensor]] = {  # what the first block's MLP adds to the residual stream
    "llama": sequential,
    "qwen3": sequential,
    "starcoder2": sequential,
    "phi3": sequential,
    "mixtral": sequential,
    "qwen3_moe": sequential,
    "gpt_oss": sequential,
    "gpt2": lambda layer, x: layer.mlp(layer.ln_2(x)),
    "gpt_neox": lambda layer, x: layer.mlp(layer.post_attention_layernorm(x)),
    "phi": lambda layer, x: layer.mlp(layer.input_layernorm(x)),
    "cohere2": lambda layer, x: layer.mlp(layer.input_layernorm(x)),
    "olmo2": lambda layer, x: layer.post_feedforward_layernorm(layer.mlp(x)),
    "gemma3_text": lambda layer, x: layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(x))),
    "granite": lambda layer, x: 0.5 * sequential(layer, x),
}


EXPERTS = ("mixtral", "qwen3_moe", "gpt_oss")


def layers_of(hf: Any) -> Any:
    return hf.transformer.h if hasattr(hf, "transformer") else hf.get_decoder().layers


@pytest.mark.parametrize("family", ADDED)
def test_matrices_are_those_the_family_names(family):
    hf = tiny(family)
    weights = HeadWeights(load(hf))
    weights.check()
    for index in weights.card.attention_layers:
        layer, found, facts = layers_of(hf)[index], weights.layer(index), weights.card.per_layer[index]
        kv_heads = 6 if family == "gpt2" else facts.kv_heads  # its config has an idle entry that says 2
        assert torch.equal(found.value, VALUES.get(family, separate)(layer, kv_heads))
        attention = next(m for n, m in layer.named_children() if "attn" in n or n == "attention")
        name = next(n for n in ("o_proj", "c_proj", "dense", "out_proj") if hasattr(attention, n))
        weight = getattr(attention, name).weight if family == "gpt2" else getattr(attention, name).weight.T
        assert torch.equal(found.output, weight.unflatten(0, (facts.heads, -1)))
        assert found.group == facts.heads // kv_heads


@pytest.mark.parametrize("family", ADDED)
def test_effective_embedding_is_what_the_first_mlp_adds(family):
    hf = build(family)
    weights = HeadWeights(load(hf))
    found = weights.effective(weights.embedding)
    scale = 48**0.5 if family == "gemma3_text" else 1.0
    assert weights.scale == pytest.approx(scale)
    dtype = torch.float32 if family in EXPERTS else torch.float64  # torch multiplies experts in float32 at most
    with torch.no_grad():
        exact = ADDED[family](layers_of(hf.to(dtype))[0], weights.embedding.to(dtype)[None] * scale)[0]
    error = (found.double() - exact).abs().max() / exact.abs().max()
    assert error < 1e-4  # a router's choice may hang on a last bit, an expert's output does not
    assert found.shape == weights.embedding.shape


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text", "nemotron", "olmo2", "cohere2"])
def test_gains_are_those_of_the_norms(family):
    hf = build(family)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in hf.named_parameters():
            if (parameter.ndim == 1 and "norm" in name) or "ln_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    weights = HeadWeights(load(hf))
    plus = 1.0 if family in ("gemma3_text", "nemotron") else 0.0
    final = (hf.transformer.ln_f if family == "gpt2" else hf.get_decoder().norm).weight
    torch.testing.assert_close(weights.final_gain, final.detach() + plus, rtol=1e-4, atol=1e-5)
    if family == "olmo2":
        assert weights.gain(1) is None
        behind = layers_of(hf)[1].post_attention_layernorm.weight.detach()
        torch.testing.assert_close(weights.post_norm_gain(1), behind, rtol=1e-4, atol=1e-5)
        return
    if family == "gemma3_text":
        behind = layers_of(hf)[1].post_attention_layernorm.weight.detach() + plus
        torch.testing.assert_close(weights.post_norm_gain(1), behind, rtol=1e-4, atol=1e-5)
    else:
        assert weights.post_norm_gain(1) is None
    first = layers_of(hf)[1].ln_1 if family == "gpt2" else layers_of(hf)[1].input_layernorm
    torch.testing.assert_close(weights.gain(1), first.weight.detach() + plus, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "mixtral", "gemma3_text"])
def test_a_folder_gives_the_same_numbers(family, tmp_path):
    hf = tiny(family)
    hf.save_pretrained(tmp_path)
    loaded, stored = load(hf), open_stored(tmp_path, device="cpu")
    one, other = HeadWeights(loaded), HeadWeights(stored)
    for index in one.card.attention_layers:
        assert torch.equal(one.layer(index).value, other.layer(index).value)
        assert torch.equal(one.layer(index).output, other.layer(index).output)
        assert torch.equal(one.gain(index), other.gain(index))
    assert torch.equal(one.unembedding, other.unembedding)
    assert torch.equal(one.final_gain, other.final_gain)
    assert torch.equal(one.effective(one.embedding), other.effective(other.embedding))
    if family != "mixtral":  # whose experts are fused while it is loaded
        assert stored.identity()["digest"] == loaded.identity()["digest"]


def test_shards_and_short_names_are_found(tmp_path):
    hf = tiny("gpt2")
    hf.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    stored = open_stored(tmp_path, device="cpu")
    assert torch.equal(HeadWeights(stored).layer(1).value, HeadWeights(load(hf)).layer(1).value)
    names = Checkpoint(str(tmp_path)).files
    named = next(name for name in names if name.endswith("h.1.attn.c_attn.weight"))
    assert stored.checkpoint.stored_name("transformer.h.1.attn.c_attn.weight", (48, 144)) == named
    assert stored.checkpoint.stored_name("somewhere.else.h.1.attn.c_attn.weight", (48, 144)) == named


def test_only_the_asked_layer_is_read(tmp_path, monkeypatch):
    tiny("llama").save_pretrained(tmp_path)
    read: list[str] = []
    whole = Checkpoint.tensor
    monkeypatch.setattr(Checkpoint, "tensor", lambda self, name: read.append(name) or whole(self, name))
    HeadWeights(open_stored(tmp_path)).layer(1)
    assert read == ["model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.weight"]


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("deepseek_v3", "not columns of one linear map"),
        ("qwen3_next", "a gate or a norm stands between its attention and W_O"),
        ("bitnet", "a gate or a norm stands between its attention and W_O"),
        *((family, "computes its attention by itself") for family in UNSEEABLE),
    ],
)
def test_what_cannot_be_told_is_refused(family, message):
    with pytest.raises(SeamError, match=message):
        HeadWeights(load(tiny(family))).check()


def test_a_first_layer_without_heads_has_no_effective_embedding():
    weights = HeadWeights(load(tiny("jamba")))
    weights.check()
    with pytest.raises(SeamError, match="use embedding='raw'"):
        weights.effective(weights.embedding)


def test_without_an_unembedding_it_is_said(tmp_path):
    hf = tiny("llama").model
    hf.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"is incomplete: lm_head.weight"):
        _ = HeadWeights(open_stored(tmp_path)).unembedding
    with pytest.raises(ModelError, match="has no output embedding; load it with its language-model head"):
        _ = HeadWeights(load(hf)).unembedding


def test_packed_and_missing_files_are_refused(tmp_path):
    hf = tiny("llama")
    hf.config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no safetensors files"):
        open_stored(tmp_path)
    hf.save_pretrained(tmp_path)
    config = ModelCard.from_config(hf.config).config
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace("{", '{"quantization_config": {"quant_method": "gptq"},', 1))
    with pytest.raises(ModelError, match=r"are quantised \(gptq\)"):
        open_stored(tmp_path)
    assert not hasattr(config, "quantization_config")


def test_damaged_weights_are_refused():
    hf = build("llama")
    with torch.no_grad():
        layers_of(hf)[1].self_attn.v_proj.weight[0, 0] = float("nan")
    with pytest.raises(SeamError, match=r"v_proj.weight of .* holds NaN"):
        HeadWeights(load(hf)).layer(1)


QUERIES_KEYS: dict[
    str, Callable[[Any, int, int], tuple[Tensor, Tensor]]
] = {  # layer, heads, kv heads: (head, in, width)
    "gpt2": lambda layer, heads, _: tuple(rows_of(w, heads) for w in layer.attn.c_attn.weight.T.split(48)[:2]),
    "gpt_neox": lambda layer, heads, _: tuple(
        layer.attention.query_key_value.weight.view(heads, 3, 8, 48).transpose(2, 3).unbind(1)[:2]
    ),
    "phi3": lambda layer, heads, kv: (
        rows_of(layer.self_attn.qkv_proj.weight[:-64], heads),
        rows_of(layer.self_attn.qkv_proj.weight[-64:-32], kv),
    ),
}


def separate_queries_keys(layer: Any, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    return rows_of(layer.self_attn.q_proj.weight, heads), rows_of(layer.self_attn.k_proj.weight, kv_heads)


@pytest.mark.parametrize("family", ["mistral", *(family for family in ADDED if family != "gpt_oss")])
def test_matrices_of_single_heads_are_slices_of_the_family_s(family):
    """By hand from the family's own parameters; a query head reads kv head h // group."""
    hf = tiny(family)
    weights = HeadWeights(load(hf))
    for index in weights.card.attention_layers:
        layer, facts = layers_of(hf)[index], weights.card.per_layer[index]
        kv_heads = 6 if family == "gpt2" else facts.kv_heads
        queries, keys = QUERIES_KEYS.get(family, separate_queries_keys)(layer, facts.heads, kv_heads)
        values = VALUES.get(family, separate)(layer, kv_heads)
        outputs = weights.layer(index).output
        for head in range(facts.heads):
            name, shared = f"L{index}H{head}", head // (facts.heads // kv_heads)
            assert torch.equal(weights.W_Q(name), queries[head])
            assert torch.equal(weights.W_K((index, head)), keys[shared])
            assert torch.equal(weights.W_V(name), values[shared])
            assert torch.equal(weights.W_O(name), outputs[head])
            assert torch.equal(weights.W_OV(name), values[shared] @ outputs[head])


def test_scaled_queries_are_refused():
    """YaRN multiplies the rotation, and with it queries and keys, by a factor."""
    weights = HeadWeights(load(tiny("gpt_oss")))
    with pytest.raises(SeamError, match="queries are not columns of one linear map"):
        weights.W_Q("L0H0")
    assert weights.W_OV("L0H0").shape == (48, 48)


def test_a_head_that_is_not_there_is_refused():
    with pytest.raises(DataError, match="there is no head L0H6"):
        HeadWeights(load(tiny("llama"))).W_Q("L0H6")
