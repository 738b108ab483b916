"""Whole questions with the model's own answers fed on: do high-order steps fail when a low-order function is masked?

A question's steps are asked one after the other; what the model answered stands in the later prompts in place of the right
answer. Rows are (condition, question): no head masked; the heads of each low-order function; random heads outside all of
these sets, several draws. Masking acts where answers are made, as everywhere in this study; an earlier answer is read
as the text it is. A row's prompts grow, so what they share with the one before is read once (`studies.decoding`), and rows of a
question that have said the same so far share their prompt.

Cost: about one reading of each question, and its answers, a condition. This module does not know functions' orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.corpora import Step, answers_step, step_ids
from headwise.seam import observe
from headwise.studies.answers.endings import text_of
from headwise.studies.decoding import Ids, common_prefix_length
from headwise.studies.function_masking.asking import Change, Desk, by_row

__all__ = ["run_chains"]

Row = tuple[int, int]  # condition, question


def run_chains(desk: Desk, chains: Sequence[Sequence[Step]], changes: Sequence[Change]) -> list[NDArray[np.bool_]]:
    """For each question (condition, step): whether the step is answered right, its own earlier answers given."""
    found = [np.zeros((len(changes), len(chain)), dtype=bool) for chain in chains]
    rows = [(condition, question) for condition in range(len(changes)) for question in range(len(chains))]
    for start in range(0, len(rows), desk.decoder.rows):
        _run(desk, chains, changes, rows[start : start + desk.decoder.rows], found)
        desk.decoder.clear()
    return found


def _run(
    desk: Desk, chains: Sequence[Sequence[Step]], changes: Sequence[Change], rows: list[Row], found: list[NDArray]
) -> None:
    earlier: dict[Row, tuple[tuple[str, str], ...]] = dict.fromkeys(rows, ())
    before: dict[Row, Ids] = {}  # what is kept of each row,
    held: list[Ids] = []  # and all that is kept
    for number in range(max(len(chains[question]) for _, question in rows)):
        going = [row for row in rows if len(chains[row[1]]) > number]
        steps = {row: replace(chains[row[1]][number], earlier=earlier[row]) for row in going}
        prompts = {row: step_ids(desk.model, steps[row]) for row in going}
        first = {prompt: row for row, prompt in reversed(prompts.items())}  # rows that said the same share a prompt
        stems = {prompt: prompt[: _stem(desk, steps[row], prompt)] for prompt, row in first.items()}
        if desk.decoder.where != "everywhere":
            start = desk.decoder.select(held, [held.index(before[row]) for row in first.values()]) if held else None
            held = list(stems.values())
            desk.decoder.prefill(held, start)
            desk.decoder.prepare(list(first), held)
        pick = [list(first).index(prompts[row]) for row in going]
        with (
            torch.no_grad(),
            observe(desk.structure, by_row([changes[condition] for condition, _ in going], desk.decoder)),
        ):
            replies = desk.decoder.answer(list(first), desk.limit, desk.ends, pick)
        for row, reply in zip(going, replies, strict=True):
            text = text_of(desk.model, reply.ids)
            found[row[1]][row[0], number] = answers_step(steps[row], text)
            earlier[row] = (*earlier[row], (steps[row].subquestion, text))
        before = {row: stems[prompts[row]] for row in going}


def _stem(desk: Desk, step: Step, prompt: Ids) -> int:
    """How much of a prompt the next step's will begin with, whatever is answered."""
    longer = replace(step, earlier=(*step.earlier, (step.subquestion, "it")))
    return common_prefix_length([prompt, step_ids(desk.model, longer)])
