from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from headwise.core.errors import ModelError
from headwise.model import load

peft = pytest.importorskip("peft")
IDS = torch.tensor([[3, 4, 5, 6]])


@pytest.fixture
def make_adapter(folder: Path, tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "adapter", **options: Any) -> Path:
        torch.manual_seed(1)
        config = {"r": 2, "target_modules": ["q_proj", "o_proj"], "init_lora_weights": False, "task_type": "CAUSAL_LM"}
        base = AutoModelForCausalLM.from_pretrained(folder)
        peft.get_peft_model(base, peft.LoraConfig(**(config | options))).save_pretrained(tmp_path / name)
        return tmp_path / name

    return make


def adapted(folder: Path, adapter: Path) -> torch.Tensor:
    base = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return peft.PeftModel.from_pretrained(base, adapter)(IDS).logits


def test_an_adapter_on_top_and_an_adapter_as_the_model(folder: Path, make_adapter: Callable[..., Path]) -> None:
    adapter = make_adapter()
    expected = adapted(folder, adapter)
    assert not torch.allclose(expected, load(folder)(IDS).logits)
    on_top, alone = load(folder, adapter=adapter), load(adapter)
    assert torch.equal(on_top(IDS).logits, expected)
    assert torch.equal(alone(IDS).logits, expected)
    assert type(on_top.hf).__name__ == "LlamaForCausalLM"
    assert not on_top.hf.training
    assert on_top.identity() == alone.identity()
    assert (alone.id, alone.adapter) == (str(folder), str(adapter))
    assert on_top.identity()["digest"] != load(folder).identity()["digest"]
    assert alone.tokens("cat") == ["cat"]


def test_a_loaded_peft_model(folder: Path, make_adapter: Callable[..., Path]) -> None:
    adapter = make_adapter()
    wrapped = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), adapter)
    model = load(wrapped)
    assert torch.equal(model(IDS).logits, adapted(folder, adapter))
    assert type(model.hf).__name__ == "LlamaForCausalLM"


def test_the_tokenizer_that_came_with_the_adapter(make_adapter: Callable[..., Path], make_tokenizer: Any) -> None:
    adapter = make_adapter()
    make_tokenizer(first=True).save_pretrained(adapter)
    assert load(adapter).tokens("cat") == ["<s>", "cat"]


def test_an_adapter_that_does_not_fit(folder: Path, make_adapter: Callable[..., Path]) -> None:
    adapter = make_adapter()
    weights = adapter / "adapter_model.safetensors"
    other = {name.replace("layers", "blocks"): value for name, value in load_file(weights).items()}
    save_file(other, weights, metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"does not fit this model: it has no matrices for model.layers.0.* and 11 others"
    ):
        load(folder, adapter=adapter)


def test_refused_adapters(folder: Path, make_adapter: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"contains no adapter \(no adapter_config.json was found\)"):
        load(folder, adapter=folder)
    with pytest.raises(ModelError, match=r"is an adapter itself, and adapter=.* is another; load one of the two"):
        load(make_adapter(), adapter=make_adapter("second"))
    wrong = make_adapter("wrong")
    note = json.loads((wrong / "adapter_config.json").read_text())
    (wrong / "adapter_config.json").write_text(json.dumps({**note, "target_modules": ["nothing"]}))
    with pytest.raises(
        ModelError, match=r"could not be added to this model \(Target modules .* not found .*\); use it with"
    ):
        load(folder, adapter=wrong)
    (wrong / "adapter_config.json").write_text(json.dumps({**note, "base_model_name_or_path": None}))
    with pytest.raises(
        ModelError, match="does not name its base model; load that model, and pass this one as adapter="
    ):
        load(wrong)
    (wrong / "adapter_config.json").write_text(json.dumps({**note, "base_model_name_or_path": "/gone/away"}))
    with pytest.raises(ModelError, match="There is no folder or file '/gone/away'"):
        load(wrong)


def test_virtual_tokens_are_refused(folder: Path, tmp_path: Path) -> None:
    config = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), config)
    with pytest.raises(ModelError, match="This model's adapter adds virtual tokens in front of every text"):
        load(model)
    model.save_pretrained(tmp_path / "prompt")
    with pytest.raises(ModelError, match="prompt adds virtual tokens in front of every text"):
        load(folder, adapter=tmp_path / "prompt")


def test_without_peft(folder: Path, make_adapter: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = make_adapter()
    monkeypatch.setattr("headwise.model.adapters.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r'needs the package peft; run `pip install "headwise\[peft\]"`'):
        load(folder, adapter=adapter)
