from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headwise.core.errors import ModelError
from headwise.model.card import ModelCard
from headwise.model.digest import SAMPLE, _sample, check_finite, tokenizer_digest, weights_digest


def test_same_after_saving_and_loading(hf: Any, folder: Path) -> None:
    assert weights_digest(AutoModelForCausalLM.from_pretrained(folder)) == weights_digest(hf)
    assert len(weights_digest(hf)) == 32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_same_on_a_gpu(hf: Any, folder: Path) -> None:
    assert weights_digest(AutoModelForCausalLM.from_pretrained(folder).to("cuda")) == weights_digest(hf)


def test_a_merged_adapter_is_noticed(hf: Any) -> None:
    peft = pytest.importorskip("peft")
    before = weights_digest(hf)
    config = peft.LoraConfig(r=1, target_modules=["q_proj"], layers_to_transform=[1], init_lora_weights=False)
    merged = peft.get_peft_model(hf, config).merge_and_unload()
    assert [n for n, _ in merged.named_parameters()] == [n for n, _ in hf.named_parameters()]
    assert weights_digest(merged) != before


def test_a_training_step_is_noticed(hf: Any) -> None:
    before = weights_digest(hf)
    with torch.no_grad():
        hf.model.layers[2].self_attn.o_proj.weight.mul_(1 + 1e-6)
    assert weights_digest(hf) != before


def test_other_names_dtypes_and_rotary_settings_are_noticed(hf: Any, make_config: Any) -> None:
    digests = {weights_digest(hf)}
    hf.config.rope_parameters = {**hf.config.rope_parameters, "rope_theta": 500.0}
    digests.add(weights_digest(hf))
    digests.add(weights_digest(hf.to(torch.bfloat16)))
    hf.extra = torch.nn.Linear(2, 2)
    digests.add(weights_digest(hf))
    assert len(digests) == 4


def test_memory_layout_does_not_matter(hf: Any) -> None:
    before = weights_digest(hf)
    weight = hf.model.layers[0].mlp.up_proj.weight
    weight.data = weight.data.t().contiguous().t()
    assert not weight.is_contiguous()
    assert weights_digest(hf) == before


def test_offloaded_weights_count_the_same(hf: Any, folder: Path, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    before = weights_digest(hf)
    assert weights_digest(accelerate.cpu_offload(hf, execution_device="cpu")) == before
    again = AutoModelForCausalLM.from_pretrained(folder)
    offloaded = accelerate.disk_offload(again, tmp_path / "offloaded", execution_device="cpu")
    assert next(offloaded.model.layers.parameters()).is_meta
    assert weights_digest(offloaded) == before


def test_the_sample_covers_all_columns_and_the_end() -> None:
    square = torch.arange(64 * 1024, dtype=torch.float64).reshape(64, 1024)
    seen = torch.frombuffer(bytearray(_sample(square)), dtype=torch.float64)
    assert 900 < len(seen) <= SAMPLE
    assert len(set((seen % 1024).tolist())) > 900  # a step of 64 would see 16 columns
    assert seen[-1] > 64 * 1024 * 0.98
    assert _sample(torch.empty(0)) == b""
    assert len(_sample(torch.tensor(1.0))) == 4


def test_a_skeleton_has_no_digest(make_config: Any) -> None:
    with pytest.raises(ModelError, match="has shapes but no weights"):
        weights_digest(ModelCard.from_config(make_config()).skeleton)


def test_weights_that_are_not_numbers(hf: Any) -> None:
    check_finite(hf)
    with torch.no_grad():
        hf.model.layers[1].mlp.up_proj.weight[0, :2] = torch.tensor([float("inf"), float("nan")])
    with pytest.raises(ModelError, match=r"2 of the 1536 entries of model.layers.1.mlp.up_proj.weight are NaN or inf"):
        check_finite(hf)


def test_huge_but_finite_weights_pass(hf: Any) -> None:
    with torch.no_grad():
        hf.model.norm.weight.fill_(3e38)
    check_finite(hf)


def test_tokenizer_digest(tokenizer: Any, make_tokenizer: Any, folder: Path) -> None:
    digest = tokenizer_digest(tokenizer)
    tokenizer(["a", "a cat"], padding=True, truncation=True, max_length=4)
    assert tokenizer_digest(tokenizer) == digest == tokenizer_digest(AutoTokenizer.from_pretrained(folder))
    assert tokenizer_digest(make_tokenizer(first=True)) != digest
    assert tokenizer_digest(make_tokenizer(chat="other")) != digest
    assert tokenizer_digest(None) is None
