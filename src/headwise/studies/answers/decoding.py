"""Let a model answer, or read an answer it is given: tokens and their log-probabilities, for many prompts at once.

Steps of `Decoder.generate`, for prompts that share a beginning (the instruction and the examples are the same for all):

1. the shared beginning is read once, and its keys and values are copied to every row of a batch;
2. prompts of like length go together; the rest of each prompt is put at the right end of its row, so that all rows
   speak at the same time:    beginning | padding | rest    with the padding masked, and positions that skip it;
   a prompt that is asked several times can be read once, its keys and values copied to its rows (`once`);
3. one token a step; a row that has ended leaves the batch.

`Decoder.score` reads prompt and answer in one pass (teacher forcing) and gives what `generate` would have given for the
same tokens. Sampling takes the token at which the summed chances, softmax(logits / temperature), pass a number between 0
and 1; the numbers of a row come from its own seed, so neither the batch nor the other rows matter.

Padding changes no number beyond rounding (float32: about 1e-6; in half precision a tie between two tokens can fall
the other way in another batch). Models that cannot be told positions, or carry a state through padding (recurrent
layers), get batches of equal length instead; models that keep no keys and values read everything anew at each step.

Cost: one pass over the prompts (less the shared part) and one step a token. This module does not know questions.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.model import Model

__all__ = ["Decoder", "Reply", "shared_beginning"]

Ids = tuple[int, ...]
CACHE = "past_key_values"
LEAST_SHARED = 8  # tokens; less is not worth a copy
LOGITS = 2**26  # numbers that the logits of one pass may have
LEAVE = 0.75  # rows leave when at most this share of the batch still speaks


@dataclass(frozen=True)
class Reply:
    """What was said: token ids without what ended it, the log-probability of each, and whether it ended by itself."""

    ids: Ids
    logprobs: tuple[float, ...]
    finished: bool


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. At temperature 0 the likeliest."""

    temperature: float = 0.0
    seeds: tuple[int, ...] = ()  # one a prompt


def shared_beginning(prompts: Sequence[Ids]) -> int:
    """How many first tokens all prompts have in common; each keeps one of its own at least.

    >>> shared_beginning([(1, 2, 3), (1, 2, 4, 5), (1, 2, 3)])
    2
    """
    shortest, longest = min(prompts), max(prompts)
    count = 0
    for one, other in zip(shortest, longest, strict=False):
        if one != other:
            break
        count += 1
    return min(count, min(len(prompt) for prompt in prompts) - 1)


