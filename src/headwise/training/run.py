"""The run: noisy gates, pressed down while the loss stays near the dense model's; see the other files for the parts.

A step: draw rows; run the dense model for its distribution and loss; run the student with noisy gates; the loss that is
descended is

    fit + pressure * expected share of open edges      fit = distil * KL(dense || student) + (1 - distil) * CE

then the pressure moves (`pressure`) and the gates' bias falls (`recipe`). Every so many steps held-out rows are looked at
with hard gates, which is how the model is used. At the end all held-out and unseen kinds are measured, at the trained bias
0 and at others, which gives a curve of loss against open edges from one model.

Writes into the output folder: the adapter (or the whole model), `headwise_gate.json`, and `training.json` with every
number. Cost: about three forward-and-backward passes of the dense model a step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.core.errors import DataError, StudyError
from headwise.model import Model, is_offloaded
from headwise.model.gate import training
from headwise.training.checkpoints import latest, load_checkpoint, save_checkpoint
from headwise.training.measures import Look, fit_of, look, visible_pairs
from headwise.training.output import write_model
from headwise.training.pressure import Pressure
from headwise.training.recipe import Recipe
from headwise.training.student import Student
from headwise.training.texts import Texts

__all__ = ["refuse_finished", "sparsify"]

BIASES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)  # of the gates, at the end
FINAL = 4  # times as many rows at the end as in a look on the way
Progress = Callable[[int, int, dict[str, float]], None]  # steps done, steps in all, numbers to show


def sparsify(
    model: Model,
    texts: Texts,
    held_out: Texts,
    recipe: Recipe | None = None,
    *,
    unseen: Texts | None = None,
    output: str | Path = "sparse",
    progress: Progress | None = None,
    stop_at: int | None = None,
) -> Path:
    """Train a sparse version of a model: the same work over few attention edges.

    A run that was killed goes on from its last checkpoint when called again.

    Args:
        model: the dense model.
        texts: what is trained on; made by `headwise.training.read_texts(paths, model)`.
        held_out: the same kinds of text, other documents: here the loss is held.
        recipe: how; None: the usual one.
        unseen: other kinds of text, which are only measured at the end.
        output: the folder of the result, its checkpoints and its record.
        progress: called after each step with the step, the number of steps, and the numbers of this one.
        stop_at: end after so many steps, with a checkpoint, to go on later.

    Returns:
        The folder, which `load` takes.

    Examples:
        Two steps, to see the form; a real run takes some thousand.

        >>> from headwise.training import Recipe, read_texts
        >>> _ = (folder / "prose.txt").write_text("the old river was under the old house . " * 20)
        >>> texts = read_texts([folder / "prose.txt"], model)
        >>> recipe = Recipe(steps=2, batch=2, length=16, rank=0, evaluate=1, rows=1, checkpoint=2)
        >>> done = hw.sparsify(model, texts, texts, recipe, output=folder / "sparse")
        >>> (done / "training.json").exists(), (done / "model.safetensors").exists()
        (True, True)
    """
    recipe = recipe or Recipe()
    folder = Path(output)
    refuse_finished(folder)
    if is_offloaded(model.hf):
        raise StudyError(f"sparsify trains {model.id}, and parts of it are offloaded; load it whole, on one device.")
    for given in (texts, held_out, unseen or Texts({})):
        if not isinstance(given, Texts):
            raise DataError(
                f"sparsify takes Texts, not a {type(given).__name__}; make them with "
                "headwise.training.read_texts(paths, model)."
            )
        given.check(recipe.length)
    folder.mkdir(parents=True, exist_ok=True)
    run = _Run(model, texts, held_out, recipe, folder)
    end = min(recipe.steps, stop_at or recipe.steps)
    for step in range(run.start, end):
        numbers = run.step(step)
        if (step + 1) % recipe.evaluate == 0:
            numbers |= run.look_at_held_out(step + 1)
        if (step + 1) % recipe.checkpoint == 0 or step + 1 == end:
            run.save(step + 1)
        if progress is not None:
            progress(step + 1, recipe.steps, numbers)
    if end == recipe.steps:
        run.finish(unseen)
    return folder


def refuse_finished(folder: Path) -> None:
    """A run that is done is not run over.

    Args:
        folder: where the result would go.

    Examples:
        >>> refuse_finished(folder)  # empty: nothing to refuse
    """
    if (folder / "training.json").is_file():
        raise StudyError(f"{folder} holds a finished run; choose another folder with -o.")


class _Run:
    """A run between its steps."""

    def __init__(self, model: Model, texts: Texts, held_out: Texts, recipe: Recipe, folder: Path):
        self.texts, self.held_out, self.recipe, self.folder = texts, held_out, recipe, folder
        self.student = Student(model, recipe)
        self.weights = self.student.weights
        self.optimiser = torch.optim.AdamW(self.weights.values(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0)
        self.pressure = Pressure(recipe.pressure, recipe.slack, recipe.speed, recipe.most_pressure)
        self.curve: list[dict[str, float]] = []
        self.looks: list[dict[str, Any]] = []
        self.known = {"recipe": recipe.digest(), "texts": texts.digest()}
        self.start = 0
        kept = latest(folder)
        if kept is not None:
            state = load_checkpoint(kept, self.weights, self.optimiser, self.known)
            self.start, self.curve, self.looks = state["step"], state["curve"], state["looks"]
            self.pressure = Pressure(**state["pressure"])

    def step(self, step: int) -> dict[str, float]:
        """Draw, run, descend."""
        recipe = self.recipe
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.rate_at(step)
        drawn = self.texts.draw(recipe.batch, recipe.length, seed=recipe.seed, step=step)
        rows = torch.from_numpy(drawn).long().to(self.student.model.device)
        parts = rows.split(recipe.micro or recipe.batch)
        sums = torch.zeros(4, device=rows.device)  # loss, dense, distance, share
        for number, part in enumerate(parts):
            sums += self._descend(part, step, number) * (len(part) / len(rows))
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        loss, dense, distance, share = sums.tolist()
        if not math.isfinite(loss):
            raise StudyError(
                f"The loss is not finite at step {step}; lower the rate of learning. What was done before is in "
                f"{latest(self.folder) or self.folder}."
            )
        self.pressure.see(recipe.excess(loss, dense, distance))
        numbers = {
            "step": step + 1, "loss": loss, "dense": dense, "distance": distance, "share": share,
            "bias": recipe.bias_at(step), "pressure": self.pressure.weight,
        }  # fmt: skip
        if (step + 1) % max(1, min(10, recipe.steps // 100)) == 0:
            self.curve.append(numbers)
        return numbers

    def _descend(self, rows: Tensor, step: int, number: int) -> Tensor:
        """Gradients of some rows are added up; gives their numbers."""
        recipe = self.recipe
        dense = self.student.dense_logits(rows)
        with training(recipe.bias_at(step), step * 64 + number) as session:
            logits = self.student.logits(rows)
        fit = fit_of(logits, dense, rows, recipe.distil)
        total = fit.descended
        share = rows.new_ones((), dtype=torch.float32)
        if session.expected:
            heads = sum(layer.shape[1] for layer in session.expected)
            share = torch.stack([layer.float().sum() for layer in session.expected]).sum()
            share = share / visible_pairs(len(rows), rows.shape[1], heads)
            total = total + self.pressure.weight * share.clamp(min=recipe.least)
        (total * (len(rows) / recipe.batch)).backward()
        return torch.stack([fit.loss, fit.dense, fit.distance, share.detach()])

    def look_at_held_out(self, step: int) -> dict[str, float]:
        """All kinds, with hard gates at the bias of now."""
        recipe = self.recipe
        found = self._looks(self.held_out, recipe.rows, recipe.bias_at(step))
        self.looks.append({"step": step, "bias": recipe.bias_at(step), "kinds": [_row(one) for one in found]})
        excess = sum(recipe.excess(one.loss, one.dense, one.distance) for one in found) / len(found)
        self.pressure.see_held_out(excess)
        return {
            "held_out_excess": sum(one.excess for one in found) / len(found),
            "held_out_share": sum(one.share for one in found) / len(found),
        }

    def finish(self, unseen: Texts | None) -> None:
        """Measure everything and write the result."""
        recipe, rows = self.recipe, self.recipe.rows * FINAL
        every = {"held-out": self.held_out} | ({} if unseen is None else {"unseen": unseen})
        final = [
            {"texts": name, "bias": bias, **_row(one)}
            for name, texts in every.items()
            for bias in (BIASES if recipe.gated else (0.0,))
            for one in self._looks(texts, rows, bias)
        ]
        told = {
            "model": self.student.model.identity(),
            "recipe": asdict(recipe),
            "texts": {name: len(ids) for name, ids in self.texts.kinds.items()},
            "texts_digest": self.texts.digest(),
            "curve": self.curve,
            "looks": self.looks,
            "final": final,
        }
        write_model(self.student, self.folder)
        (self.folder / "training.json").write_text(json.dumps(told, indent=1), encoding="utf-8")

    def save(self, step: int) -> None:
        """A checkpoint."""
        state = {**self.known, "pressure": self.pressure.to_dict(), "curve": self.curve, "looks": self.looks}
        save_checkpoint(self.folder, step, self.weights, self.optimiser, state)

    def _looks(self, texts: Texts, rows: int, bias: float) -> Sequence[Look]:
        return [look(self.student, texts, kind, rows, self.recipe.length, bias) for kind in texts.kinds]


def _row(one: Look) -> dict[str, Any]:
    return {**asdict(one), "excess": one.excess}
