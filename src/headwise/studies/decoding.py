"""Generate answers for many prompts at once: every prompt prefix goes through the model once.

Prompts that share a prefix (the instruction and the examples) and are answered once:

    decoder = PrefixCachedDecoder(model, prefix)
    decoder.generate(prompts, limit, ends)                  # tokens and their log-probabilities

Prompts that are answered many times, with changed heads, or that extend each other (a question, then its next step):

    decoder = PrefixCachedDecoder(model, prefix, longest=200)
    decoder.prefill(beginnings)                             # rows of token ids; their KV caches are retained
    decoder.prepare(prompts, after=beginnings)              # row i begins with row i of `beginnings`
    decoder.answer(prompts, limit, ends)                    # greedy
    decoder.answer(prompts, limit, ends, pick=[0, 0, 1])    # prompt 0 twice, prompt 1 once
    decoder.teacher_force(prompts, answers)                 # one pass for instruments; position -1 is each row's last token

Batches are padded on the left: prefix | padding | rest, with the padding masked and positions that skip it, so that all rows
generate their next token together; a row that has ended leaves the batch. Padding changes no number beyond rounding
(float32: about 1e-6; in half precision a tie between two tokens may resolve differently in another batch). Models that take
no positions, or carry a state through padding (recurrent layers), get batches of equal length; models without a KV cache
read the whole sequence at each step, and cannot prefill.

Sampling takes the token at which the cumulative softmax(logits / temperature) passes a uniform number; the numbers of a row
come from its own seed, so neither the batch nor the other rows matter.

An intervention starts to act (`where`): at the last prompt token, where the answer is made ("answer": everything before it
is cached); at decode steps alone, as published ("decode": the first token is always the intact model's); or "everywhere"
(nothing is cached). `row_of_batch` tells an intervention which row each line of the running batch is.

With `pick`, the answers to a prompt are branches of its row (`branches`) where the model takes positions and a mask, and copies
of it elsewhere.

Cost: one pass over the prompts without their cached prefix, and one step per token.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import repeat
from math import nan
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicLayer

from headwise.core.errors import StudyError
from headwise.model import Model
from headwise.studies.branches import Branches

Ids = tuple[int, ...]
Chooser = Callable[[Tensor, Sequence[int]], Tensor]  # from logits (line, vocabulary) and the row of each line to tokens
CACHE = "past_key_values"
POSITIONS = ("answer", "decode", "everywhere")  # where an intervention starts to act
MIN_PREFIX_TOKENS = 8  # a shorter prefix is not worth a copy
COMPACT_AT = 0.75  # finished rows leave the batch when at most this share of it is still generating


@dataclass(frozen=True)
class Reply:
    """An answer: token ids without the one that ended it, their log-probabilities, and whether the model ended it itself."""

    ids: Ids
    logprobs: tuple[float, ...]
    finished: bool


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. At temperature 0 the most likely one."""

    temperature: float = 0.0
    seeds: tuple[int, ...] = ()  # one per prompt


@dataclass
class _DecoderState:
    """What a batch has read so far."""

    cache: Any
    ids: Tensor  # (batch, token) last given to the model; all of them where it has no KV cache
    mask: Tensor  # (batch, token so far) 0 where there is padding
    position: Tensor  # (batch, 1) of the last token

    def select(self, lines: Tensor) -> None:
        """Retain these lines of the batch."""
        self.cache.batch_select_indices(lines)
        self.mask, self.position = self.mask[lines], self.position[lines]

    def join(self, other: _DecoderState) -> None:
        """Add the lines of another state, the shorter ones padded on the left."""
        width = max(self.mask.shape[1], other.mask.shape[1])
        for own, new in zip(self.cache.layers, other.cache.layers, strict=True):
            own.keys, own.values = (
                torch.cat([_left_padded_cache(one, width) for one in pair])
                for pair in ((own.keys, new.keys), (own.values, new.values))
            )
        self.mask = torch.cat([pad(one, (width - one.shape[1], 0)) for one in (self.mask, other.mask)])
        self.position = torch.cat([self.position, other.position])


def _left_padded_cache(values: Tensor, width: int) -> Tensor:
    """Keys or values (batch, kv_head, token, width) with zeros before them, which the mask hides."""
    return pad(values, (0, 0, width - values.shape[2], 0))


