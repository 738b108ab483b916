"""A run that was killed goes on: weights, the optimiser's memory and all numbers so far, whole or not at all.

    checkpoint-000400/   weights.safetensors  memory.safetensors  state.json

A checkpoint is written under another name and then renamed, and the one before is removed only after that. A recipe or
texts other than those of the run are refused. No pickle.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headwise.core.errors import StudyError

__all__ = ["latest", "load_checkpoint", "save_checkpoint"]


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint."""
    found = sorted(path for path in folder.glob("checkpoint-*") if path.suffix != ".partial")
    return found[-1] if found else None


def save_checkpoint(folder: Path, step: int, weights: dict[str, Tensor], optimiser: Any, state: dict[str, Any]) -> None:
    """Write one; the ones before go."""
    before = sorted(folder.glob("checkpoint-*"))
    whole = folder / f"checkpoint-{step:06d}"
    partial = whole.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(
        {name: weight.detach().contiguous().cpu() for name, weight in weights.items()}, partial / "weights.safetensors"
    )
    save_file(_memory(weights, optimiser), partial / "memory.safetensors")
    (partial / "state.json").write_text(json.dumps({**state, "step": step}), encoding="utf-8")
    shutil.rmtree(whole, ignore_errors=True)
    os.replace(partial, whole)
    for path in before:
        if path != whole:
            shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(path: Path, weights: dict[str, Tensor], optimiser: Any, wanted: dict[str, str]) -> dict[str, Any]:
    """Put one back, in place; gives its state."""
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
        kept, memory = load_file(path / "weights.safetensors"), load_file(path / "memory.safetensors")
    except Exception as error:  # safetensors raises an error of its own, which is no OSError
        raise StudyError(f"The checkpoint {path} is damaged ({error}); remove it, and the run starts anew.") from error
    for name, value in wanted.items():
        if state.get(name) != value:
            raise StudyError(
                f"{path.parent} holds a run with another {name}; give the same again to go on with it, or another folder "
                "with -o."
            )
    if kept.keys() != weights.keys():
        raise StudyError(f"{path.parent} holds a run of another model or adapter; choose another folder with -o.")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(kept[name])
            if f"{name}/first" in memory:
                optimiser.state[weight] = {
                    "step": torch.tensor(float(state["step"])),
                    "exp_avg": memory[f"{name}/first"].to(weight.device),
                    "exp_avg_sq": memory[f"{name}/second"].to(weight.device),
                }
    return state


def _memory(weights: dict[str, Tensor], optimiser: Any) -> dict[str, Tensor]:
    found = {}
    for name, weight in weights.items():
        held = optimiser.state.get(weight, {})
        if "exp_avg" in held:
            found[f"{name}/first"] = held["exp_avg"].contiguous().cpu()
            found[f"{name}/second"] = held["exp_avg_sq"].contiguous().cpu()
    return found
