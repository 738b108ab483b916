"""Circuit tasks: clean and corrupt prompts that differ in a word or two, for activation patching.

A pair is a clean prompt, a corrupt prompt with as many tokens and the same last token, and two sets of next tokens: right
and wrong after the clean prompt. A model that solves the task ranks the right tokens above the wrong ones after the
clean prompt, and not after the corrupt one.

| task            | clean prompt: right > wrong                                         | corrupt prompt                      |
|-----------------|---------------------------------------------------------------------|-------------------------------------|
| induction       | The A B C D, the A: B > D                                           | The C B A D, the A                  |
| indirect_object | When Ann and Tom met, Tom gave a ring to: Ann > Tom                 | ..., Ann gave a ring to             |
| greater_than    | The war of 1732-17: 40-69 > 00-29                                   | The war of 1772-17                  |
| successor       | three, four, five,: six > ten                                       | seven, eight, nine,                 |
| agreement       | The keys near the door: are > is                                    | The key near the door               |

Right and wrong sets have equal sizes, so chance is one half. Indirect object and greater-than follow Wang et al. (arXiv
2211.00593) and Hanna et al. (arXiv 2305.00586); templates, names and words are ours.

A pair is dropped, and counted by reason, if its prompts differ in length or in the last token, or if an answer is not
exactly one more token. Cost: a few hundred tokenizer calls.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headwise.core.errors import DataError, did_you_mean

WORDS = (
    "river stone table window garden winter letter music bread horse silver forest paper engine bridge island butter "
    "candle market summer doctor flower orange cloud dinner castle mirror pocket ladder button basket"
).split()
NAMES = (
    "Mary John Tom Anna James Sarah Paul Emma David Lucy Peter Kate Mark Jane Robert Alice Daniel Laura Henry Susan"
).split()
THINGS = "book drink letter ball ring phone key ticket".split()
EVENTS = "war trial project strike battle mission storm".split()
SERIES = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Monday Tuesday Wednesday".split(),
    "January February March April May June July August September October November December".split(),
    "one two three four five six seven eight nine ten eleven twelve".split(),
    "A B C D E F G H I J K L M N O P".split(),
)
NOUNS = (
    "key keys, boy boys, dog dogs, car cars, tree trees, book books, girl girls, house houses, ship ships, friend friends, "
    "teacher teachers, bird birds, door doors, cat cats, student students, letter letters"
)
PREPOSITIONS = "near behind beside".split()
SCENES = "river house door wall bridge garden".split()


class PromptPair(NamedTuple):
    """Two prompts, and the right and wrong continuations as they follow the prompt."""

    clean: str
    corrupt: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class CircuitTask:
    """A generator of pairs; `answer` describes the right continuation."""

    name: str
    label: str
    answer: str
    draw: Callable[[random.Random], PromptPair]


@dataclass(frozen=True)
class TaskPairs:
    """The pairs of a task as token ids; all prompts have one length."""

    task: CircuitTask
    pairs: tuple[PromptPair, ...]
    clean: tuple[tuple[int, ...], ...]
    corrupt: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]
    wrong: tuple[tuple[int, ...], ...]
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pairs)

    def only(self, indices: Sequence[int]) -> TaskPairs:
        """A subset of the pairs."""
        sides: dict[str, Any] = {
            name: tuple(getattr(self, name)[index] for index in indices)
            for name in ("pairs", "clean", "corrupt", "right", "wrong")
        }
        return replace(self, **sides)


def _induction(rng: random.Random) -> PromptPair:
    a, b, c, d = rng.sample(WORDS, 4)
    clean, corrupt = (f"The {x} {b} {y} {d}, the {a}" for x, y in ((a, c), (c, a)))
    return PromptPair(clean, corrupt, (f" {b}",), (f" {d}",))


def _indirect_object(rng: random.Random) -> PromptPair:
    first, second = rng.sample(NAMES, 2)
    giver, other = rng.sample((first, second), 2)
    thing = rng.choice(THINGS)
    clean, corrupt = (f"When {first} and {second} met, {one} gave a {thing} to" for one in (giver, other))
    return PromptPair(clean, corrupt, (f" {other}",), (f" {giver}",))


def _greater_than(rng: random.Random) -> PromptPair:
    tens, unit = rng.randint(1, 4), rng.randint(2, 8)
    century, event = rng.randint(11, 18), rng.choice(EVENTS)
    clean, corrupt = (f"The {event} of {century}{ten}{unit}-{century}" for ten in (tens, 2 * tens + 1))
    right = tuple(str(year) for year in range(10 * (tens + 1), 10 * (2 * tens + 1)))
    wrong = tuple(f"{year:02d}" for year in range(10 * tens))
    return PromptPair(clean, corrupt, right, wrong)


def _successor(rng: random.Random) -> PromptPair:
    series = rng.choice(SERIES)
    starts = rng.sample(range(len(series) - 3), 2)
    clean, corrupt = (" ".join(f"{word}," for word in series[start : start + 3]) for start in starts)
    right, wrong = (f" {series[start + 3]}" for start in starts)
    return PromptPair(clean, corrupt, (right,), (wrong,))


def _agreement(rng: random.Random) -> PromptPair:
    one, many = rng.choice(NOUNS.split(", ")).split()
    rest = f"{rng.choice(PREPOSITIONS)} the {rng.choice(SCENES)}"
    clean, corrupt = f"The {many} {rest}", f"The {one} {rest}"
    if rng.random() < 0.5:
        return PromptPair(clean, corrupt, (" are",), (" is",))
    return PromptPair(corrupt, clean, (" is",), (" are",))


CIRCUIT_TASKS: dict[str, CircuitTask] = {
    task.name: task
    for task in (
        CircuitTask("induction", "Induction", "the word that followed before", _induction),
        CircuitTask("indirect_object", "Indirect object", "the person who did not give", _indirect_object),
        CircuitTask("greater_than", "Greater than", "a later year", _greater_than),
        CircuitTask("successor", "Successor", "the next of a series", _successor),
        CircuitTask("agreement", "Agreement", "a verb in the subject's number", _agreement),
    )
}


def circuit_pairs(name: str, ids: Callable[[str], list[int]], *, count: int, seed: int) -> TaskPairs:
    """At most `count` distinct pairs of a task; `ids` maps a text to token ids, as `Model.ids` does."""
    if name not in CIRCUIT_TASKS:
        raise DataError(f"there is no circuit task {name!r}. {did_you_mean(name, CIRCUIT_TASKS)}")
    task = CIRCUIT_TASKS[name]
    rng = random.Random(f"{seed} {name}")
    drawn = dict.fromkeys(task.draw(rng) for _ in range(8 * count))
    dropped: Counter[str] = Counter()
    rows = []
    for pair in drawn:
        row = _tokens(pair, ids)
        if isinstance(row, str):
            dropped[row] += 1
        else:
            rows.append((pair, *row))
    lengths = Counter(len(row[1]) for row in rows)
    mode = max(lengths, key=lambda length: lengths[length], default=0)
    dropped["of another length than most"] += sum(lengths.values()) - lengths.get(mode, 0)
    retained = [row for row in rows if len(row[1]) == mode][:count]
    pairs, clean, corrupt, right, wrong = zip(*retained, strict=True) if retained else ((),) * 5
    reasons = {reason: number for reason, number in dropped.items() if number}
    return TaskPairs(task, pairs, clean, corrupt, right, wrong, reasons)


def _tokens(pair: PromptPair, ids: Callable[[str], list[int]]) -> tuple[tuple[int, ...], ...] | str:
    """Clean and corrupt prompt, right and wrong tokens; or the reason to drop the pair."""
    clean, corrupt = ids(pair.clean), ids(pair.corrupt)
    if len(clean) != len(corrupt):
        return "prompts of different lengths"
    if clean[-1] != corrupt[-1] or clean == corrupt:
        return "prompts that do not end with the same token, or are the same"
    sides = []
    for answers in (pair.right, pair.wrong):
        found: dict[int, None] = {}
        for answer in answers:
            full = ids(pair.clean + answer)
            if full[: len(clean)] != clean or len(full) == len(clean):
                return "an answer that merges with the prompt's last token"
            if len(full) > len(clean) + 1 and not answer.isdigit():
                return "an answer of several tokens"
            found[full[len(clean)]] = None  # the first token of a number
        sides.append(tuple(found))
    if set(sides[0]) & set(sides[1]):
        return "a token that is both right and wrong"
    return tuple(clean), tuple(corrupt), sides[0], sides[1]