class DecodedTokens(NamedTuple):
    """The next token of every row that has not ended."""

    rows: list[int]
    tokens: list[int]
    logprobs: list[float]  # of the tokens, before any sampling


class Decoding:
    """Rows that are being continued, a token per step; those that have ended leave the batch. Made by `PrefixCachedDecoder`.

    Args:
        decoder: whose model runs.
        logits: (line, 1, vocabulary), of the last token of each prompt.
        state: what has been read.
        choose: from logits (line, vocabulary) and the row of each line to tokens (line,).
        scored: whether log-probabilities are wanted; NaN otherwise.
        on_select: called with the lines that are retained.
    """

    def __init__(
        self, decoder: PrefixCachedDecoder, logits: Tensor, state: _DecoderState | Branches, choose: Chooser, *,
        scored: bool = True, on_select: Callable[[Tensor], None] | None = None,
    ):  # fmt: skip
        self._decoder, self._logits, self._state = decoder, logits, state
        self._choose, self._scored, self._on_select = choose, scored, on_select
        self.rows = list(range(len(logits)))  # the row of each line of the batch, ended ones included
        self._running = set(self.rows)
        self._rows = len(self.rows)  # so far
        self._joining: list[tuple[int, Ids, Callable[[int], AbstractContextManager[None]]]] = []

    @property
    def logits(self) -> Tensor:
        """(line, vocabulary), float32: what the next tokens are chosen from, or have just been."""
        return self._logits[:, -1].float()

    def fork(self) -> Decoding:
        """The same prompts, to be continued in another way."""
        assert isinstance(self._state, _DecoderState), "branches are not forked"
        state = self._decoder._copy(self._state, None)
        return Decoding(self._decoder, self._logits, state, self._choose, scored=self._scored)

    def teacher_force(self, answer: Ids) -> Tensor:
        """(token, vocabulary), float32: the logits before each token of a given answer to a single prompt, in one pass.

        The answer is then part of what has been read; `fork` first to continue the prompt itself.
        """
        assert isinstance(self._state, _DecoderState) and len(self.rows) == 1, "one prompt has one answer"
        found = [self.logits]
        if len(answer) > 1:
            self._logits = self._decoder._append([answer[:-1]], self._state, keep=len(answer) - 1)
            found.append(self._logits[0].float())
        return torch.cat(found)

    def end(self, row: int) -> None:
        """This row has no further token."""
        self._running.discard(row)

    @property
    def running(self) -> bool:
        """Whether a row of the batch goes on."""
        return any(row in self._running for row in self.rows)

    def join(self, prompt: Ids, around: Callable[[int], AbstractContextManager[None]]) -> None:
        """Another prompt joins as the next row, after the step that runs; it is read inside ``around(lines so far)``."""
        self._joining.append((self._rows, prompt, around))
        self._running.add(self._rows)
        self._rows += 1

    def __iter__(self) -> Iterator[DecodedTokens]:
        while self.running:
            last = self.logits
            chosen = self._choose(last, self.rows)
            scores = last.log_softmax(-1).gather(1, chosen[:, None])[:, 0].tolist() if self._scored else repeat(nan)
            every = zip(self.rows, chosen.tolist(), scores, strict=False)
            yield DecodedTokens(*map(list, zip(*(one for one in every if one[0] in self._running), strict=True)))
            if not self.running:
                return
            chosen = self._leave(chosen)
            self._logits = self._decoder._step(chosen, self._state, self._going())
            self._join()

    def _going(self) -> Tensor | None:
        """(line, 1), 1 for lines that go on; None: all do. Ended lines stay where they are: at the last position, perhaps."""
        going = [int(row in self._running) for row in self.rows]
        return None if all(going) else torch.tensor(going, device=self._logits.device)[:, None]

    def _join(self) -> None:
        """Read the prompts that join."""
        for row, prompt, around in self._joining:
            with around(len(self.rows)):
                logits, state = self._decoder._read([prompt], keep=1, longest=len(prompt))
            assert isinstance(self._state, _DecoderState)
            self._state.join(state)
            self._logits = torch.cat([self._logits, logits])
            self.rows.append(row)
        self._joining.clear()

    def _leave(self, chosen: Tensor) -> Tensor:
        """The chosen tokens of the lines that remain, once enough have ended."""
        share = 1.0 if isinstance(self._state, Branches) else COMPACT_AT  # branches leave without a copy of the cache
        if not self._decoder._selectable or len(self._running) > share * len(self.rows):
            return chosen
        lines = [line for line, row in enumerate(self.rows) if row in self._running]
        self.rows = [self.rows[line] for line in lines]
        retained = torch.tensor(lines, device=chosen.device)
        self._state.select(retained)
        self._decoder._follow(retained)
        if self._on_select is not None:
            self._on_select(retained)
        return chosen[retained]


