from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, LlamaModel

from headwise.core.errors import ModelError
from headwise.model.blocks import decoder_layers, embedding, unembedding
from headwise.model.card import ModelCard

SIZES = {"num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 64, "pad_token_id": 0}


def test_layers_and_embeddings_of_a_llama(hf: Any) -> None:
    assert decoder_layers(hf) is hf.model.layers
    assert embedding(hf) is hf.model.embed_tokens
    assert unembedding(hf) is hf.lm_head


@pytest.mark.parametrize(("family", "path"), [("gpt2", "transformer.h"), ("gpt_neox", "gpt_neox.layers")])
def test_other_names(family: str, path: str) -> None:
    config = CONFIG_MAPPING[family]()
    skeleton = ModelCard.from_config(config).skeleton
    assert decoder_layers(skeleton) is skeleton.get_submodule(path)


def test_as_many_experts_as_layers_do_not_confuse_it(hf: Any) -> None:
    for layer in hf.model.layers:
        layer.experts = nn.ModuleList(layer.mlp for _ in range(3))
    assert decoder_layers(hf) is hf.model.layers


def test_a_list_of_small_parts_is_not_a_list_of_layers(hf: Any) -> None:
    hf.model.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
    assert decoder_layers(hf) is hf.model.layers


def test_a_vision_tower_of_the_same_depth(make_config: Any) -> None:
    text = {**SIZES, "head_dim": 8}
    vision = {"num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    vision |= {"image_size": 16, "patch_size": 8}
    config = CONFIG_MAPPING["gemma3"](text_config=text, vision_config=vision, mm_tokens_per_image=4)
    card = ModelCard.from_config(config)
    assert decoder_layers(card.skeleton, card) is card.skeleton.model.language_model.layers


def test_two_lists_are_refused(hf: Any) -> None:
    hf.model.twin = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)) for _ in range(3))
    with pytest.raises(
        ModelError, match=r"exactly one list of 3 decoder layers, but several \(layers, twin\) were found"
    ):
        decoder_layers(hf)


def test_no_list_is_refused(hf: Any) -> None:
    hf.model.layers = nn.ModuleList(list(hf.model.layers)[:2])
    with pytest.raises(ModelError, match="exactly one list of 3 decoder layers, but none was found"):
        decoder_layers(hf)


def test_a_model_without_a_head_is_refused(make_config: Any) -> None:
    with pytest.raises(ModelError, match="A LlamaModel has no output embedding; load it with its language-model head"):
        unembedding(LlamaModel(make_config()))


def test_layers_of_a_mixture_of_experts() -> None:
    config = CONFIG_MAPPING["mixtral"](**SIZES, num_local_experts=4, num_experts_per_tok=2)
    model = AutoModelForCausalLM.from_config(config)
    assert decoder_layers(model) is model.model.layers
