"""The folder that a run leaves: an adapter in half precision and its gate file, or a whole model, gate in its config."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from headwise.model.adapters import base_digest
from headwise.model.gate import put_gate, write_gate
from headwise.training.student import ALPHA, Student

__all__ = ["write_model"]


def write_model(student: Student, folder: Path) -> None:
    """What `headwise.load` takes: the folder itself, or `adapter=` the folder."""
    if student.recipe.rank:
        _write_adapter(student, folder)
        return
    hf = copy.deepcopy(student.hf)
    with torch.no_grad():
        for name, weight in hf.named_parameters():
            weight.copy_(student.weights[name])
    if student.recipe.gated:
        put_gate(hf)
    hf.save_pretrained(folder)
    if student.model.tokenizer is not None:
        student.model.tokenizer.save_pretrained(folder)


def _write_adapter(student: Student, folder: Path) -> None:
    """In the layout that `peft` reads."""
    model, recipe = student.model, student.recipe
    last = {name.rsplit(".", 1)[-1]: rank for name, rank in student.ranks.items()}
    other = {name: rank for name, rank in last.items() if rank != recipe.rank}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.id,
        "r": recipe.rank,
        "lora_alpha": ALPHA * recipe.rank,
        "rank_pattern": other,
        "alpha_pattern": {name: ALPHA * rank for name, rank in other.items()},
        "target_modules": sorted(last),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    half = {f"base_model.model.{name}": weight.detach().to("cpu", torch.float16).contiguous()
            for name, weight in student.weights.items()}  # fmt: skip
    save_file(half, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    if recipe.gated:
        about = {"model": model.id, "revision": model.revision, "digest": base_digest(model.hf)}
        write_gate(folder, 0.0, **about, steps=recipe.steps, slack=recipe.slack)
