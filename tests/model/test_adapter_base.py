"""An adapter on the model it was trained on, on a copy of it, and on another of the same shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from headwise.core.errors import ModelError
from headwise.model import load
from headwise.model.adapters import base_digest, require_base_model
from headwise.model.gate import GateNote, gate_of, write_gate

peft = pytest.importorskip("peft")


@pytest.fixture
def sparse(folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """An adapter with gates, trained on the model in ``folder``."""

    def make(**about: Any) -> Path:
        config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
        base = AutoModelForCausalLM.from_pretrained(folder)
        digest = base_digest(base)
        peft.get_peft_model(base, config).save_pretrained(tmp_path / "sparse")
        write_gate(tmp_path / "sparse", 0.0, **{"model": str(folder), "digest": digest} | about)
        return tmp_path / "sparse"

    return make


def another(folder: Path, place: Path) -> Path:
    """A model of the same shape and tokenizer with other weights."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) / 10)
    model.save_pretrained(place)
    return place


def test_on_its_own_base_and_on_a_copy_under_another_name(
    folder: Path, sparse: Callable[..., Path], tmp_path: Path
) -> None:
    adapter = sparse()
    assert gate_of(load(folder, adapter=adapter).hf) == 0.0
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "copy")
    assert load(tmp_path / "copy", adapter=adapter).adapter == str(adapter)
    assert load(AutoModelForCausalLM.from_pretrained(folder), adapter=adapter).adapter == str(adapter)


def test_on_another_model_of_the_same_shape(folder: Path, sparse: Callable[..., Path], tmp_path: Path) -> None:
    adapter, other = sparse(), another(folder, tmp_path / "other")
    with pytest.raises(ModelError) as error:
        load(other, adapter=adapter)
    assert f"was trained on {folder}, but this model is {other}, with other weights; use it with {folder}" in str(
        error.value
    )
    with pytest.raises(ModelError, match=r"was trained on"):
        load(AutoModelForCausalLM.from_pretrained(other), adapter=adapter)


def test_an_older_adapter_has_a_name_only(folder: Path, sparse: Callable[..., Path], tmp_path: Path) -> None:
    adapter = sparse(model="who/other", digest=None)
    with pytest.raises(ModelError, match=r"was trained on who/other"):
        load(folder, adapter=adapter)
    assert load(another(folder, tmp_path / "other"), adapter=adapter).adapter  # the same name, in a folder
    (adapter / "headwise_gate.json").write_text(json.dumps({"bias": 0.0}))
    assert load(folder, adapter=adapter).adapter  # nothing to tell by


def test_the_digest_does_not_depend_on_the_dtype(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    assert base_digest(model) == base_digest(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float())


def test_a_model_in_memory_without_a_name(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    require_base_model(model, "LlamaForCausalLM", "adapter", GateNote(0.0, "who/what"))
    with pytest.raises(ModelError, match=r"this model is LlamaForCausalLM, with other weights"):
        require_base_model(model, "LlamaForCausalLM", "adapter", GateNote(0.0, "who/what", "0"))


def test_an_adapter_that_is_nowhere_is_refused_before_the_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.model.loading.read_weights", lambda *_: pytest.fail("the weights were read"))
    with pytest.raises(
        ModelError, match=r"There is no folder 'nowhere'; give a PEFT adapter's folder, or its hub id as"
    ):
        load(folder, adapter="nowhere")
    with pytest.raises(ModelError, match=r"who/what contains no adapter .* and is not a local folder"):
        load(folder, adapter="who/what")
