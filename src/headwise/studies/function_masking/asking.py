"""Steps asked again with heads changed: many sets of heads in one batch, each prompt read once.

A job is a step and a change (factors of all heads, and what is added to them). The rows of a batch are jobs; their prompts
are kept once (`studies.decoding`) and copied to each row, and `PerExample` gives every row its own change. Answers are judged
against the right answer, by the same rules as ever and without knowing the change.

Cost: one row a job, from the last prompt token to the end of its answer. This module does not know why heads are changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.corpora import Step, answers_step, step_ids
from headwise.interventions import PerExample
from headwise.model import Model
from headwise.seam import Structure, observe
from headwise.studies.answers.endings import ending, text_of
from headwise.studies.decoding import Ids, PrefixCachedDecoder

__all__ = ["Change", "Desk"]


class Change(NamedTuple):
    """What is done to the heads of one row."""

    factor: Tensor  # (layer, head)
    shift: Tensor | None = None  # (layer, head, width)


class Desk:
    """A model that is asked steps, with changes to its heads."""

    def __init__(self, model: Model, decoder: PrefixCachedDecoder, limit: int):
        self.model, self.decoder, self.limit = model, decoder, limit
        self.structure = Structure(model)
        self.ends = ending(model, numeric=False)

    def ask(self, steps: Sequence[Step], jobs: Sequence[tuple[int, Change]]) -> NDArray[np.bool_]:
        """(job,): whether the step is answered right; a job is the place of a step, and a change."""
        if not jobs:
            return np.zeros(0, dtype=bool)
        prompts = [step_ids(self.model, step) for step in steps]
        found = np.zeros(len(jobs), dtype=bool)
        if self.decoder.rows == 1:
            groups = [[job] for job in range(len(jobs))]
        else:
            groups = [
                list(range(start, min(start + self.decoder.rows, len(jobs))))
                for start in range(0, len(jobs), self.decoder.rows)
            ]
            self.decoder.prepare(prompts)
        for group in groups:
            said = self.say(prompts, [jobs[job] for job in group])
            found[group] = [answers_step(steps[jobs[job][0]], text) for job, text in zip(group, said, strict=True)]
        self.decoder.clear()
        return found

    def say(self, prompts: Sequence[Ids], jobs: Sequence[tuple[int, Change]]) -> list[str]:
        """The answers of one batch of jobs, as texts."""
        places = [place for place, _ in jobs]
        if self.decoder.rows == 1:
            prompts, places = [prompts[places[0]]], [0]
        change = by_row([change for _, change in jobs], self.decoder)
        self.decoder.prepare(prompts)  # before anything is changed
        with torch.no_grad(), observe(self.structure, change):
            replies = self.decoder.answer(prompts, self.limit, self.ends, places)
        return [text_of(self.model, reply.ids) for reply in replies]


def by_row(changes: Sequence[Change], decoder: PrefixCachedDecoder) -> PerExample:
    """The intervention that makes each row's change."""
    factor = torch.stack([change.factor for change in changes])
    shifts = [change.shift for change in changes]
    given = next((shift for shift in shifts if shift is not None), None)
    if given is None:
        return PerExample(factor, rows=decoder.row_of_batch)
    nothing = torch.zeros_like(given)
    return PerExample(
        factor, torch.stack([nothing if shift is None else shift for shift in shifts]), decoder.row_of_batch
    )
