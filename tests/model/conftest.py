"""Tiny random models, tokenizers and GGUF files, made on the spot. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_gguf import CHAT, MERGES, byte_vocabulary, write_gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test may ask the hub, and none may write to the user's cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))


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
    pytest.importorskip("gguf")

    def make(name: str = "tiny.gguf", **options: Any) -> Path:
        return write_gguf(tmp_path / name, **options)

    return make
