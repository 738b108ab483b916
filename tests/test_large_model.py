"""The small version of docs/large-models.md: written layer by layer, checked with most of it on disk, under a watch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import VOCABULARY, tiny_tokenizer
from transformers import LlamaConfig

from headwise.model import is_offloaded, load

pytest.importorskip("accelerate")


@pytest.fixture
def large_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return import_module("large_model")


@pytest.fixture
def folder(large_model: Any, tmp_path: Path) -> Path:
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**shape, num_hidden_layers=3, vocab_size=VOCABULARY, max_position_embeddings=320)
    config.dtype = torch.bfloat16
    return large_model.write(tmp_path / "model", config, tiny_tokenizer(VOCABULARY))


def test_what_is_written_is_a_whole_checkpoint(folder: Path) -> None:
    """`load` refuses missing and misshapen weights."""
    plain, parted = load(folder), load(folder, max_memory="cpu=150KB")
    assert len(list(folder.glob("model-0*.safetensors"))) == plain.card.layers == 3
    assert is_offloaded(parted.hf) and plain.identity() == parted.identity()
    assert 0.019 < float(plain.hf.lm_head.weight.detach().std()) < 0.021


def test_a_command_is_watched(folder: Path, large_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
    found = large_model.watched(["check", str(folder), "--memory", "cpu=150KB"])
    assert found.code == 0 and found.swapped == 0
    assert 50 < found.anonymous < found.resident < 3000 and found.seconds > 0
