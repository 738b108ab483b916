"""Which steps are asked: whole questions, balanced over functions, with the shares of both splits preserved.

Whole questions, because the steps of one question share most of their prompt, and because no question may have steps in both
splits. Questions are added one by one, each with a step of the function that has the fewest so far.

A function with fewer than `MIN_STEPS` steps, or fewer than `MIN_STEPS_PER_SPLIT` in one split, is left out of the maps and
reported: neither a probe nor its accuracy would mean anything. Its steps remain in the prompts of later ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.core.errors import StudyError
from headwise.corpora import HELD_OUT, TRAIN, Step, Steps

__all__ = ["MIN_STEPS", "Chain", "StepSample", "sample_steps"]

MIN_STEPS, MIN_STEPS_PER_SPLIT = 20, 5

Chain = tuple[Step, ...]  # the steps of one question


@dataclass(frozen=True)
class StepSample:
    """The questions that are asked, and the functions that a probe distinguishes."""

    chains: tuple[Chain, ...]
    functions: tuple[str, ...]
    left_out: dict[str, str]  # function -> reason


def sample_steps(steps: Steps, limit: int | None, seed: int) -> StepSample:
    """About `limit` steps; None: all."""
    if not len(steps):
        raise StudyError(f"{steps.name} holds no steps; give at least {MIN_STEPS} of each of two functions.")
    chains: list[Chain] = []
    for split in (TRAIN, HELD_OUT):
        there = list(steps.split(split).chains().values())
        share = sum(map(len, there)) / len(steps)
        chains += there if limit is None else _balanced(there, round(limit * share), seed)
    counts = Counter((step.function, step.split) for chain in chains for step in chain)
    left_out = {name: reason for name in steps.functions if (reason := _too_few(name, counts))}
    functions = tuple(name for name in steps.functions if name not in left_out)
    if len(functions) < 2:
        why = "; ".join(left_out.values()) or f"all are of {', '.join(functions) or 'none'}"
        raise StudyError(
            f"At least two functions with {MIN_STEPS} steps each are needed, and {steps.name} has {len(functions)} ({why}); "
            "give more steps, or raise functions.steps."
        )
    return StepSample(tuple(chains), functions, left_out)


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


def _too_few(function: str, counts: Counter[tuple[str, str]]) -> str:
    train, held_out = (counts[function, split] for split in (TRAIN, HELD_OUT))
    if train + held_out < MIN_STEPS:
        return f"{function} has {train + held_out} steps, fewer than {MIN_STEPS}"
    if min(train, held_out) < MIN_STEPS_PER_SPLIT:
        return f"{function} has {train} training and {held_out} held-out steps, fewer than {MIN_STEPS_PER_SPLIT}"
    return ""
