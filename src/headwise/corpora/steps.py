"""Steps: a question worked out in parts, each part labelled with the function of mind that it calls for.

    question    Ann lives in France and wants to see its capital. So Ann should travel to the city of ...
    step 1      The capital of France is ...            Paris      Knowledge Recall
    step 2      So Ann should travel to the city of ... Paris      Decision-making

A model is shown the main question, the earlier steps with their right answers, and one subquestion; so every step can be
asked alone. All steps of one question (a chain) stand in one split, "train" or "held-out": whoever learns from the one
and is tested on the other has never seen the question. The eight functions of the packaged set are those of Ma et al.
(2025), low order first; a user's steps may have any others.

This module runs no model, reads no file (see `step_files`), and does not judge answers (see `step_matching`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwise.core.errors import DataError, did_you_mean
from headwise.corpora.digest import digest_of

__all__ = ["FUNCTIONS", "HELD_OUT", "HIGH_ORDER", "LOW_ORDER", "SPLITS", "TRAIN", "Step", "Steps"]

LOW_ORDER = ("Retrieval", "Knowledge Recall", "Semantic Understanding", "Syntactic Understanding")
HIGH_ORDER = ("Math Calculation", "Inference", "Logical Reasoning", "Decision-making")
FUNCTIONS = LOW_ORDER + HIGH_ORDER
TRAIN, HELD_OUT = "train", "held-out"
SPLITS = (TRAIN, HELD_OUT)


@dataclass(frozen=True)
class Step:
    """One subquestion of a main question.

    Examples:
        >>> step = Step("s1", "c1", "", (), "What is 3 plus 4?", "7", ("7", "seven"), "Math Calculation", TRAIN, 1)
        >>> step.function, step.answers
        ('Math Calculation', ('7', 'seven'))
    """

    id: str  # its name, unlike all others
    chain: str  # the id of the main question
    question: str  # the main question
    earlier: tuple[tuple[str, str], ...]  # (subquestion, right answer) of the steps before this one
    subquestion: str  # what is asked in this step
    answer: str  # the right answer to show to later steps
    answers: tuple[str, ...]  # all that count as right; the first is `answer`
    function: str  # the cognitive function that it needs
    split: str  # "train" or "held-out"
    number: int  # place in its chain, from 1


@dataclass(frozen=True)
class Steps:
    """Steps with a name and a digest, so that a map can say what it was made from.

    Examples:
        >>> from headwise.corpora import packaged_steps
        >>> steps = packaged_steps()
        >>> steps.functions[:2], len(steps.of("Retrieval").split("held-out"))
        (('Retrieval', 'Knowledge Recall'), 48)
    """

    name: str  # what the atlas calls them
    items: tuple[Step, ...]  # the steps, of whole questions
    dropped: tuple[str, ...] = ()  # what a file had besides, and why it was left out, a sentence each

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.items)

    def __getitem__(self, place: int) -> Step:
        return self.items[place]

    @property
    def digest(self) -> str:
        """Changes when anything in any step does."""
        return digest_of(list(vars(item).values()) for item in self.items)

    @property
    def functions(self) -> tuple[str, ...]:
        """The eight in their order, low order first, as far as they are here; then others as they first appear."""
        there = dict.fromkeys(item.function for item in self.items)
        return tuple(name for name in FUNCTIONS if name in there) + tuple(n for n in there if n not in FUNCTIONS)

    def of(self, function: str) -> Steps:
        """The steps of one function."""
        if function not in self.functions:
            known = did_you_mean(function, self.functions)
            raise DataError(f"there is no function {function!r} in the {self.name}. {known}")
        return replace(self, items=tuple(item for item in self.items if item.function == function))

    def split(self, name: str) -> Steps:
        """The steps to learn from ("train") or to be tested on ("held-out")."""
        if name not in SPLITS:
            raise DataError(f"steps are split into 'train' and 'held-out', not {name!r}; give one of the two")
        return replace(self, items=tuple(item for item in self.items if item.split == name))

    def chains(self) -> dict[str, tuple[Step, ...]]:
        """The steps of each main question, in their order."""
        found: dict[str, list[Step]] = {}
        for item in self.items:
            found.setdefault(item.chain, []).append(item)
        return {chain: tuple(sorted(some, key=lambda step: step.number)) for chain, some in found.items()}

    def sample(self, count: int, seed: int = 0) -> Steps:
        """At most `count`, as many of each function as can be, in the order of the whole.

        Of each function both splits are drawn in the shares they have, so that a small sample is split as the whole is.
        With one seed a smaller sample is part of a larger one.
        """
        if count < 1:
            raise DataError(f"a sample needs at least one step, not {count}; give a larger number")
        rng = random.Random(seed)
        queues = [_in_turn([_places(self, function, split, rng) for split in SPLITS]) for function in self.functions]
        rng.shuffle(queues)
        longest = max((len(queue) for queue in queues), default=0)
        turns = [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]
        return replace(self, items=tuple(self.items[place] for place in sorted(turns[:count])))


def _places(steps: Steps, function: str, split: str, rng: random.Random) -> list[int]:
    places = [at for at, item in enumerate(steps.items) if (item.function, item.split) == (function, split)]
    rng.shuffle(places)
    return places


def _in_turn(queues: Sequence[Sequence[int]]) -> list[int]:
    """One queue of several, in which any beginning has about the shares of the whole.

    >>> _in_turn([[1, 2, 3, 4], [8, 9]])
    [1, 8, 2, 3, 9, 4]
    """
    placed = [
        ((turn + 0.5) / len(queue), which, turn) for which, queue in enumerate(queues) for turn in range(len(queue))
    ]
    return [queues[which][turn] for _, which, turn in sorted(placed)]
