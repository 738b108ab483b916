"""How much accuracy does a model lose without a relation's heads? Few-shot tasks, heads ablated at the last token.

A task is a relation's first template with a few worked examples in front:

    The capital of Peru is Lima
    The capital of Japan is Tokyo
    The capital of France is                  -> Paris is right, and so is any other target of France

All prompts of a task have the same length and the same beginning, and every source is one token. A head is removed by setting
its output to 0 at the last token of the prompt, where the answer is made. Earlier tokens do not change, so everything before
the last token is run once and cached (the worked examples once for all prompts); then only the last token is run, once for
every set of heads, many sets in one batch (`studies.prompter`).

For one task, at each number n of heads:

    own       the n heads with the highest score for this relation
    random    n other heads, several times: the i-th is drawn from the layer of the relation's i-th head (or the nearest layer
              with one left), because what an ablation costs depends on depth; without `same_layers` from all layers. The
              draws are nested, as the sets above are
    control   the n highest heads of another relation: what that relation's heads do to this task

Only heads with a score above 0 are removed. Cost: one token per prompt and set of heads.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.corpora import SLOT, SingleTokenPairs
from headwise.model import Model
from headwise.studies.decoding import Ids, PrefixCachedDecoder
from headwise.studies.prompter import HeadChange, Prompter

ROWS = 256  # sets of heads x prompts per batch

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
    """A task's prompts, read up to their last token, which is run once per set of heads."""

    def __init__(self, model: Model, task: FewShotTask):
        self.task = task
        self.prompts: list[Ids] = [tuple(row) for row in task.ids.tolist()]
        prefix, longest = self.prompts[0][: task.shared], task.ids.shape[1] + 1
        decoder = PrefixCachedDecoder(model, prefix, longest=longest, batch=ROWS)
        self.prompter = Prompter(model, decoder, 1, ends=lambda so_far, token: False)
        self.shape = (model.card.layers, model.card.heads)

    def right(self, sets: Sequence[Sequence[Head]]) -> NDArray[np.bool_]:
        """(set, prompt): does the model complete the prompt with a correct token, without the heads of this set?"""
        changes = [self._without(heads) for heads in sets]
        trials = [(prompt, change) for change in changes for prompt in range(len(self.task))]
        found = self.prompter.tokens(self.prompts, trials, f"{self.task.relation}, heads ablated")
        right = [ids[0] in self.task.answers[prompt] for (prompt, _), ids in zip(trials, found, strict=True)]
        return np.array(right, dtype=bool).reshape(len(sets), len(self.task))

    def _without(self, heads: Sequence[Head]) -> HeadChange:
        factor = torch.ones(self.shape)
        for layer, head in heads:
            factor[layer, head] = 0
        return HeadChange(factor)


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

    curves: list[tuple[Sequence[Head], Sequence[int]]] = [(own, reach), *((heads, reach) for heads in drawn)]
    curves += [([] if other == name else heads, steps) for other, heads in ranked.items()]
    cells = [
        (row, column, heads[:step])
        for row, (heads, steps_of) in enumerate(curves)
        for column, step in enumerate(steps)
        if step in steps_of and step <= len(heads)
    ]
    found = np.full((len(curves), prompts, len(steps)), np.nan, dtype=np.float32)
    for (row, column, _), right in zip(cells, run.right([heads for _, _, heads in cells]), strict=True):
        found[row, :, column] = right
    return RemovalOutcomes(found[0], found[1 : draws + 1], found[draws + 1 :])


def _matched_by_layer(to_match: Sequence[Head], heads: Sequence[Head]) -> list[Head]:
    """For each of these heads the first of the others in its layer, or where none is left in the nearest layer."""
    left, found = list(heads), []
    for layer, _ in to_match:
        nearest = min(left, key=lambda head: abs(head[0] - layer), default=None)  # the first of equals
        if nearest is not None:
            left.remove(nearest)
            found.append(nearest)
    return found
