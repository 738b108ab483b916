"""Files of a run: checkpoints to resume from, and the result, an adapter or a full model.

    checkpoint-000400/   weights.safetensors  optimiser.safetensors  state.json

A checkpoint is written under another name and then renamed (atomic), and the previous one is deleted only after that. A
checkpoint of another recipe or of other texts is refused. No pickle.

The result is an adapter in half precision with its gate file, or a full model with the gate in its config.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headwise.core.errors import StudyError
from headwise.model.adapters import base_digest
from headwise.model.gate import put_gate, write_gate
from headwise.training.student import ALPHA, Student

__all__ = ["latest", "load_checkpoint", "save_checkpoint", "write_model"]


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    found = sorted(path for path in folder.glob("checkpoint-*") if path.suffix != ".partial")
    return found[-1] if found else None


def save_checkpoint(folder: Path, step: int, weights: dict[str, Tensor], optimiser: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint and delete the previous ones."""
    before = sorted(folder.glob("checkpoint-*"))
    complete = folder / f"checkpoint-{step:06d}"
    partial = complete.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(
        {name: weight.detach().contiguous().cpu() for name, weight in weights.items()}, partial / "weights.safetensors"
    )
    moments = {}
    for name, weight in weights.items():
        own = optimiser.state.get(weight, {})
        if "exp_avg" in own:
            moments[f"{name}/first"] = own["exp_avg"].contiguous().cpu()
            moments[f"{name}/second"] = own["exp_avg_sq"].contiguous().cpu()
    save_file(moments, partial / "optimiser.safetensors")
    (partial / "state.json").write_text(json.dumps({**state, "step": step}), encoding="utf-8")
    shutil.rmtree(complete, ignore_errors=True)
    os.replace(partial, complete)
    for path in before:
        if path != complete:
            shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(path: Path, weights: dict[str, Tensor], optimiser: Any, wanted: dict[str, str]) -> dict[str, Any]:
    """Restore weights and optimiser in place; returns the state. `wanted`: digests that must match."""
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
        stored, moments = load_file(path / "weights.safetensors"), load_file(path / "optimiser.safetensors")
    except Exception as error:  # safetensors' own error is not an OSError
        raise StudyError(
            f"The checkpoint {path} is damaged ({error}); delete it, and the run starts from the beginning."
        ) from error
    for name, value in wanted.items():
        if state.get(name) != value:
            raise StudyError(
                f"{path.parent} contains a run with another {name}; give the same {name} to resume it, or another folder "
                "with -o."
            )
    if stored.keys() != weights.keys():
        raise StudyError(f"{path.parent} contains a run of another model or adapter; choose another folder with -o.")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(stored[name])
            if f"{name}/first" in moments:
                optimiser.state[weight] = {
                    "step": torch.tensor(float(state["step"])),
                    "exp_avg": moments[f"{name}/first"].to(weight.device),
                    "exp_avg_sq": moments[f"{name}/second"].to(weight.device),
                }
    return state


# ---- the result -----------------------------------------------------------------------------------------------------


def write_model(student: Student, folder: Path) -> None:
    """Write the result for `headwise.load`: a model folder, or a folder for `adapter=`."""
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
    """In the layout of `peft`."""
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
