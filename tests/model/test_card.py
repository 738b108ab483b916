"""The card of every family, from its config alone, and against what the attention function really gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headwise.core.errors import ModelError
from headwise.model.card import ModelCard

BASE = {"num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "vocab_size": 64}
GQA = {**BASE, "num_key_value_heads": 2, "max_position_embeddings": 128}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"n_layer": 4, "n_embd": 32, "n_head": 4, "vocab_size": 64, "n_positions": 128}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
HYBRID = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "linear_num_value_heads": 4}
HYBRID |= {"linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "head_dim": 16}
HYBRID |= {"shared_expert_intermediate_size": 16}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
MLA |= {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16}
MLA |= {"num_key_value_heads": 4, "first_k_dense_replace": 1}

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "gpt_neox": {**BASE, "max_position_embeddings": 128},
    "opt": {**BASE, "ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 128},
    "llama": GQA,
    "mistral": {**GQA, "sliding_window": 16, "head_dim": 8},
    "mixtral": {**GQA, **EXPERTS},
    "qwen2": {**GQA, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
    "qwen3": {**GQA, "head_dim": 16},
    "qwen3_next": {**GQA, **HYBRID},
    "gemma2": {**GQA, "head_dim": 16, "sliding_window": 16},
    "gemma3_text": {**GQA, "head_dim": 16, "sliding_window": 16, "num_hidden_layers": 7},
    "phi3": GQA,
    "olmo2": GQA,
    "cohere2": {**GQA, "sliding_window": 16},
    "granite": GQA,
    "starcoder2": {**GQA, "sliding_window": 16},
    "smollm3": GQA,
    "glm4": {**GQA, "head_dim": 16},
    "gpt_oss": {**GQA, **EXPERTS, "head_dim": 16, "sliding_window": 16},
    "deepseek_v3": {**GQA, **MLA},
    "mamba": {"num_hidden_layers": 4, "hidden_size": 32, "state_size": 4, "vocab_size": 64},
    "bloom": {"n_layer": 4, "hidden_size": 32, "n_head": 4, "vocab_size": 64},
    "gptj": {**GPT2, "rotary_dim": 4},
    "falcon": {**BASE, "multi_query": True},
    "jamba": {**GQA, "attn_layer_period": 4, "attn_layer_offset": 2, "num_experts": 2, "mamba_d_state": 4},
}
UNSEEN = {"mamba", "bloom", "gptj", "falcon"}  # they have no attention, or do not call the attention function
SEEN = sorted(FAMILIES.keys() - UNSEEN)


def make(family: str, **changes: Any) -> Any:
    return CONFIG_MAPPING[family](**{**FAMILIES[family], **TOKENS, **changes})


def card(family: str, **changes: Any) -> ModelCard:
    return ModelCard.from_config(make(family, **changes))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_card(family: str) -> None:
    made = card(family)
    assert made.family == family
    assert made.layers == len(made.per_layer) == (7 if family == "gemma3_text" else 4)
    assert (made.hidden_size, made.vocabulary_size) == (32, 64)
    assert made.heads == (0 if family == "mamba" else 4)
    assert made.parameters == sum(p.numel() for p in made.skeleton.parameters()) > 0
    assert all(p.is_meta for p in made.skeleton.parameters())
    assert family in made.describe()
    json.dumps(made.to_dict())


@pytest.fixture
def attention_calls() -> Any:
    calls: list[dict[str, Any]] = []

    def record(module: Any, query: Any, key: Any, value: Any, *_: Any, **rest: Any) -> Any:
        calls.append({"layer": module.layer_idx, "query": query, "key": key, "value": value, **rest})
        return query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None

    AttentionInterface.register("headwise-test-card", record)
    AttentionMaskInterface.register("headwise-test-card", sdpa_mask)
    return calls


@pytest.mark.parametrize("family", SEEN)
def test_the_card_agrees_with_what_the_attention_function_gets(family: str, attention_calls: list[dict]) -> None:
    made = card(family)
    model = type(made.skeleton)(make(family)).eval()
    model.set_attn_implementation("headwise-test-card")
    with torch.no_grad():
        model(input_ids=torch.arange(3, 11)[None])
    assert [call["layer"] for call in attention_calls] == list(made.attention_layers)
    for call in attention_calls:
        layer = made.per_layer[call["layer"]]
        assert layer.heads == call["query"].shape[1]
        assert layer.kv_heads == call["key"].shape[1]
        assert layer.head_dim == call["query"].shape[3] == call["key"].shape[3]
        assert layer.value_dim == call["value"].shape[3]
        assert layer.window == call.get("sliding_window")
        assert made.softcap == call.get("softcap")
        assert made.sinks == (call.get("s_aux") is not None)


def _kind_lines(made: ModelCard) -> str:
    return "\n".join(made._kind_lines())


def kinds(made: ModelCard) -> list[tuple[str, int | None]]:
    return [(layer.kind, layer.window) for layer in made.per_layer]


def test_windows() -> None:
    window, full = ("window", 16), ("full", None)
    assert kinds(card("mistral")) == [window] * 4
    assert kinds(card("mistral", sliding_window=None)) == [full] * 4
    assert kinds(card("qwen2")) == [full, full, window, window]
    assert kinds(card("qwen2", use_sliding_window=False)) == [full] * 4
    assert kinds(card("gemma2")) == [window, full, window, full]
    assert kinds(card("gemma3_text")) == [window] * 5 + [full, window]
    assert kinds(card("gpt_oss")) == [window, full, window, full]


def test_chunks() -> None:
    config = CONFIG_MAPPING["llama4_text"](**{**GQA, **TOKENS, "head_dim": 8, "attention_chunk_size": 16})
    assert kinds(ModelCard.from_config(config)) == [("chunked", 16)] * 3 + [("full", None)]


def test_layers_without_heads_say_why() -> None:
    made = card("qwen3_next")
    assert made.attention_layers == (3,)
    assert made.per_layer[0].reason == "linear attention: no attention map"
    assert (made.per_layer[0].kind, made.per_layer[0].heads) == ("other", 0)
    assert card("jamba").attention_layers == (2,)
    assert card("jamba").per_layer[0].reason == card("mamba").per_layer[0].reason == "mamba: no heads"
    assert "softmax attention in 1 of 4 layers" in made.describe()
    assert "layers 0-2: linear attention: no attention map" in made.describe()


def test_widths_and_key_value_heads() -> None:
    assert (card("qwen3").head_dim, card("llama").head_dim) == (16, 8)
    made = card("deepseek_v3")
    assert (made.head_dim, made.value_dim, made.kv_heads) == (12, 6, 4)
    assert card("falcon").kv_heads == 1
    assert card("falcon", new_decoder_architecture=True, num_kv_heads=2).kv_heads == 2
    assert card("bloom").kv_heads == 4


def test_softcap_and_sinks() -> None:
    assert card("gemma2").softcap == 50.0
    assert card("llama").softcap is None
    assert card("gpt_oss").sinks
    assert not card("llama").sinks
    assert "learned sink" in card("gpt_oss").describe()
    assert "soft-capped at 50" in card("gemma2").describe()


def test_positions() -> None:
    assert card("gpt2").max_positions == 128
    assert card("bloom").max_positions is None
    assert "no limit on tokens" in card("bloom").describe()


def test_heads_that_differ_between_layers() -> None:
    lists = {"num_attention_heads": [2, 4, 4, 8], "num_key_value_heads": [1, 2, 2, 4]}
    made = ModelCard.from_config(changed("llama", **lists, head_dim=8))
    assert [layer.heads for layer in made.per_layer] == [2, 4, 4, 8]
    assert (made.heads, made.kv_heads) == (8, 4)
    assert "layer 0: full attention, 2 heads (1 for keys and values, width 8)" in _kind_lines(made)


def test_text_part_of_a_multimodal_config() -> None:
    config = CONFIG_MAPPING["gemma3"]()
    made = ModelCard.from_config(config)
    assert made.family == "gemma3"
    assert made.layers == config.text_config.num_hidden_layers


def test_bytes_and_ties() -> None:
    tied, loose = card("llama", tie_word_embeddings=True), card("llama", tie_word_embeddings=False)
    assert loose.parameters - tied.parameters == 64 * 32
    assert tied.bytes(torch.float32) == 2 * tied.bytes(torch.bfloat16) == 4 * tied.parameters


def test_layer_overrides_of_the_config() -> None:
    config = CONFIG_MAPPING["llama"](**GQA, per_layer_config={1: {"num_key_value_heads": 4}})
    if not getattr(config, "is_heterogeneous", False):
        pytest.skip("this transformers has no per-layer configs")
    assert [layer.kv_heads for layer in ModelCard.from_config(config).per_layer] == [2, 4, 2, 2]


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "encoder": (lambda: CONFIG_MAPPING["bert"](), "A 'bert' model is an encoder for masked tokens"),
    "both": (lambda: CONFIG_MAPPING["t5"](), "A 't5' model has an encoder and a decoder"),
    "no heads": (lambda: CONFIG_MAPPING["rwkv"](), "does not say how many attention heads it has"),
    "no layers": (lambda: CONFIG_MAPPING["blt"](), "does not give its number of layers"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusals(what: str) -> None:
    config, message = REFUSALS[what]
    with pytest.raises(ModelError, match=message):
        ModelCard.from_config(config())


def changed(family: str, **changes: Any) -> Any:
    """A config with values that its class would not let through."""
    config = make(family)
    vars(config).update(changes)
    return config


def test_refused_contradictions() -> None:
    with pytest.raises(ModelError, match="4 heads over 3 key-value heads in layer 0, which does not divide"):
        ModelCard.from_config(changed("llama", num_key_value_heads=3))
    with pytest.raises(ModelError, match="lists 2 layers in 'layer_types' but says it has 4"):
        ModelCard.from_config(changed("qwen2", layer_types=["full_attention"] * 2))
    with pytest.raises(ModelError, match="does not say how wide its attention window is"):
        ModelCard.from_config(changed("gemma2", sliding_window=None))
    with pytest.raises(ModelError, match="gives no head_dim, and its hidden size 30 does not divide into 4 heads"):
        ModelCard.from_config(changed("olmo2", hidden_size=30))


def test_an_unknown_kind_of_layer_is_not_guessed() -> None:
    made = ModelCard.from_config(changed("qwen2", layer_types=["full_attention"] * 3 + ["sponge_attention"]))
    assert made.per_layer[3].reason == "sponge_attention: not a softmax attention that Headwise knows"


def test_a_config_that_cannot_be_built() -> None:
    made = ModelCard.from_config(changed("llama", hidden_act="no-such-function"))
    with pytest.raises(ModelError, match="transformers could not build llama from its config"):
        _ = made.parameters