class _Prefilled(NamedTuple):
    logits: Tensor  # (row, 1, vocabulary), of the last token
    state: _DecoderState


def common_prefix_length(prompts: Sequence[Ids]) -> int:
    """The number of first tokens that all prompts share; each has at least one token left.

    >>> common_prefix_length([(1, 2, 3), (1, 2, 4, 5), (1, 2, 3)])
    2
    """
    first, last = min(prompts), max(prompts)
    pairs = enumerate(zip(first, last, strict=False))
    count = next((index for index, (one, other) in pairs if one != other), min(len(first), len(last)))
    return min(count, min(map(len, prompts)) - 1)


class PrefixCachedDecoder:
    """A model with the KV caches of what it has read.

    Args:
        model: the model.
        prefix: tokens that prompts begin with; those that do not are read whole.
        batch: rows per forward pass.
        batch_tokens: tokens per forward pass of `generate`.
        share_prompts: equal prompts of a batch are read once; not where single rows are observed or changed.
        longest: tokens of the longest prompt with its answer; needed by `prefill`, `prepare`, `answer` and `teacher_force`.
        where: where an intervention starts to act on an answer, one of `POSITIONS`.
    """

    def __init__(
        self, model: Model, prefix: Ids = (), *, batch: int = 64, batch_tokens: int = 16384, share_prompts: bool = False,
        longest: int | None = None, where: str = "answer",
    ):  # fmt: skip
        accepted = inspect.signature(model.hf.forward).parameters
        layers = model.card.per_layer
        with torch.no_grad():
            probe = model.hf(torch.zeros(1, 2, dtype=torch.long, device=model.device), use_cache=True)
        cache = getattr(probe, CACHE, None)
        self._model = model
        self._keeps_logits = "logits_to_keep" in accepted
        self._caches, self._selectable = cache is not None, _is_selectable(cache)
        positioned = "position_ids" in accepted and all(layer.kind in ("full", "window") for layer in layers)
        self._pads = positioned and self._selectable
        self._plain = all(type(layer) is DynamicLayer for layer in getattr(cache, "layers", ()))
        self._window = min((layer.window for layer in layers if layer.window), default=None)
        self._batch, self._batch_tokens = batch, batch_tokens
        self._share_prompts = share_prompts and self._selectable
        usable = self._pads and len(prefix) >= MIN_PREFIX_TOKENS and where != "everywhere"
        self._prefix = prefix if usable else ()
        self._prefix_cache: Any = None  # of one row
        if longest is not None and not self._caches:
            raise StudyError(
                f"{model.id} has no KV cache, so a prompt cannot be read once and answered many times; choose another model."
            )
        fits = self._window is None or (longest or 0) <= self._window  # a window counts padding
        self.rows = batch if self._pads and fits else 1  # per batch of prefilled prompts
        self.where, self._longest = where, longest
        self._prefilled: dict[tuple[Ids, ...], _Prefilled] = {}
        self._row_of_batch: Tensor | None = None  # of each line that is being generated
        self._branches: Branches | None = None  # what these lines are, where a row of the batch has several
        self._branching = self._pads and self._window is None and where != "everywhere"

    # ---- prompts that are answered once ------------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[Ids], limit: int, ends: Callable[[Ids, int], bool], sampling: Sampling | None = None
    ) -> list[Reply]:
        """Continue each prompt by at most `limit` tokens; ``ends(so_far, token)``: whether `token` ends the answer."""
        replies: list[Reply | None] = [None] * len(prompts)
        for indices in self._batches([len(prompt) + limit for prompt in prompts], [len(prompt) for prompt in prompts]):
            rows = [prompts[index] for index in indices]
            own = None if sampling is None else [sampling.seeds[index] for index in indices]
            choose = _chooser(sampling.temperature if sampling else 0.0, own)
            logits, state = self._read(rows, keep=1, longest=max(map(len, rows)) + limit)
            for index, reply in zip(indices, self._decode(logits, state, limit, ends, choose), strict=True):
                replies[index] = reply
        return [reply for reply in replies if reply is not None]

    # ---- prompts that are answered many times ------------------------------------------------------------------------

    def prefill(self, rows: Sequence[Ids], after: Sequence[Ids] | None = None) -> None:
        """Read these rows and retain their caches; `after`: rows prefilled before, row i of which row i begins with."""
        key = tuple(rows)
        if key in self._prefilled:
            return
        if after is None or any(row[: len(start)] != start for row, start in zip(rows, after, strict=True)):
            assert self._longest is not None, "prefill needs `longest`"
            self._prefilled[key] = _Prefilled(*self._read(rows, keep=1, longest=self._longest))
            return
        known = self._prefilled[tuple(after)]
        rests = [row[len(start) :] for row, start in zip(rows, after, strict=True)]
        if any(rests):
            state = self._copy(known.state, None)
            known = _Prefilled(self._append(rests, state), state)
        self._prefilled[key] = known

    def prepare(self, prompts: Sequence[Ids], after: Sequence[Ids] | None = None) -> None:
        """Prefill prompts as far as `answer` does not read them itself."""
        if self.where != "everywhere":
            self.prefill(self._cached_part(prompts), after)

    def select(self, rows: Sequence[Ids], indices: Sequence[int]) -> list[Ids]:
        """Some of the prefilled rows, retained as a batch of their own."""
        some = [rows[index] for index in indices]
        if tuple(some) not in self._prefilled:
            known, picked = self._prefilled[tuple(rows)], torch.tensor(list(indices), device=self._model.device)
            self._prefilled[tuple(some)] = _Prefilled(known.logits[picked], self._copy(known.state, picked))
        return some

    def clear(self, rows: Sequence[Ids] | None = None) -> None:
        """Release the caches of these rows, or prompts; None: of all."""
        if rows is None:
            self._prefilled.clear()
        else:
            self._prefilled.pop(tuple(rows), None)
            self._prefilled.pop(tuple(self._cached_part(rows)), None)

    def answer(
        self, prompts: Sequence[Ids], limit: int, ends: Callable[[Ids, int], bool], pick: Sequence[int] | None = None
    ) -> list[Reply]:
        """Greedy answers of at most `limit` tokens, without log-probabilities (NaN); with `pick`, one per entry: the index of
        its prompt.
        """
        chosen = list(range(len(prompts))) if pick is None else list(pick)
        rows, device = [prompts[index] for index in chosen], self._model.device
        self._row_of_batch = torch.arange(len(rows), device=device)
        state: _DecoderState | Branches
        try:
            if self.where == "everywhere":
                logits, state = self._read(rows, keep=1, longest=max(map(len, rows)) + limit)
            else:
                self.prepare(prompts)
                known, picked = self._prefilled[tuple(self._cached_part(prompts))], torch.tensor(chosen, device=device)
                if self._branching and pick is not None:
                    whole = known.state
                    cache = self._copy(whole, None).cache
                    state = self._branches = Branches(cache, whole.mask, whole.position, chosen)
                else:
                    state = self._copy(known.state, picked)
                if self.where == "decode":
                    logits = known.logits[picked]
                else:
                    logits = self._step(torch.tensor([row[-1] for row in rows], device=device), state)
            return self._decode(logits, state, limit, ends, _chooser(0.0, None), scored=False)
        finally:
            self._row_of_batch = self._branches = None

    def row_of_batch(self) -> Tensor:
        """Which of the rows that `answer` returns is computed in the running batch: by line, (batch,); where prompts have
        several answers, by token, (batch, token).
        """
        assert self._row_of_batch is not None, "no answer is being generated"
        return self._row_of_batch if self._branches is None else self._branches.grid(self._row_of_batch)

    def teacher_force(self, prompts: Sequence[Ids], answers: Sequence[Ids]) -> None:
        """Run answers after their prompts, in one pass."""
        self.prepare(prompts)
        before = self._cached_part(prompts)
        state = self._copy(self._prefilled[tuple(before)].state, None)
        whole = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        self._append([row[len(start) :] for row, start in zip(whole, before, strict=True)], state)

    def _follow(self, lines: Tensor) -> None:
        """These lines of the running batch are retained."""
        if self._row_of_batch is not None:
            self._row_of_batch = self._row_of_batch[lines]

    def _cached_part(self, prompts: Sequence[Ids]) -> list[Ids]:
        return list(prompts) if self.where == "decode" else [prompt[:-1] for prompt in prompts]

    def _copy(self, state: _DecoderState, pick: Tensor | None) -> _DecoderState:
        """Some rows of a state, to be extended; a row may be picked several times."""
        if not self._selectable:  # such a cache can only be copied whole
            return copy.deepcopy(state)
        cache = copy.copy(state.cache)
        cache.layers = [copy.copy(layer) for layer in cache.layers]  # appending tokens makes new tensors
        found = _DecoderState(cache, state.ids, state.mask, state.position)
        if pick is not None:
            found.select(pick)
        return found

    # ---- forward passes ----------------------------------------------------------------------------------------------

    def _batches(self, lengths: Sequence[int], widths: Sequence[int]) -> Iterator[list[int]]:
        """Indices of rows that form a batch, longest first; they depend on the rows alone."""
        order = sorted(range(len(lengths)), key=lambda index: (-widths[index], index))
        while order:
            longest, widest = lengths[order[0]], widths[order[0]]
            count = max(1, min(self._batch, self._batch_tokens // longest))
            if not self._pads:
                count = sum(widths[index] == widest for index in order[:count])
            rows, order = order[:count], order[count:]
            yield rows

    def begin(
        self, prompts: Sequence[Ids], longest: int, choose: Chooser, on_select: Callable[[Tensor], None] | None = None
    ) -> Decoding:
        """Read prompts, to be continued step by step.

        Args:
            prompts: a batch of them.
            longest: tokens of the longest prompt with its answer.
            choose: from logits (line, vocabulary) and the row of each line to tokens (line,).
            on_select: called with the lines that are retained when others leave the batch.
        """
        return Decoding(self, *self._read(prompts, keep=1, longest=longest), choose, on_select=on_select)

    @property
    def pads(self) -> bool:
        """Whether prompts of different length can be in one batch."""
        return self._pads

    @property
    def joins(self) -> bool:
        """Whether a prompt can join a batch that is being continued: every layer's cache holds all of its keys."""
        return self._pads and self._window is None and self._plain

    def _decode(
        self, logits: Tensor, state: _DecoderState | Branches, limit: int, ends: Any, choose: Any, scored: bool = True
    ) -> list[Reply]:
        """Answers of all rows of a batch that has been read; with log-probabilities where they are `scored`."""
        decoding = Decoding(self, logits, state, choose, scored=scored)
        tokens: list[list[int]] = [[] for _ in decoding.rows]
        scores: list[list[float]] = [[] for _ in decoding.rows]
        finished = [False] * len(decoding.rows)
        for step in decoding:
            for row, token, score in zip(*step, strict=True):
                if ends(tuple(tokens[row]), token):
                    finished[row] = True
                    decoding.end(row)
                    continue
                tokens[row].append(token)
                scores[row].append(score)
                if len(tokens[row]) == limit:
                    decoding.end(row)
        return [Reply(tuple(a), tuple(b), c) for a, b, c in zip(tokens, scores, finished, strict=True)]

    @torch.no_grad()
    def _read(self, rows: Sequence[Ids], *, keep: int, longest: int) -> tuple[Tensor, _DecoderState]:
        """Read these rows: logits of the last `keep` tokens, and the state to continue from."""
        device = self._model.device
        shared = len(self._prefix)
        if self._window is not None and longest > self._window:  # windows count padding in the middle of a row
            shared = 0
        if shared and (min(map(len, rows)) <= shared or any(row[:shared] != self._prefix for row in rows)):
            shared = 0
        rests, picked = _distinct([row[shared:] for row in rows], self._share_prompts)
        ids, seen = self._left_padded(rests)
        positions = (seen.cumsum(1) - 1).clamp(min=0) + shared
        mask = torch.cat([torch.ones(len(rests), shared, dtype=torch.long), seen], dim=1)
        cache = self._repeated_prefix(len(rests)) if shared else None
        state = _DecoderState(cache, ids.to(device), mask.to(device), positions[:, -1:].to(device))
        logits = self._forward(state.ids, positions.to(device), state, keep)
        if len(rests) < len(rows):
            lines = torch.tensor(picked, device=device)
            state.ids, logits = state.ids[lines], logits[lines]
            state.select(lines)
        return logits, state

    @torch.no_grad()
    def _append(self, rests: Sequence[Ids], state: _DecoderState, keep: int = 1) -> Tensor:
        """Read more tokens of every row; logits of the last `keep`."""
        device = self._model.device
        ids, seen = self._left_padded(rests)
        positions = state.position + seen.cumsum(1).to(device)
        state.mask = torch.cat([state.mask, seen.to(device)], dim=1)
        new = ids.to(device)
        state.position = positions[:, -1:]
        state.ids = new if self._caches else torch.cat([state.ids, new], dim=1)
        return self._forward(state.ids, positions, state, keep)

    def _left_padded(self, rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        """(row, token) ids and mask, each row at the right end."""
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self._model.pad_id)
        seen = torch.zeros(len(rows), width, dtype=torch.long)
        for line, row in enumerate(rows):
            if row:
                ids[line, width - len(row) :] = torch.tensor(row)
                seen[line, width - len(row) :] = 1
        return ids, seen

    def _step(self, chosen: Tensor, state: _DecoderState | Branches, going: Tensor | None = None) -> Tensor:
        """Logits (line, 1, vocabulary) after one more token of every line; only the lines that are `going` move on."""
        if isinstance(state, Branches):
            ids, positions, mask = state.append(chosen)
            logits = self._forward(ids, positions, _DecoderState(state.cache, ids, mask, positions), keep=state.width)
            return state.of_branches(logits)[:, None]
        state.position = state.position + (1 if going is None else going)
        state.mask = torch.cat([state.mask, torch.ones_like(state.mask[:, :1])], dim=1)
        state.ids = chosen[:, None] if self._caches else torch.cat([state.ids, chosen[:, None]], dim=1)
        return self._forward(state.ids, state.position, state, keep=1)

    @torch.no_grad()
    def _forward(self, ids: Tensor, positions: Tensor, state: _DecoderState, keep: int) -> Tensor:
        inputs: dict[str, Any] = {"input_ids": ids, "use_cache": self._caches}
        if self._caches:
            inputs[CACHE] = state.cache
        if self._pads:
            inputs |= {"attention_mask": state.mask, "position_ids": positions}
        if self._keeps_logits:
            inputs["logits_to_keep"] = keep
        out = self._model.hf(**inputs)
        state.cache = getattr(out, CACHE, None)
        return out.logits[:, -keep:]  # (batch, keep, vocabulary)

    @torch.no_grad()
    def _repeated_prefix(self, rows: int) -> Any:
        """The cache of the prefix, once per row."""
        if self._prefix_cache is None:
            ids = torch.tensor([self._prefix], device=self._model.device)
            keep = {"logits_to_keep": 1} if self._keeps_logits else {}
            self._prefix_cache = self._model.hf(input_ids=ids, use_cache=True, **keep).past_key_values
        cache = copy.deepcopy(self._prefix_cache)
        cache.batch_repeat_interleave(rows)
        return cache


def _distinct(rows: Sequence[Ids], once: bool) -> tuple[list[Ids], list[int]]:
    """Rows without repeats, and which of them each row is; where not `once`, all rows.

    >>> _distinct([(1, 2), (3,), (1, 2)], once=True)
    ([(1, 2), (3,)], [0, 1, 0])
    """
    if not once:
        return list(rows), list(range(len(rows)))
    known: dict[Ids, int] = {}
    picked = [known.setdefault(row, len(known)) for row in rows]
    return list(known), picked


def _is_selectable(cache: Any) -> bool:
    """Whether a cache holds keys and values alone, so that single rows can be copied and dropped."""
    layers = getattr(cache, "layers", None) or ()
    return bool(layers) and all(
        hasattr(layer, "keys") and not hasattr(layer, "update_recurrent_state") for layer in layers
    )


def _chooser(temperature: float, seeds: Sequence[int] | None) -> Chooser:
    """A function from logits (batch, vocabulary) and the row of each line to tokens (batch,)."""
    if not temperature:
        return lambda logits, rows: logits.argmax(-1)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds or ()]

    def sample(logits: Tensor, rows: Sequence[int]) -> Tensor:
        passed = (logits / temperature).softmax(-1).cumsum(-1)
        numbers = torch.stack([torch.rand(1, generator=generators[row]) for row in rows]).to(logits.device)
        return torch.searchsorted(passed, numbers * passed[:, -1:], right=True)[:, 0].clamp(max=logits.shape[1] - 1)

    return sample
