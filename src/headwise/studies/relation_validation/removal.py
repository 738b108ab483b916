"""How much accuracy does a model lose without a relation's heads? Few-shot tasks, heads ablated at the last token.

A task is a relation's first template with a few worked examples in front:

    The capital of Peru is Lima
    The capital of Japan is Tokyo
    The capital of France is                  -> Paris is right, and so is any other target of France

All prompts of a task have the same length and the same beginning, and every source is one token. A head is removed by setting
its output to 0 at the last token of the prompt, where the answer is made. Earlier tokens do not change, so everything before
the last token is run once and cached (the worked examples once for all prompts); then only the last token is run, once for
every set of heads. A model without such a cache runs the whole prompts each time, with the same result.

For one task, at each number n of heads:

    own       the n heads with the highest score for this relation
    random    n other heads, several times: the i-th is drawn from the layer of the relation's i-th head (or the nearest layer
              with one left), because what an ablation costs depends on depth; without `same_layers` from all layers. The
              draws are nested, as the sets above are
    control   the n highest heads of another relation: what that relation's heads do to this task

Only heads with a score above 0 are removed. Cost: one token per prompt and set of heads.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.corpora import SLOT, SingleTokenPairs
from headwise.interventions.heads import ScaleHeads
from headwise.model import Model
from headwise.seam import Structure, observe

GENERIC_TEMPLATES = (
    f"The word {SLOT} goes with the word",
    f"Given the word {SLOT}, the answer is",
)  # for relations without templates


@dataclass(frozen=True)
class FewShotTask:
    """Few-shot prompts of one relation."""

    relation: str
    ids: Tensor  # (prompt, token) long
    shared: int  # tokens at the beginning that are the same in all prompts
    answers: tuple[frozenset[int], ...]  # the tokens that are right, for each prompt

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, rows: Sequence[int]) -> FewShotTask:
        """Some of the prompts."""
        return FewShotTask(self.relation, self.ids[list(rows)], self.shared, tuple(self.answers[row] for row in rows))


def task_of(model: Model, pairs: SingleTokenPairs, *, shots: int, count: int, seed: int) -> FewShotTask:
    """At most `count` prompts, with `shots` other sources and their first targets as worked examples."""
    template = (pairs.relation.templates or GENERIC_TEMPLATES)[0]
    tokens: dict[str, set[int]] = {}
    for (source, _), target in zip(pairs.pairs, pairs.targets, strict=True):
        tokens.setdefault(source, set()).add(target)
    sources = list(tokens)
    order = [sources[row] for row in shuffled_rows(len(sources), pairs, seed)]
    shown, asked = order[:shots], order[shots : shots + count]
    first = dict(reversed(pairs.pairs))
    worked = "".join(f"{template.replace(SLOT, source)} {first[source]}\n" for source in shown)
    rows = [tuple(model.ids(worked + template.replace(SLOT, source))) for source in asked]
    length = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    usable = [(row, frozenset(tokens[source])) for row, source in zip(rows, asked, strict=True) if len(row) == length]
    ids = torch.tensor([row for row, _ in usable], dtype=torch.long).reshape(len(usable), length)
    return FewShotTask(pairs.relation.name, ids, _shared(ids), tuple(right for _, right in usable))


def _shared(ids: Tensor) -> int:
    """Length of the common prefix of all rows, without the last token, which is always run by itself."""
    same = (ids[:, :-1] == ids[:1, :-1]).all(dim=0)  # (token,)
    return int(same.long().cumprod(dim=0).sum()) if len(ids) else 0


def shuffled_rows(count: int, pairs: SingleTokenPairs, seed: int) -> list[int]:
    return random.Random(f"{seed} {pairs.relation.name}").sample(range(count), count)


Head = tuple[int, int]
Floats = NDArray[np.float32]


class LastToken:
    """A task's prompts, run up to their last token, which is run once per set of heads."""

    def __init__(self, structure: Structure, task: FewShotTask):
        self.structure, self.task = structure, task
        self.ids = task.ids.to(structure.device)
        self.cache = self._run_before()

    @torch.no_grad()
    def right(self, heads: Sequence[Head] = ()) -> NDArray[np.bool_]:
        """Which prompts the model completes with a correct token, without these heads."""
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
        """The KV cache of all but the last token; None where the model has none that can be repeated over prompts."""
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
class RemovalOutcomes:
    """Which prompts of a task are still completed correctly: 1 or 0, NaN where there are not enough heads to remove."""

    own: Floats  # (prompt, removed)
    random: Floats  # (draw, prompt, removed)
    control: Floats  # (control, prompt, removed)


def ranked_heads(score: np.ndarray) -> list[Head]:
    """The heads with a score above 0, highest first, ties from the first layer on; `score` is (layer, head)."""
    flat = np.nan_to_num(score, nan=0.0).ravel()
    order = np.argsort(-flat, kind="stable")
    return [divmod(int(index), score.shape[1]) for index in order if flat[index] > 0]


def remove(
    run: LastToken,
    ranked: Mapping[str, Sequence[Head]],
    all_heads: Sequence[Head],
    *,
    steps: Sequence[int],
    draws: int,
    seed: int,
    same_layers: bool = False,
) -> RemovalOutcomes:
    """The outcomes of a task. `ranked`: heads by relation, the task's own and the controls', highest score first."""
    name, prompts = run.task.relation, len(run.task)
    own = ranked[name]
    reach = [step for step in steps if step <= len(own)]
    taken = own[: max(reach, default=0)]
    others = [head for head in all_heads if head not in set(taken)]
    rng = np.random.default_rng([seed, *name.encode()])
    shuffled = [[others[index] for index in rng.permutation(len(others))] for _ in range(draws)]
    drawn = [_matched_by_layer(taken, heads) for heads in shuffled] if same_layers else shuffled

    def curve(heads: Sequence[Head], steps_of: Sequence[int]) -> Floats:
        found = np.full((prompts, len(steps)), np.nan, dtype=np.float32)
        for column, step in enumerate(steps):
            if step in steps_of and step <= len(heads):
                found[:, column] = run.right(heads[:step])
        return found

    blank = np.full((prompts, len(steps)), np.nan, dtype=np.float32)
    return RemovalOutcomes(
        curve(own, reach),
        np.stack([curve(heads, reach) for heads in drawn]),
        np.stack([blank if other == name else curve(heads, steps) for other, heads in ranked.items()]),
    )


def _matched_by_layer(to_match: Sequence[Head], heads: Sequence[Head]) -> list[Head]:
    """For each of these heads the first of the others in its layer, or where none is left in the nearest layer."""
    left, found = list(heads), []
    for layer, _ in to_match:
        nearest = min(left, key=lambda head: abs(head[0] - layer), default=None)  # the first of equals
        if nearest is not None:
            left.remove(nearest)
            found.append(nearest)
    return found
