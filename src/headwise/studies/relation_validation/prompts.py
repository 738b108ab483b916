"""Texts around the words of a relation: single prompts, and few-shot tasks that a model can be marked on.

A relation's templates ("The capital of {s} is") end where the target follows. A **prompt** is one template with one
source word, and knows at which token that word stands. A **task** is the same with a few worked examples in front:

    The capital of Peru is Lima
    The capital of Japan is Tokyo
    The capital of France is                  -> Paris is right, and so is any other target of France

All prompts of a task have one length and one beginning: the template is the same (the relation's first), and the source
is one token. What a tokenizer merges with its neighbours, so that the source is no token of its own, is left out.

Which pairs are used depends on the seed and the relation's name alone. This module runs no model.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.corpora import SLOT, SingleTokenPairs
from headwise.model import Model

__all__ = ["Prompt", "Task", "prompts_of", "task_of"]

GENERIC = (f"The word {SLOT} goes with the word", f"Given the word {SLOT}, the answer is")  # where a relation has none


@dataclass(frozen=True)
class Prompt:
    """A text around a source word."""

    ids: tuple[int, ...]
    place: int  # of the source among the tokens
    target: int  # its token


@dataclass(frozen=True)
class Task:
    """Few-shot prompts of one relation."""

    relation: str
    ids: Tensor  # (prompt, token) long
    shared: int  # tokens at the beginning that are the same in all prompts
    answers: tuple[frozenset[int], ...]  # the tokens that are right, for each prompt

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, rows: Sequence[int]) -> Task:
        """Some of the prompts."""
        return Task(self.relation, self.ids[list(rows)], self.shared, tuple(self.answers[row] for row in rows))


def prompts_of(model: Model, kept: SingleTokenPairs, count: int, seed: int) -> list[Prompt]:
    """At most so many prompts, the relation's templates in turn."""
    templates = kept.relation.templates or GENERIC
    found: list[Prompt] = []
    for row in _shuffled(len(kept), kept, seed):
        template = templates[len(found) % len(templates)]
        ids, place = _placed(model, template, kept.pairs[row][0])
        if len(found) < count and ids[place] == kept.sources[row]:
            found.append(Prompt(ids, place, kept.targets[row]))
    return found


def _placed(model: Model, template: str, source: str) -> tuple[tuple[int, ...], int]:
    """A text's tokens, and the place of the source, which is the last token of the text up to it."""
    before, _, after = template.partition(SLOT)
    ids = tuple(model.ids(before + source + after))
    return ids, min(len(model.ids(before + source)), len(ids)) - 1


def task_of(model: Model, kept: SingleTokenPairs, *, shots: int, count: int, seed: int) -> Task:
    """At most `count` prompts, with `shots` other sources and their first targets in front."""
    template = (kept.relation.templates or GENERIC)[0]
    tokens: dict[str, set[int]] = {}
    for (source, _), target in zip(kept.pairs, kept.targets, strict=True):
        tokens.setdefault(source, set()).add(target)
    sources = list(tokens)
    order = [sources[row] for row in _shuffled(len(sources), kept, seed)]
    shown, asked = order[:shots], order[shots : shots + count]
    first = dict(reversed(kept.pairs))
    worked = "".join(f"{template.replace(SLOT, source)} {first[source]}\n" for source in shown)
    rows = [tuple(model.ids(worked + template.replace(SLOT, source))) for source in asked]
    length = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    usable = [(row, frozenset(tokens[source])) for row, source in zip(rows, asked, strict=True) if len(row) == length]
    ids = torch.tensor([row for row, _ in usable], dtype=torch.long).reshape(len(usable), length)
    return Task(kept.relation.name, ids, _shared(ids), tuple(right for _, right in usable))


def _shared(ids: Tensor) -> int:
    """How many tokens all rows begin with; the last one is not counted, since it is always run by itself."""
    same = (ids[:, :-1] == ids[:1, :-1]).all(dim=0)  # (token,)
    return int(same.long().cumprod(dim=0).sum()) if len(ids) else 0


def _shuffled(count: int, kept: SingleTokenPairs, seed: int) -> list[int]:
    return random.Random(f"{seed} {kept.relation.name}").sample(range(count), count)
