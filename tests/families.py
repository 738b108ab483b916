"""Tiny random models of many families, built from their configs. Nothing is downloaded.

Every family gets two or more layers, more query heads than key/value heads where it knows the difference, and weights
ten times larger than `transformers` would draw them, so that attention rows are neither even nor one-hot.
Windows are 8 tokens: far shorter than the texts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from headwise.model.card import ModelCard
from headwise.model.library_calls import silence_transformers
from headwise.model.loading import attention_choice

VOCABULARY = 131
WINDOW = 8

_SIZES = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
_ALTERNATING = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": WINDOW,
}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_SQUARE = {"num_key_value_heads": 6, "head_dim": 8}  # families that know no other shape

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 48, "n_head": 6, "n_layer": 2, "n_positions": 128, "n_inner": 64, "head_dim": None},
    "gpt_neox": _SQUARE | {"rotary_pct": 0.5},
    "opt": _SQUARE | {"ffn_dim": 64, "word_embed_proj_dim": 48},
    "llama": {},
    "mistral": {"sliding_window": WINDOW},
    "mixtral": _EXPERTS,
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": _EXPERTS | {"decoder_sparse_step": 1},
    "gemma": {},
    "gemma2": _ALTERNATING | {"attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16},
    "gemma3_text": _ALTERNATING | {"query_pre_attn_scalar": 16},
    "phi": {"num_key_value_heads": 6, "partial_rotary_factor": 0.5},
    "phi3": {"original_max_position_embeddings": 128},
    "olmo2": {},
    "cohere": {},
    "cohere2": _ALTERNATING,
    "granite": {"attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    "starcoder2": {},
    "smollm3": {"no_rope_layers": [1, 0]},
    "glm4": {"partial_rotary_factor": 0.5},
    "gpt_oss": _ALTERNATING | _EXPERTS,
    "deepseek_v3": _EXPERTS
    | {
        "num_key_value_heads": 6, "head_dim": None, "n_routed_experts": 4, "n_shared_experts": 1,
        "n_group": 2, "topk_group": 1,
        "q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12,
        "first_k_dense_replace": 1,
    },
    "stablelm": {"head_dim": 8, "partial_rotary_factor": 0.5},
    "exaone4": _ALTERNATING,
    "nemotron": {"partial_rotary_factor": 0.5},
}  # fmt: skip

WINDOWED = ("mistral", "gemma2", "gemma3_text", "cohere2", "gpt_oss", "exaone4")
UNSEEABLE = {
    "bloom": {"n_head": 6, "n_layer": 2},
    "gptj": {"n_embd": 48, "n_head": 6, "n_layer": 2, "rotary_dim": 4},
    "mpt": {"d_model": 48, "n_heads": 6, "n_layers": 2},
    "falcon": {"head_dim": None},
}
HEADLESS = {"mamba": {"state_size": 4, "num_attention_heads": None, "head_dim": None}}
SCALED = {  # a learned sink that scales z after the softmax: the weights eager returns are not those it uses
    "granite_swa": _ALTERNATING | {"attention_multiplier": 0.2},
    "granitemoe_swa": _ALTERNATING | _EXPERTS | {"attention_multiplier": 0.2},
}
HYBRID = {
    "qwen3_next": _EXPERTS
    | {
        "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2,
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "shared_expert_intermediate_size": 32,
    },
    "jamba": _EXPERTS
    | {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
}  # fmt: skip
NORMED = {"bitnet": _SQUARE}  # the heads' outputs are normalised together before the output projection
_ALL = FAMILIES | UNSEEABLE | HEADLESS | HYBRID | SCALED | NORMED
SINCE = {"granite_swa": "5.15", "granitemoe_swa": "5.15"}  # the first transformers that knows a family; skipped before


def build(family: str, *, seed: int = 0, spread: float = 10.0, **changes: Any) -> Any:
    """A new model, with the attention that `headwise.load` chooses. Matrices inside the layers are `spread` times those
    `transformers` draws.
    """
    if Version(transformers.__version__) < Version(SINCE.get(family, "5")):
        pytest.skip(f"{family} needs transformers {SINCE[family]}, and {transformers.__version__} is installed")
    sizes = {**_SIZES, **_ALL[family], **changes}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    torch.manual_seed(seed)
    with silence_transformers():
        config = AutoConfig.for_model(family, **sizes)
        model = AutoModelForCausalLM.from_config(config, **attention_choice(ModelCard.from_config(config)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "embed" not in name:
                parameter.mul_(spread)
            elif "sink" in name:
                parameter.normal_()
    return model.eval()


@cache
def tiny(family: str) -> Any:
    """A model that all tests of this process share: look at it, never change it."""
    return build(family)


def texts(*lengths: int, seed: int = 1) -> list[Tensor]:
    """Random token ids, one text each; token 0 is left for padding."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator) for length in lengths]


def padded(rows: list[Tensor], side: str = "right") -> dict[str, Tensor]:
    """A batch: input_ids and attention_mask, and position_ids counted from each text's first token."""
    width = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[i, place], mask[i, place] = row, 1
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
