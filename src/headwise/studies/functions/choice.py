"""Which steps are asked: whole questions, as many steps of each function as can be had, and both splits in their shares.

Whole questions, because the steps of one share most of their prompt (see `rounds`), and because none may have steps on
either side of the split. Taken one by one, each time a question with a step of the function that has fewest so far.

A function of fewer than `LEAST` steps, or with fewer than `LEAST_SPLIT` in one split, is left out of the maps and named:
neither a probe nor its accuracy would mean anything. Its steps still stand in the prompts of later ones.
This module does not know the model.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.core.errors import StudyError
from headwise.corpora import HELD_OUT, TRAIN, Step, Steps

__all__ = ["LEAST", "Chosen", "choose"]

LEAST, LEAST_SPLIT = 20, 5  # steps of a function: in all, and in each split

Chain = tuple[Step, ...]


@dataclass(frozen=True)
class Chosen:
    """The questions that are asked, and the functions that are told apart."""

    chains: tuple[Chain, ...]
    functions: tuple[str, ...]
    left_out: dict[str, str]  # function -> why


def choose(steps: Steps, limit: int | None, seed: int) -> Chosen:
    """About `limit` steps; None: all."""
    if not len(steps):
        raise StudyError(f"{steps.name} hold no steps; give at least {LEAST} of each of two functions")
    chains: list[Chain] = []
    for split in (TRAIN, HELD_OUT):
        there = list(steps.split(split).chains().values())
        share = sum(map(len, there)) / len(steps)
        chains += there if limit is None else _balanced(there, round(limit * share), seed)
    asked = Counter((step.function, step.split) for chain in chains for step in chain)
    left_out = {name: why for name in steps.functions if (why := _too_few(name, asked))}
    kept = tuple(name for name in steps.functions if name not in left_out)
    if len(kept) < 2:
        why = "; ".join(left_out.values()) or f"all are of {', '.join(kept) or 'none'}"
        raise StudyError(
            f"functions can be told apart only where there are at least two of them with {LEAST} steps each, and {steps.name} "
            f"have {len(kept)} ({why}); give more steps, or raise the number that is asked"
        )
    return Chosen(tuple(chains), kept, left_out)


def _balanced(chains: Sequence[Chain], count: int, seed: int) -> list[Chain]:
    left = list(chains)
    random.Random(seed).shuffle(left)
    taken: Counter[str] = Counter(dict.fromkeys((step.function for chain in chains for step in chain), 0))
    found: list[Chain] = []
    while left and sum(taken.values()) < count:
        for function, _ in sorted(taken.items(), key=lambda item: item[1]):
            own = next((chain for chain in left if any(step.function == function for step in chain)), None)
            if own is not None:
                break
        assert own is not None
        left.remove(own)
        found.append(own)
        taken.update(step.function for step in own)
    return found


def _too_few(function: str, asked: Counter[tuple[str, str]]) -> str:
    counts = [asked[function, split] for split in (TRAIN, HELD_OUT)]
    if sum(counts) < LEAST:
        return f"{function} has {sum(counts)} steps, fewer than {LEAST}"
    if min(counts) < LEAST_SPLIT:
        return f"{function} has {counts[0]} steps to learn from and {counts[1]} held out, fewer than {LEAST_SPLIT}"
    return ""
