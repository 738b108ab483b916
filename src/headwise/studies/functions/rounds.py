"""Questions worked out step by step: what one step's prompt has in common with the next one's is read once.

The prompt of a step is the question, the earlier steps with their answers, and the subquestion; the next step's begins
the same way, up to the end of that subquestion. So all first steps of a batch of questions go together, then all second
ones, each from where its prompt parts from the one before:

    round 1    question Q1 | answer briefly            ->  answered
    round 2    ........... A1 Q2 | answer briefly      ->  answered

Cost: about one reading of the last prompt of each question, instead of one of every prompt (a third to a half).
This module does not know what is done with a prompt that is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwise.studies.decoding import Ids, PrefixCachedDecoder, common_prefix_length

__all__ = ["Round", "batches_of", "rounds"]


class Round(NamedTuple):
    """The prompts of one step of several questions, ready to be answered."""

    lines: tuple[int, ...]
    """which of the questions"""
    prompts: list[Ids]


def batches_of(lengths: Sequence[int], rows: int) -> list[list[int]]:
    """Places of questions that go together, the longest first, at most so many at once."""
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    return [order[start : start + rows] for start in range(0, len(order), rows)]


def rounds(decoder: PrefixCachedDecoder, chains: Sequence[Sequence[Ids]]) -> Iterator[Round]:
    """Read the prompts of some questions, round by round. What was read for a round stays until `decoder.clear`."""
    there, before = tuple(range(len(chains))), None
    for number in range(max(map(len, chains))):
        going = tuple(line for line in there if len(chains[line]) > number)
        if before is not None and going != there:
            old, before = before, decoder.select(before, [there.index(line) for line in going])
            decoder.clear(old)
        there = going
        prompts = [chains[line][number] for line in there]
        following = [chains[line][number + 1] if len(chains[line]) > number + 1 else None for line in there]
        shared = [
            prompt[:-1] if later is None else prompt[: common_prefix_length([prompt, later])]
            for prompt, later in zip(prompts, following, strict=True)
        ]
        decoder.prefill(shared, before)
        decoder.prepare(prompts, shared)
        if before is not None and before != shared:
            decoder.clear(before)
        before = shared
        yield Round(there, prompts)