class Decoder:
    """A model, ready to continue prompts that share their first `beginning` tokens.

    `once`: equal rows of a batch are read once. Not for who changes or watches rows one by one.
    """

    def __init__(
        self, model: Model, beginning: Ids = (), *, batch: int = 64, batch_tokens: int = 16384, once: bool = False
    ):
        takes = inspect.signature(model.hf.forward).parameters
        layers = model.card.per_layer
        self._model = model
        self._keeps = "logits_to_keep" in takes
        with torch.no_grad():
            cache = getattr(
                model.hf(torch.zeros(1, 2, dtype=torch.long, device=model.device), use_cache=True), CACHE, None
            )
        self._caches, self._plain = cache is not None, _is_plain(cache)
        told = "position_ids" in takes and all(layer.kind in ("full", "window") for layer in layers)
        self._pads = told and self._plain
        self._window = min((layer.window for layer in layers if layer.window), default=None)
        self._batch, self._batch_tokens = batch, batch_tokens
        self._once = once and self._plain
        self._beginning = beginning if self._pads and len(beginning) >= LEAST_SHARED else ()
        self._read: Any = None  # keys and values of the beginning, one row

    # ---- speaking ---------------------------------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[Ids], limit: int, ends: Callable[[Ids, int], bool], sampling: Sampling | None = None
    ) -> list[Reply]:
        """Continue each prompt by at most `limit` tokens; ``ends(so_far, token)`` says whether `token` ends it."""
        replies: list[Reply | None] = [None] * len(prompts)
        for places in self._batches([len(prompt) + limit for prompt in prompts], [len(prompt) for prompt in prompts]):
            rows = [prompts[place] for place in places]
            own = None if sampling is None else [sampling.seeds[place] for place in places]
            choose = _chooser(sampling.temperature if sampling else 0.0, own)
            for place, reply in zip(places, self._speak(rows, limit, ends, choose), strict=True):
                replies[place] = reply
        return [reply for reply in replies if reply is not None]

    def _speak(self, rows: Sequence[Ids], limit: int, ends: Any, choose: Any) -> list[Reply]:
        said: list[list[int]] = [[] for _ in rows]
        scores: list[list[float]] = [[] for _ in rows]
        finished = [False] * len(rows)
        there = list(range(len(rows)))  # which row each line of the batch is
        speaking = set(there)
        logits, state = self._start(rows, keep=1, longest=max(map(len, rows)) + limit)
        while speaking:
            last = logits[:, -1].float()
            chosen = choose(last, there)
            gained = last.log_softmax(-1).gather(1, chosen[:, None])[:, 0].tolist()
            for line, token in enumerate(chosen.tolist()):
                row = there[line]
                if row not in speaking:
                    continue
                if ends(tuple(said[row]), token):
                    finished[row] = True
                    speaking.discard(row)
                    continue
                said[row].append(token)
                scores[row].append(gained[line])
                if len(said[row]) == limit:
                    speaking.discard(row)
            if not speaking:
                break
            if self._plain and len(speaking) <= LEAVE * len(there):
                lines = [line for line, row in enumerate(there) if row in speaking]
                there = [there[line] for line in lines]
                chosen = chosen[lines]
                state.select(torch.tensor(lines, device=chosen.device))
            logits = self._step(chosen, state)
        return [Reply(tuple(a), tuple(b), c) for a, b, c in zip(said, scores, finished, strict=True)]

    # ---- reading ----------------------------------------------------------------------------------------------------

    def score(self, prompts: Sequence[Ids], answers: Sequence[Ids]) -> list[tuple[float, ...]]:
        """The log-probability of every token of each answer, given its prompt and the answer so far."""
        scores: list[tuple[float, ...]] = [()] * len(prompts)
        lengths = [len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)]
        for places in self._batches(lengths, lengths, keeps=[len(answer) + 1 for answer in answers]):
            longest = max(len(answers[place]) for place in places)
            if longest == 0:
                continue
            rows = [prompts[place] + answers[place] for place in places]
            logits, _ = self._start(rows, keep=longest + 1, longest=max(map(len, rows)))
            for line, place in enumerate(places):
                own = answers[place]
                if own:
                    before = logits[line, -len(own) - 1 : -1].float().log_softmax(-1)
                    target = torch.tensor(own, device=before.device)
                    scores[place] = tuple(before.gather(1, target[:, None])[:, 0].tolist())
        return scores

    # ---- one pass ---------------------------------------------------------------------------------------------------

    def _batches(
        self, lengths: Sequence[int], widths: Sequence[int], keeps: Sequence[int] | None = None
    ) -> Iterator[list[int]]:
        """Places of rows that go together, longest first. The cut depends on the rows alone."""
        order = sorted(range(len(lengths)), key=lambda place: (-widths[place], place))
        while order:
            longest, widest = lengths[order[0]], widths[order[0]]
            count = max(1, min(self._batch, self._batch_tokens // longest))
            if keeps is not None:
                most = max(keeps[place] for place in order[:count])
                count = max(1, min(count, LOGITS // (most * self._model.card.vocabulary_size)))
            if not self._pads:
                count = sum(widths[place] == widest for place in order[:count])
            rows, order = order[:count], order[count:]
            yield rows

    @torch.no_grad()
    def _start(self, rows: Sequence[Ids], *, keep: int, longest: int) -> tuple[Tensor, _State]:
        """Read these rows; the logits of the last `keep` tokens, and what is needed to go on."""
        device = self._model.device
        shared = len(self._beginning)
        if self._window is not None and longest > self._window:  # windows count padding in the middle of a row
            shared = 0
        if shared and (min(map(len, rows)) <= shared or any(row[:shared] != self._beginning for row in rows)):
            shared = 0
        rests, picked = _distinct([row[shared:] for row in rows], self._once)
        width = max(map(len, rests))
        ids = torch.full((len(rests), width), self._model.pad_id)
        seen = torch.zeros(len(rests), width, dtype=torch.long)
        for line, rest in enumerate(rests):
            ids[line, width - len(rest) :] = torch.tensor(rest)
            seen[line, width - len(rest) :] = 1
        positions = (seen.cumsum(1) - 1).clamp(min=0) + shared
        mask = torch.cat([torch.ones(len(rests), shared, dtype=torch.long), seen], dim=1)
        cache = self._beginning_of(len(rests)) if shared else None
        state = _State(cache, ids.to(device), mask.to(device), positions[:, -1:].to(device))
        logits = self._pass(state.ids, positions.to(device), state, keep)
        if len(rests) < len(rows):
            lines = torch.tensor(picked, device=device)
            state.ids, logits = state.ids[lines], logits[lines]
            state.select(lines)
        return logits, state

    def _step(self, chosen: Tensor, state: _State) -> Tensor:
        state.position = state.position + 1
        state.mask = torch.cat([state.mask, torch.ones_like(state.mask[:, :1])], dim=1)
        state.ids = chosen[:, None] if self._caches else torch.cat([state.ids, chosen[:, None]], dim=1)
        return self._pass(state.ids, state.position, state, keep=1)

    @torch.no_grad()
    def _pass(self, ids: Tensor, positions: Tensor, state: _State, keep: int) -> Tensor:
        inputs: dict[str, Any] = {"input_ids": ids, "use_cache": self._caches}
        if self._caches:
            inputs[CACHE] = state.cache
        if self._pads:
            inputs |= {"attention_mask": state.mask, "position_ids": positions}
        if self._keeps:
            inputs["logits_to_keep"] = keep
        out = self._model.hf(**inputs)
        state.cache = getattr(out, CACHE, None)
        return out.logits[:, -keep:]  # (batch, keep, vocabulary)

    @torch.no_grad()
    def _beginning_of(self, rows: int) -> Any:
        """The keys and values of the shared beginning, once a row."""
        if self._read is None:
            ids = torch.tensor([self._beginning], device=self._model.device)
            keep = {"logits_to_keep": 1} if self._keeps else {}
            self._read = self._model.hf(input_ids=ids, use_cache=True, **keep).past_key_values
        cache = copy.deepcopy(self._read)
        cache.batch_repeat_interleave(rows)
        return cache


@dataclass
class _State:
    """What a batch has read so far."""

    cache: Any
    ids: Tensor  # (batch, token) last given to the model; all of them where it keeps no keys and values
    mask: Tensor  # (batch, token so far) 0 where there is padding
    position: Tensor  # (batch, 1) of the last token

    def select(self, lines: Tensor) -> None:
        """Keep these rows."""
        self.cache.batch_select_indices(lines)
        self.mask, self.position = self.mask[lines], self.position[lines]


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


def _is_plain(cache: Any) -> bool:
    """Whether a cache holds keys and values alone, which can be copied and thinned row by row."""
    layers = getattr(cache, "layers", None) or ()
    return bool(layers) and all(
        hasattr(layer, "keys") and not hasattr(layer, "update_recurrent_state") for layer in layers
    )


def _chooser(temperature: float, seeds: Sequence[int] | None) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """From logits (batch, vocabulary) and which row each line is, to tokens (batch,)."""
    if not temperature:
        return lambda logits, rows: logits.argmax(-1)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds or ()]

    def sample(logits: Tensor, rows: Sequence[int]) -> Tensor:
        passed = (logits / temperature).softmax(-1).cumsum(-1)
        numbers = torch.stack([torch.rand(1, generator=generators[row]) for row in rows]).to(logits.device)
        return torch.searchsorted(passed, numbers * passed[:, -1:], right=True)[:, 0].clamp(max=logits.shape[1] - 1)

    return sample
