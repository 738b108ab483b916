"""Tiny random models, tokenizers and GGUF files, made on the spot. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from headwise.model.tokens import _byte_alphabet

CHAT = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
SPECIAL = ["<pad>", "<s>", "</s>"]
MERGES = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("Ċ", "Ċ"), ("Ġ", "Ġ"), ("c", "a"), ("ca", "t")]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test may ask the hub, and none may write to the user's cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))


def byte_vocabulary() -> list[str]:
    return [*SPECIAL, *_byte_alphabet(), *("".join(pair) for pair in MERGES)]


@pytest.fixture
def make_tokenizer() -> Callable[..., Any]:
    def make(*, first: bool = False, chat: str | None = CHAT) -> Any:
        """A byte-level tokenizer of 266 tokens; ``first`` puts ``<s>`` in front of every text."""
        vocabulary = {token: i for i, token in enumerate(byte_vocabulary())}
        backend = Tokenizer(models.BPE(vocabulary, MERGES))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        if first:
            backend.post_processor = processors.TemplateProcessing(
                single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
            )
        return PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=chat
        )

    return make


@pytest.fixture
def tokenizer(make_tokenizer: Callable[..., Any]) -> Any:
    return make_tokenizer()


def tiny_config(**changes: Any) -> LlamaConfig:
    sizes = {"num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 64, "pad_token_id": 0}
    return LlamaConfig(**(sizes | changes))


@pytest.fixture
def make_config() -> Callable[..., LlamaConfig]:
    return tiny_config


@pytest.fixture
def hf() -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(tiny_config()).eval()


@pytest.fixture
def folder(hf: Any, tokenizer: Any, tmp_path: Path) -> Path:
    """A saved model with its tokenizer."""
    path = tmp_path / "tiny"
    hf.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    gguf = pytest.importorskip("gguf")

    def make(name: str = "tiny.gguf", *, first: bool = False, leave_out: str = "", digits: bool = False) -> Path:
        """A Llama of two layers as llama.cpp would pack it (float32)."""
        path = tmp_path / name
        out = gguf.GGUFWriter(path, "llama")
        out.add_block_count(2)
        out.add_context_length(128)
        out.add_embedding_length(32)
        out.add_feed_forward_length(48)
        out.add_head_count(4)
        out.add_head_count_kv(2)
        out.add_rope_dimension_count(8)
        out.add_rope_freq_base(100000.0)
        out.add_layer_norm_rms_eps(1e-5)
        tokens = [*byte_vocabulary(), *(["12"] if digits else [])]
        out.add_vocab_size(len(tokens))
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("smollm")
        out.add_token_list(tokens)
        out.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
        out.add_token_merges([" ".join(pair) for pair in [*MERGES, *([("1", "2")] if digits else [])]])
        out.add_pad_token_id(0)
        out.add_bos_token_id(1)
        out.add_eos_token_id(2)
        out.add_add_bos_token(first)
        out.add_chat_template(CHAT)
        random = np.random.default_rng(0)
        shapes = {"token_embd.weight": (len(tokens), 32), "output_norm.weight": (32,)}
        for i in range(2):
            widths = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
            widths |= {"ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48)}
            widths |= {"attn_norm": (32,), "ffn_norm": (32,)}
            shapes |= {f"blk.{i}.{part}.weight": shape for part, shape in widths.items()}
        for part, shape in shapes.items():
            if part != leave_out:
                out.add_tensor(part, random.normal(size=shape).astype(np.float32))
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()
        return path

    return make
