"""Answer with changed heads: many head sets in one batch, every prompt read once.

A trial is a step and a `HeadChange`. A batch has all trials of some steps: their prompts are prefilled once, trials are
branches of their prompt (`studies.branches`), and `PerExample` applies each trial's change. Answers are compared with the
correct answer by the rules of `corpora`, without knowledge of the change.

`answer_chains` asks whole questions: the model's own answers replace the correct ones in later prompts. Rows are (condition,
question). Interventions act where answers are made, and earlier answers are read as text; rows of a question with the same
answers so far share their prompt.

Cost: one row per trial, from the last prompt token to the end of the answer; for chains, about one pass over each question and
its answers per condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.progress import report
from headwise.corpora import Step, answers_step, step_ids
from headwise.interventions.heads import PerExample
from headwise.model import Model
from headwise.seam import Structure, observe
from headwise.studies.answers.endings import ending, text_of
from headwise.studies.decoding import Ids, PrefixCachedDecoder, common_prefix_length

Row = tuple[int, int]  # condition, question
Ends = Callable[[Ids, int], bool]


class HeadChange(NamedTuple):
    """What is done to the heads of one row."""

    factor: Tensor  # (layer, head)
    shift: Tensor | None = None  # (layer, head, width)


class Prompter:
    """A model that answers steps or other prompts, with changes to its heads.

    Args:
        model: the model.
        decoder: of this model; `where` it acts is where heads are changed.
        limit: maximum number of tokens in an answer.
        ends: ``ends(so_far, token)``, whether `token` ends the answer; None: the end of a sentence.
    """

    def __init__(self, model: Model, decoder: PrefixCachedDecoder, limit: int, ends: Ends | None = None):
        self.model, self.decoder, self.limit = model, decoder, limit
        self.structure = Structure(model)
        self.ends = ends or ending(model, numeric=False)

    def answer(self, steps: Sequence[Step], trials: Sequence[tuple[int, HeadChange]], what: str) -> NDArray[np.bool_]:
        """(trial,): whether the step is answered correctly; a trial is the index of a step, and a change.

        Progress is reported as `what`.
        """
        texts = self.texts([step_ids(self.model, step) for step in steps], trials, what)
        right = [answers_step(steps[index], text) for (index, _), text in zip(trials, texts, strict=True)]
        return np.array(right, dtype=bool)

    def texts(self, prompts: Sequence[Ids], trials: Sequence[tuple[int, HeadChange]], what: str) -> list[str]:
        """The answer of every trial, as text."""
        return [text_of(self.model, ids) for ids in self.tokens(prompts, trials, what)]

    def tokens(self, prompts: Sequence[Ids], trials: Sequence[tuple[int, HeadChange]], what: str) -> list[Ids]:
        """The answer of every trial: the index of a prompt, and a change."""
        found: list[Ids] = [()] * len(trials)
        done = 0
        for batch in self._batches([len(prompts[index]) for index, _ in trials], [index for index, _ in trials]):
            report(what, done, len(trials))
            done += len(batch)
            asked = list(dict.fromkeys(trials[trial][0] for trial in batch))
            pick = [asked.index(trials[trial][0]) for trial in batch]
            answers = self._generate([prompts[index] for index in asked], pick, [trials[trial][1] for trial in batch])
            for trial, answer in zip(batch, answers, strict=True):
                found[trial] = answer
            self.decoder.clear()
        return found

    def _batches(self, lengths: Sequence[int], steps: Sequence[int]) -> Iterator[list[int]]:
        """Trials by batch: those of a few steps that have as many trials, and similar lengths, so that little is padded."""
        count = Counter(steps)
        order = sorted(range(len(steps)), key=lambda trial: (count[steps[trial]], lengths[trial], steps[trial]))
        batch: list[int] = []
        for _, group in groupby(order, key=lambda trial: steps[trial]):
            of_step = list(group)
            if len(batch) + len(of_step) > self.decoder.rows:
                if batch:
                    yield batch
                batch = []
            batch += of_step
            while len(batch) > self.decoder.rows:
                yield batch[: self.decoder.rows]
                batch = batch[self.decoder.rows :]
        if batch:
            yield batch

    def answer_chains(self, chains: Sequence[Sequence[Step]], changes: Sequence[HeadChange]) -> list[NDArray[np.bool_]]:
        """For each question (condition, step): whether the step is answered correctly, given its own earlier answers."""
        found = [np.zeros((len(changes), len(chain)), dtype=bool) for chain in chains]
        rows = [(condition, question) for condition in range(len(changes)) for question in range(len(chains))]
        for start in range(0, len(rows), self.decoder.rows):
            report("whole questions", start, len(rows))
            self._answer_chain_rows(chains, changes, rows[start : start + self.decoder.rows], found)
            self.decoder.clear()
        return found

    def _generate(self, prompts: Sequence[Ids], pick: Sequence[int], changes: Sequence[HeadChange]) -> list[Ids]:
        """The answers of one batch."""
        factor = torch.stack([change.factor for change in changes])
        shape = next((change.shift.shape for change in changes if change.shift is not None), None)
        shift = None
        if shape is not None:
            shift = torch.stack([torch.zeros(shape) if one.shift is None else one.shift for one in changes])
        self.decoder.prepare(prompts)  # before anything is changed
        with torch.no_grad(), observe(self.structure, PerExample(factor, shift, self.decoder.row_of_batch)):
            return [reply.ids for reply in self.decoder.answer(prompts, self.limit, self.ends, pick)]

    def _answer_chain_rows(
        self, chains: Sequence[Sequence[Step]], changes: Sequence[HeadChange], rows: list[Row], found: list[NDArray]
    ) -> None:
        earlier: dict[Row, tuple[tuple[str, str], ...]] = dict.fromkeys(rows, ())
        before: dict[Row, Ids] = {}  # what is prefilled of each row,
        prefilled: list[Ids] = []  # and of all
        for number in range(max(len(chains[question]) for _, question in rows)):
            going = [row for row in rows if len(chains[row[1]]) > number]
            steps = {row: replace(chains[row[1]][number], earlier=earlier[row]) for row in going}
            prompts = {row: step_ids(self.model, steps[row]) for row in going}
            first = {prompt: row for row, prompt in reversed(prompts.items())}  # rows with the same answers so far
            stems = {prompt: prompt[: self._stem(steps[row], prompt)] for prompt, row in first.items()}
            if self.decoder.where != "everywhere":
                lines = [prefilled.index(before[row]) for row in first.values()] if prefilled else []
                start = self.decoder.select(prefilled, lines) if prefilled else None
                prefilled = list(stems.values())
                self.decoder.prefill(prefilled, start)
                self.decoder.prepare(list(first), prefilled)
            pick = [list(first).index(prompts[row]) for row in going]
            answers = self._generate(list(first), pick, [changes[condition] for condition, _ in going])
            for row, answer in zip(going, answers, strict=True):
                text = text_of(self.model, answer)
                found[row[1]][row[0], number] = answers_step(steps[row], text)
                earlier[row] = (*earlier[row], (steps[row].subquestion, text))
            before = {row: stems[prompts[row]] for row in going}

    def _stem(self, step: Step, prompt: Ids) -> int:
        """How many tokens of a prompt the next step's prompt begins with, whatever the answer is."""
        longer = replace(step, earlier=(*step.earlier, (step.subquestion, "it")))
        return common_prefix_length([prompt, step_ids(self.model, longer)])
