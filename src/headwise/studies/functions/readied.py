"""Prompts that are read once and answered many times: with all heads as they are, and with some of them changed.

A `Readied` is a `Decoder` that keeps the keys and values of batches of prompts. Three places can act as the beginning of
what an intervention changes (`where`):

    answer       from the last prompt token on, where the answer is made: all before it is kept
    decode       decode steps alone, as published: the last prompt token's logits are kept too, so that the first token of
                 an answer is always that of the whole model
    everywhere   the whole prompt: nothing is kept, and prompts are read anew each time

Prompts that begin alike row by row (a question, then the same with one more step) are read from where they part:

    decoder.keep(beginnings)                        # rows of token ids
    decoder.keep(prompts, after=beginnings)         # each row begins with the row of `beginnings` on the same line
    decoder.answer(prompts, limit, ends)            # greedy
    decoder.answer(prompts, limit, ends, pick=[0, 0, 1, 1])      # two lines for each prompt
    decoder.follow(prompts, answers)                # given answers in one pass, for instruments to look at

Each row has its padding at the left of every part that was read, masked, with positions that skip it. `lines` says which
row each line of the running batch is, for `ByRow`. In a pass of `follow` the rows end together: position -1 is the last
token of each.

Cost of an answer: one token a prompt and one step a token. Memory: keys and values of what is kept, until `forget`.
Models that take no positions or count padding in a window go row by row (`rows` is 1); those that keep no keys and values
are refused. This module does not know steps, nor heads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.core.errors import StudyError
from headwise.model import Model
from headwise.studies.answers.decoding import Decoder, Ids, Reply, _chooser, _State

__all__ = ["WHERE", "Readied"]

WHERE = ("answer", "decode", "everywhere")


@dataclass
class _Rows(_State):
    """What a batch has read so far, and which row each of its lines is."""

    lines: Tensor

    def select(self, lines: Tensor) -> None:
        """Keep these lines."""
        super().select(lines)
        self.lines = self.lines[lines]


class _Kept(NamedTuple):
    logits: Tensor  # (row, 1, vocabulary), of the last token
    state: _State


class Readied(Decoder):
    """A model, ready to answer prompts that it has read before. `longest`: tokens of a prompt with its answer."""

    def __init__(self, model: Model, beginning: Ids = (), *, longest: int, where: str = "answer", rows: int = 64):
        super().__init__(model, () if where == "everywhere" else beginning, batch=rows)
        if not self._caches:
            raise StudyError(
                f"{model.id} keeps no keys and values between tokens, so that a prompt cannot be read once and answered "
                "many times; choose another model"
            )
        self.where, self._longest = where, longest
        self.rows = rows if self._pads and (self._window is None or longest <= self._window) else 1  # at once
        self._kept: dict[tuple[Ids, ...], _Kept] = {}
        self._running: _Rows | None = None
        self._asked: tuple[list[Ids], list[int]] | None = None

    # ---- reading ----------------------------------------------------------------------------------------------------

    def keep(self, rows: Sequence[Ids], after: Sequence[Ids] | None = None) -> None:
        """Read these rows and keep them; `after`: rows kept before, which they begin with, line by line."""
        if tuple(rows) not in self._kept:
            self._kept[tuple(rows)] = self._read_after(rows, after)

    def ready(self, prompts: Sequence[Ids], after: Sequence[Ids] | None = None) -> None:
        """Read prompts as far as `answer` will not read them again."""
        if self.where != "everywhere":
            self.keep(self._before(prompts), after)

    def narrow(self, rows: Sequence[Ids], lines: Sequence[int]) -> list[Ids]:
        """Some of the rows that were kept, kept as a batch of their own."""
        some = [rows[line] for line in lines]
        if tuple(some) not in self._kept:
            known, picked = self._kept[tuple(rows)], torch.tensor(list(lines), device=self._model.device)
            self._kept[tuple(some)] = _Kept(known.logits[picked], self._copy(known.state, picked))
        return some

    def forget(self, rows: Sequence[Ids] | None = None) -> None:
        """Let prompts go that were kept; None: all."""
        if rows is None:
            self._kept.clear()
        else:
            self._kept.pop(tuple(rows), None)
            self._kept.pop(tuple(self._before(rows)), None)

    def _before(self, prompts: Sequence[Ids]) -> list[Ids]:
        return list(prompts) if self.where == "decode" else [prompt[:-1] for prompt in prompts]

    def _read_after(self, rows: Sequence[Ids], after: Sequence[Ids] | None) -> _Kept:
        if after is None or any(row[: len(start)] != start for row, start in zip(rows, after, strict=True)):
            return _Kept(*super()._start(rows, keep=1, longest=self._longest))
        known = self._kept[tuple(after)]
        rests = [row[len(start) :] for row, start in zip(rows, after, strict=True)]
        if not any(rests):
            return known
        state = self._copy(known.state, None)
        return _Kept(self._append(rests, state), state)

    @torch.no_grad()
    def _append(self, rests: Sequence[Ids], state: _State) -> Tensor:
        """Read more of every row; logits of the last token."""
        width, device = max(map(len, rests)), self._model.device
        ids = torch.full((len(rests), width), self._model.pad_id)
        seen = torch.zeros(len(rests), width, dtype=torch.long)
        for line, rest in enumerate(rests):
            if rest:
                ids[line, width - len(rest) :] = torch.tensor(rest)
                seen[line, width - len(rest) :] = 1
        positions = state.position + seen.cumsum(1).to(device)
        state.mask = torch.cat([state.mask, seen.to(device)], dim=1)
        state.position, state.ids = positions[:, -1:], ids.to(device)
        return self._pass(state.ids, positions, state, keep=1)

    # ---- speaking ---------------------------------------------------------------------------------------------------

    def answer(
        self, prompts: Sequence[Ids], limit: int, ends: Callable[[Ids, int], bool], pick: Sequence[int] | None = None
    ) -> list[Reply]:
        """What the model says, greedily, in at most `limit` tokens; with `pick` once for each of these rows of `prompts`."""
        chosen = list(range(len(prompts))) if pick is None else list(pick)
        self._asked = (list(prompts), chosen)
        try:
            return self._speak([prompts[row] for row in chosen], limit, ends, _chooser(0.0, None))
        finally:
            self._asked, self._running = None, None

    def lines(self) -> Tensor:
        """(batch,): which of the rows that `answer` speaks for each line of the running batch is."""
        assert self._running is not None, "no answer is being made"
        return self._running.lines

    def follow(self, prompts: Sequence[Ids], answers: Sequence[Ids]) -> None:
        """Run answers after their prompts, in one pass."""
        self.ready(prompts)
        before = self._before(prompts)
        state = self._copy(self._kept[tuple(before)].state, None)
        whole = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        self._append([row[len(start) :] for row, start in zip(whole, before, strict=True)], state)

    def _start(self, rows: Sequence[Ids], *, keep: int, longest: int) -> tuple[Tensor, _State]:
        """As `Decoder`; for `answer`, from what was kept of its prompts."""
        if self._asked is None:
            return super()._start(rows, keep=keep, longest=longest)
        (prompts, chosen), device = self._asked, self._model.device
        lines = torch.arange(len(rows), device=device)
        if self.where == "everywhere":
            empty = torch.empty(0, device=device)
            self._running = _Rows(None, empty, empty, empty, lines)  # who changes heads while these rows are read
            logits, state = super()._start(rows, keep=keep, longest=longest)
            self._running = _Rows(state.cache, state.ids, state.mask, state.position, lines)
            return logits, self._running
        self.ready(prompts)
        kept = self._kept[tuple(self._before(prompts))]
        picked = torch.tensor(chosen, device=device)
        state = self._copy(kept.state, picked)
        self._running = _Rows(state.cache, state.ids, state.mask, state.position, lines)
        if self.where == "decode":
            return kept.logits[picked], self._running
        last = torch.tensor([row[-1] for row in rows], device=device)
        return self._step(last, self._running), self._running

    def _copy(self, state: _State, pick: Tensor | None) -> _State:
        """Some rows of what was kept, in tensors that can be added to; a row may be picked several times."""
        if not self._plain:  # a state that can only be copied whole
            return copy.deepcopy(state)
        cache = copy.copy(state.cache)
        cache.layers = [copy.copy(layer) for layer in cache.layers]  # adding tokens makes new tensors
        found = _State(cache, state.ids, state.mask, state.position)
        if pick is not None:
            found.select(pick)
        return found
