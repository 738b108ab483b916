"""What does a model lose without a relation's heads? Accuracy on few-shot tasks, heads switched off at the last token.

A head is removed by setting its output to nought at the last token of the prompt, where the answer is made. Earlier
tokens are as they were, so everything before the last token is run once and kept in a cache, the worked
examples once for all prompts; then only the last token is run, once for every set of heads. (A model without such a
cache runs the whole prompts each time; the result is the same.)

For one task, at each number n of heads:

    own       the n heads with the highest score for this relation
    random    n heads drawn at random from all the others, several times: the draws are nested, as the sets above are.
              With `same_layers` the i-th is drawn from the layer of the relation's i-th head, a stricter control
    control   the n highest heads of another relation: what that relation's heads do to this task

A set is removed only as far as heads have a score above nought. Cost: one token a prompt and set.
This module does not know how heads were scored.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.interventions import ScaleHeads
from headwise.seam import Structure, observe
from headwise.studies.relation_validation.prompts import Task

__all__ = ["LastToken", "Outcomes", "ranked_heads", "remove"]

Head = tuple[int, int]
Floats = NDArray[np.float32]


class LastToken:
    """A task's prompts, run up to their last token; that one is run as often as asked."""

    def __init__(self, structure: Structure, task: Task):
        self.structure, self.task = structure, task
        self.ids = task.ids.to(structure.device)
        self.cache = self._run_before()

    @torch.no_grad()
    def right(self, heads: Sequence[Head] = ()) -> NDArray[np.bool_]:
        """Which prompts the model completes with a right token, without these heads."""
        if not heads:
            top = self._top()
        else:
            with observe(self.structure, ScaleHeads(heads, 0.0, "last")):
                top = self._top()
        return np.array([token in right for token, right in zip(top.tolist(), self.task.answers, strict=True)])

    def _top(self) -> Tensor:
        hf: Any = self.structure.hf
        if self.cache is None:
            return hf(input_ids=self.ids, use_cache=False).logits[:, -1].argmax(-1)
        cache = copy.deepcopy(self.cache)  # running a token adds it to the cache
        return hf(input_ids=self.ids[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)

    @torch.no_grad()
    def _run_before(self) -> Any | None:
        """The cache of all but the last token; None where the model keeps none that can be spread over prompts."""
        shared, decoder = self.task.shared, self.structure.decoder
        if not shared:
            return None
        cache: Any = getattr(decoder(input_ids=self.ids[:1, :shared], use_cache=True), "past_key_values", None)
        if not hasattr(cache, "batch_repeat_interleave"):
            return None
        cache.batch_repeat_interleave(len(self.ids))
        if shared < self.ids.shape[1] - 1:
            decoder(input_ids=self.ids[:, shared:-1], past_key_values=cache, use_cache=True)
        return cache


@dataclass(frozen=True)
class Outcomes:
    """Which prompts of a task are still right: 1 or 0, NaN where there are not so many heads to remove."""

    own: Floats  # (prompt, removed)
    random: Floats  # (draw, prompt, removed)
    control: Floats  # (control, prompt, removed)


def ranked_heads(score: np.ndarray) -> list[Head]:
    """The heads with a score above nought, highest first, equal ones from the first layer on; `score` (layer, head)."""
    flat = np.nan_to_num(score, nan=0.0).ravel()
    order = np.argsort(-flat, kind="stable")
    return [(int(place) // score.shape[1], int(place) % score.shape[1]) for place in order if flat[place] > 0]


def remove(
    run: LastToken,
    ranked: Mapping[str, Sequence[Head]],
    everyone: Sequence[Head],
    *,
    steps: Sequence[int],
    draws: int,
    seed: int,
    same_layers: bool = False,
) -> Outcomes:
    """The outcomes of a task. `ranked`: heads by relation, the task's own and the controls in order; `everyone`: all."""
    name, prompts = run.task.relation, len(run.task)
    own = ranked[name]
    reach = [step for step in steps if step <= len(own)]
    taken = own[: max(reach, default=0)]
    others = [head for head in everyone if head not in set(taken)]
    rng = np.random.default_rng([seed, *name.encode()])
    shuffled = [[others[place] for place in rng.permutation(len(others))] for _ in range(draws)]
    drawn = [_layer_by_layer(taken, heads) for heads in shuffled] if same_layers else shuffled

    def curve(heads: Sequence[Head], steps_of: Sequence[int]) -> Floats:
        found = np.full((prompts, len(steps)), np.nan, dtype=np.float32)
        for column, step in enumerate(steps):
            if step in steps_of and step <= len(heads):
                found[:, column] = run.right(heads[:step])
        return found

    blank = np.full((prompts, len(steps)), np.nan, dtype=np.float32)
    return Outcomes(
        curve(own, reach),
        np.stack([curve(heads, reach) for heads in drawn]),
        np.stack([blank if other == name else curve(heads, steps) for other, heads in ranked.items()]),
    )


def _layer_by_layer(wanted: Sequence[Head], heads: Sequence[Head]) -> list[Head]:
    """For each wanted head the first of the others in its layer, or where none is left in the nearest layer."""
    left, found = list(heads), []
    for layer, _ in wanted:
        nearest = min(left, key=lambda head: abs(head[0] - layer), default=None)  # the first of equals
        if nearest is not None:
            left.remove(nearest)
            found.append(nearest)
    return found
