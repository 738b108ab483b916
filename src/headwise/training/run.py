"""The training loop of sparse post-training: noisy gates, penalised while the loss stays near the dense model's.

A step draws rows, runs the dense model for its distribution and loss, and the student with noisy gates. The objective is

    fit + pressure * expected share of open edges      fit = distil * KL(dense || student) + (1 - distil) * CE

The controller then adapts the pressure, and the gates' bias falls (`recipe`). At intervals held-out rows are evaluated
with hard gates, as the model is used. At the end all held-out and unseen kinds are evaluated at the trained bias 0 and at
others, which gives a curve of loss against open edges from one model.

The output folder gets the adapter in half precision (or the full model), `headwise_gate.json`, and `training.json` with all
numbers. Cost: about three forward and backward passes of the dense model per step.

    checkpoint-000400/   weights.safetensors  optimiser.safetensors  state.json

A checkpoint is written under another name and then renamed (atomic), and the previous one is deleted only after that. A
checkpoint of another recipe or of other texts is refused. No pickle.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headwise.core.errors import DataError, StudyError
from headwise.core.files import make_folder, output_folder, write_output
from headwise.core.parsing import Count, parse
from headwise.core.provenance import public_name
from headwise.model import Model, is_offloaded
from headwise.model.adapters import base_digest
from headwise.model.gate import put_gate, training, write_gate
from headwise.training.recipe import GecoController, SparsityRecipe
from headwise.training.student import ALPHA, Evaluation, Student, evaluate, fit_of, visible_pairs
from headwise.training.texts import Texts

__all__ = ["latest", "load_checkpoint", "require_unfinished", "save_checkpoint", "sparsify", "write_model"]


BIASES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)  # of the gates, at the end
FINAL = 4  # rows of the final evaluation over rows of an intermediate one
Progress = Callable[[int, int, dict[str, float]], None]  # steps done, steps in all, numbers to show


def sparsify(
    model: Model,
    texts: Texts,
    held_out: Texts,
    recipe: SparsityRecipe | None = None,
    *,
    unseen: Texts | None = None,
    output: str | Path = "sparse",
    progress: Progress | None = None,
    stop_at: int | None = None,
) -> Path:
    """Train a sparse version of a model, which does the same work over few attention edges.

    An interrupted run resumes from its last checkpoint when called again.

    Args:
        model: the dense model.
        texts: the training texts; made by `headwise.training.read_texts(paths, model)`.
        held_out: other documents of the same kinds, on which the loss is constrained.
        recipe: the settings; None: the defaults.
        unseen: other kinds of text, which are evaluated only at the end.
        output: the folder of the result, its checkpoints and its record.
        progress: called after each step with the step, the number of steps, and the step's numbers.
        stop_at: stop after this many steps, with a checkpoint.

    Returns:
        The folder, for `load`.

    Examples:
        Two steps only; a real run takes about a thousand.

        >>> from headwise.training import SparsityRecipe, read_texts
        >>> _ = (folder / "prose.txt").write_text("the old river was under the old house . " * 20)
        >>> texts = read_texts([folder / "prose.txt"], model)
        >>> recipe = SparsityRecipe(steps=2, batch=2, length=16, rank=0, evaluate=1, rows=1, checkpoint=2)
        >>> done = hw.sparsify(model, texts, texts, recipe, output=folder / "sparse")
        >>> (done / "training.json").exists(), (done / "model.safetensors").exists()
        (True, True)
    """
    recipe = recipe or SparsityRecipe()
    folder = Path(output).expanduser()
    require_unfinished(folder)
    if is_offloaded(model.hf):
        raise StudyError(f"Parts of {model.id} are offloaded, so it cannot be trained; load it on one device.")
    for given in (texts, held_out, unseen or Texts({})):
        if not isinstance(given, Texts):
            raise DataError(
                f"sparsify takes Texts, not a {type(given).__name__}; make them with "
                "headwise.training.read_texts(paths, model)."
            )
        given.check(recipe.length)
    make_folder(folder)
    run = _TrainingRun(model, texts, held_out, recipe, folder)
    end = min(recipe.steps, stop_at or recipe.steps)
    for step in range(run.start, end):
        numbers = run.step(step)
        if (step + 1) % recipe.evaluate == 0:
            numbers |= run.evaluate_held_out(step + 1)
        if (step + 1) % recipe.checkpoint == 0 or step + 1 == end:
            run.save(step + 1)
        if progress is not None:
            progress(step + 1, recipe.steps, numbers)
    if end == recipe.steps:
        run.finish(unseen)
    return folder


def require_unfinished(folder: Path) -> None:
    """Refuse a folder with a finished run.

    Args:
        folder: the output folder.

    Examples:
        >>> require_unfinished(folder)  # an empty folder is fine
    """
    if (folder / "training.json").is_file():
        raise StudyError(f"{folder} contains a finished run; choose another folder with -o.")


class _TrainingRun:
    """The state of a run."""

    def __init__(self, model: Model, texts: Texts, held_out: Texts, recipe: SparsityRecipe, folder: Path):
        self.texts, self.held_out, self.recipe, self.folder = texts, held_out, recipe, folder
        self.student = Student(model, recipe)
        self.weights = self.student.weights
        rate = recipe.learning_rate
        self.optimiser = torch.optim.AdamW(self.weights.values(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
        self.controller = GecoController(recipe.pressure, recipe.slack, recipe.speed, recipe.max_pressure)
        self.curve: list[dict[str, float]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.digests = {"recipe": recipe.digest(), "texts": texts.digest()}
        self.start = 0
        checkpoint = latest(folder)
        if checkpoint is not None:
            state = load_checkpoint(checkpoint, self.weights, self.optimiser, self.digests)
            self.start, self.curve, self.evaluations = state["step"], state["curve"], state["evaluations"]
            self.controller = GecoController(**state["controller"])

    def step(self, step: int) -> dict[str, float]:
        """One optimiser step."""
        recipe = self.recipe
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.rate_at(step)
        drawn = self.texts.draw(recipe.batch, recipe.length, seed=recipe.seed, step=step)
        rows = torch.from_numpy(drawn).long().to(self.student.model.device)
        parts = rows.split(recipe.micro_batch or recipe.batch)
        sums = torch.zeros(4, device=rows.device)  # loss, dense, distance, share
        for number, part in enumerate(parts):
            sums += self._backward(part, step, number) * (len(part) / len(rows))
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        loss, dense, distance, share = sums.tolist()
        if not math.isfinite(loss):
            raise StudyError(
                f"The loss is not finite at step {step}; lower the learning rate. The last checkpoint is in "
                f"{latest(self.folder) or self.folder}."
            )
        self.controller.update(recipe.excess(loss, dense, distance))
        numbers = {
            "step": step + 1, "loss": loss, "dense": dense, "distance": distance, "share": share,
            "bias": recipe.bias_at(step), "pressure": self.controller.weight,
        }  # fmt: skip
        if (step + 1) % max(1, min(10, recipe.steps // 100)) == 0:
            self.curve.append(numbers)
        return numbers

    def _backward(self, rows: Tensor, step: int, number: int) -> Tensor:
        """Accumulate the gradients of some rows; returns their losses and share of open edges."""
        recipe = self.recipe
        dense = self.student.dense_logits(rows)
        with training(recipe.bias_at(step), step * 64 + number) as session:
            logits = self.student.logits(rows)
        fit = fit_of(logits, dense, rows, recipe.distil)
        total = fit.objective
        share = rows.new_ones((), dtype=torch.float32)
        if session.expected:
            heads = sum(layer.shape[1] for layer in session.expected)
            share = torch.stack([layer.float().sum() for layer in session.expected]).sum()
            share = share / visible_pairs(len(rows), rows.shape[1], heads)
            total = total + self.controller.weight * share.clamp(min=recipe.min_share)
        (total * (len(rows) / recipe.batch)).backward()
        return torch.stack([fit.loss, fit.dense, fit.distance, share.detach()])

    def evaluate_held_out(self, step: int) -> dict[str, float]:
        """Evaluate all kinds, with hard gates at the current bias."""
        recipe = self.recipe
        found = self._evaluate(self.held_out, recipe.rows, recipe.bias_at(step))
        self.evaluations.append({"step": step, "bias": recipe.bias_at(step), "kinds": [_row(one) for one in found]})
        excess = sum(recipe.excess(one.loss, one.dense, one.distance) for one in found) / len(found)
        self.controller.update_held_out(excess)
        return {
            "held_out_excess": sum(one.excess for one in found) / len(found),
            "held_out_share": sum(one.share for one in found) / len(found),
        }

    def finish(self, unseen: Texts | None) -> None:
        """Evaluate everything and write the result."""
        recipe, rows = self.recipe, self.recipe.rows * FINAL
        every = {"held-out": self.held_out} | ({} if unseen is None else {"unseen": unseen})
        final = [
            {"texts": name, "bias": bias, **_row(one)}
            for name, texts in every.items()
            for bias in (BIASES if recipe.gated else (0.0,))
            for one in self._evaluate(texts, rows, bias)
        ]
        record = {
            "model": self.student.model.identity(),
            "recipe": asdict(recipe),
            "texts": {name: len(ids) for name, ids in self.texts.kinds.items()},
            "texts_digest": self.texts.digest(),
            "curve": self.curve,
            "evaluations": self.evaluations,
            "final": final,
        }
        with output_folder(self.folder) as temporary:
            write_model(self.student, temporary)
        write_output(self.folder / "training.json", json.dumps(record, indent=1))

    def save(self, step: int) -> None:
        """Write a checkpoint."""
        progress = {"controller": asdict(self.controller), "curve": self.curve, "evaluations": self.evaluations}
        save_checkpoint(self.folder, step, self.weights, self.optimiser, {**self.digests, **progress})

    def _evaluate(self, texts: Texts, rows: int, bias: float) -> Sequence[Evaluation]:
        return [evaluate(self.student, texts, kind, rows, self.recipe.length, bias) for kind in texts.kinds]


def _row(one: Evaluation) -> dict[str, Any]:
    return {**asdict(one), "excess": one.excess}


class TrainingState(TypedDict):
    """What a checkpoint holds besides tensors."""

    step: Count
    recipe: str
    texts: str
    controller: dict[str, Any]
    curve: list[dict[str, float]]
    evaluations: list[dict[str, Any]]


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    found = sorted(path for path in folder.glob("checkpoint-*") if path.suffix != ".partial")
    return found[-1] if found else None


def save_checkpoint(folder: Path, step: int, weights: dict[str, Tensor], optimiser: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint and delete the previous ones."""
    before = [*folder.glob("checkpoint-*"), *folder.glob(".headwise-*.tmp")]
    complete = folder / f"checkpoint-{step:06d}"
    moments = {}
    for name, weight in weights.items():
        own = optimiser.state.get(weight, {})
        if "exp_avg" in own:
            moments[f"{name}/first"] = own["exp_avg"].contiguous().cpu()
            moments[f"{name}/second"] = own["exp_avg_sq"].contiguous().cpu()
    with output_folder(complete) as temporary:
        own_weights = {name: weight.detach().contiguous().cpu() for name, weight in weights.items()}
        save_file(own_weights, temporary / "weights.safetensors")
        save_file(moments, temporary / "optimiser.safetensors")
        write_output(temporary / "state.json", json.dumps({**state, "step": step}))
    for path in before:
        if path != complete:
            shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(path: Path, weights: dict[str, Tensor], optimiser: Any, wanted: dict[str, str]) -> dict[str, Any]:
    """Restore weights and optimiser in place; returns the state. `wanted`: digests that must match."""
    try:
        state: dict[str, Any] = dict(parse((path / "state.json").read_bytes(), TrainingState))
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
    write_output(folder / "adapter_config.json", json.dumps(config, indent=2) + "\n")
    half = {f"base_model.model.{name}": weight.detach().to("cpu", torch.float16).contiguous()
            for name, weight in student.weights.items()}  # fmt: skip
    save_file(half, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    if recipe.gated:
        about = {"model": public_name(model.id), "revision": model.revision, "digest": base_digest(model.hf)}
        write_gate(folder, 0.0, **about, steps=recipe.steps, slack=recipe.slack)
