"""Steps: a question decomposed into subquestions, each labelled with the cognitive function it requires.

    question    Ann lives in France and wants to see its capital. So Ann should travel to the city of ...
    step 1      The capital of France is ...            Paris      Knowledge Recall
    step 2      So Ann should travel to the city of ... Paris      Decision-making

A model is shown the main question, the earlier steps with their right answers, and one subquestion, so every step can be
asked on its own. All steps of one question (a chain) belong to one split, "train" or "held-out", so a probe is never
tested on a question it was trained on. The eight functions of the packaged set are those of Ma et al. (2025), low order
first; a user's steps may have any others.

Answers are judged by the rules of `matching`, from the answer and the right answers alone. The main question is not passed
to the rules: in many steps (retrieval, choices) it contains the right answer, and repeating it is the task. The completion
of an open sentence (a subquestion that ends in "...") ends at the next clause: of "8 eggs, and Ann saw two" it is "8 eggs".
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwise.core.errors import DataError, did_you_mean
from headwise.corpora.matching import CORRECT, Verdict, judge
from headwise.corpora.rows import digest_of, interleave

__all__ = [
    "FUNCTIONS", "HELD_OUT", "HIGH_ORDER", "LOW_ORDER", "SPLITS", "TRAIN", "Step", "Steps", "answers_step",
    "judge_step",
]  # fmt: skip

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

    id: str  # a unique name
    chain: str  # the id of the main question
    question: str  # the main question
    earlier: tuple[tuple[str, str], ...]  # (subquestion, right answer) of the previous steps
    subquestion: str  # the question of this step
    answer: str  # the right answer, shown to later steps
    answers: tuple[str, ...]  # all that count as right; the first is `answer`
    function: str  # the cognitive function it requires
    split: str  # "train" or "held-out"
    number: int  # position in its chain, from 1


@dataclass(frozen=True)
class Steps:
    """Steps with a name and a digest for the provenance of a map.

    Examples:
        >>> from headwise.corpora import packaged_steps
        >>> steps = packaged_steps()
        >>> steps.functions[:2], len(steps.of("Retrieval").split("held-out"))
        (('Retrieval', 'Knowledge Recall'), 48)
    """

    name: str  # the atlas records it
    items: tuple[Step, ...]  # the steps, of complete chains
    dropped: tuple[str, ...] = ()  # which functions of a file were left out, and why

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.items)

    def __getitem__(self, index: int) -> Step:
        return self.items[index]

    @property
    def digest(self) -> str:
        """Changes when anything in any step does."""
        return digest_of(list(vars(item).values()) for item in self.items)

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that occur: those of `FUNCTIONS` in that order, then others by first appearance."""
        found = dict.fromkeys(item.function for item in self.items)
        return tuple(name for name in FUNCTIONS if name in found) + tuple(n for n in found if n not in FUNCTIONS)

    def of(self, function: str) -> Steps:
        """The steps of one function."""
        if function not in self.functions:
            known = did_you_mean(function, self.functions)
            raise DataError(f"there is no function {function!r} in the {self.name}. {known}")
        return replace(self, items=tuple(item for item in self.items if item.function == function))

    def split(self, name: str) -> Steps:
        """The steps of the split "train" or "held-out"."""
        if name not in SPLITS:
            raise DataError(f"steps are split into 'train' and 'held-out', not {name!r}; give one of the two")
        return replace(self, items=tuple(item for item in self.items if item.split == name))

    def chains(self) -> dict[str, tuple[Step, ...]]:
        """The steps of each main question, in order."""
        found: dict[str, list[Step]] = {}
        for item in self.items:
            found.setdefault(item.chain, []).append(item)
        return {chain: tuple(sorted(some, key=lambda step: step.number)) for chain, some in found.items()}

    def sample(self, count: int, seed: int = 0) -> Steps:
        """At most `count`, stratified by function and split, in their original order.

        With one seed, smaller samples are subsets of larger ones.
        """
        if count < 1:
            raise DataError(f"a sample needs at least one step, not {count}; give a larger number")
        rng = random.Random(seed)
        queues = []
        for function in self.functions:
            strata = [
                [at for at, item in enumerate(self.items) if (item.function, item.split) == (function, split)]
                for split in SPLITS
            ]
            for indices in strata:
                rng.shuffle(indices)
            queues.append(_merge_proportionally(strata))
        rng.shuffle(queues)
        return replace(self, items=tuple(self.items[index] for index in sorted(interleave(queues)[:count])))


def _merge_proportionally(queues: Sequence[Sequence[int]]) -> list[int]:
    """One queue in which every prefix has about the proportions of the whole.

    >>> _merge_proportionally([[1, 2, 3, 4], [8, 9]])
    [1, 8, 2, 3, 9, 4]
    """
    order = [
        ((turn + 0.5) / len(queue), which, turn) for which, queue in enumerate(queues) for turn in range(len(queue))
    ]
    return [queues[which][turn] for _, which, turn in sorted(order)]


_CLAUSE = re.compile(r";|, (?:and|but|so|which|who)\s+\S+\s+\S")  # "8, and 9" is a second candidate, not a clause


def judge_step(step: Step, text: str) -> Verdict:
    """The label of an answer, and the rule that decided it."""
    answer = text.strip()
    if step.subquestion.endswith("..."):
        answer = _CLAUSE.split(answer)[0] or answer
    return judge(answer, step.answers)


def answers_step(step: Step, text: str) -> bool:
    """Whether this text answers the step.

    >>> step = Step("s", "c", "", (), "What is 3 plus 4?", "7", ("7",), "Math Calculation", "train", 1)
    >>> answers_step(step, "3 + 4 = 7"), answers_step(step, "Seven."), answers_step(step, "7 or 8"), answers_step(step, "")
    (True, True, False, False)
    """
    return judge_step(step, text).label == CORRECT
