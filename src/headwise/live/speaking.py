"""Reading a prompt once and going on from there: what comes next, what is said, and how likely a given answer was.

    state = begin(model, ids)                 # one pass over the prompt
    state.logprobs                            # (vocabulary,) log-probability of the next token
    follow(model, state, answer)              # (token, vocabulary): before each token of a given answer, and after it
    speak(model, state, limit, ends, halt)    # the likeliest token, again and again

The keys and values of the prompt are kept in the state and copied before anybody writes to them, so that one pass over
a long prompt serves a given answer and a new one. Models that keep no keys and values read everything anew.

All numbers are the model's own, from its logits in float32; changes to heads are whoever's `observe` runs around it.
Cost: a pass over the prompt, a step a token. This module does not know what a head is.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.core.cancellation import CancelToken
from headwise.live.shapes import Spread, Step
from headwise.model import Model, readable
from headwise.studies.answers.decoding import CACHE, Ids

__all__ = ["Said", "State", "begin", "follow", "keeps_logits", "speak", "spread", "steps_of"]

TOP = 12  # tokens of a distribution that are named


@dataclass
class State:
    """A text that was read."""

    ids: Ids
    cache: Any  # keys and values; None where the model keeps none
    logprobs: Tensor  # (vocabulary,) of the next token, float32 on the CPU


@dataclass(frozen=True)
class Said:
    """What the model went on with, and the distribution each token was taken from."""

    ids: Ids
    finished: bool
    before: list[Tensor]  # (vocabulary,) log-probabilities, one a token

    @property
    def logprob(self) -> float:
        """Of all tokens together."""
        return sum(float(row[token]) for row, token in zip(self.before, self.ids, strict=True))


def begin(model: Model, ids: Ids) -> State:
    """Read a prompt."""
    logits, cache = _pass(model, ids, None, 1)
    return State(tuple(ids), cache, logits[-1])


def follow(model: Model, state: State, answer: Ids) -> Tensor:
    """(len(answer), vocabulary): log-probabilities before each token of an answer that is given."""
    rows = [state.logprobs]
    if len(answer) > 1:
        said = answer[:-1]
        if state.cache is None:
            logits, _ = _pass(model, state.ids + said, None, len(said))
        else:
            logits, _ = _pass(model, said, copy.deepcopy(state.cache), len(said))
        rows += list(logits)
    return torch.stack(rows)


def speak(model: Model, state: State, limit: int, ends: Callable[[Ids, int], bool], halt: CancelToken) -> Said:
    """At most `limit` tokens, the likeliest each time; the state is used up."""
    said: list[int] = []
    before: list[Tensor] = []
    finished = False
    logprobs, cache = state.logprobs, state.cache
    while len(said) < limit:
        halt.check()
        token = int(logprobs.argmax())
        if ends(tuple(said), token):
            finished = True
            break
        said.append(token)
        before.append(logprobs)
        halt.report_progress(len(said) / limit)
        if len(said) == limit:
            break
        new = (token,) if cache is not None else state.ids + tuple(said)
        logits, cache = _pass(model, new, cache, 1)
        logprobs = logits[-1]
    return Said(tuple(said), finished, before)


def spread(model: Model, logprobs: Tensor) -> Spread:
    """A distribution as it is shown."""
    top = logprobs.topk(min(TOP, len(logprobs)))
    ids = top.indices.tolist()
    p = top.values.exp().tolist()
    texts = readable(model.tokenizer, ids)
    entropy = -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum()
    return {
        "top": [{"text": text, "id": i, "p": share} for text, i, share in zip(texts, ids, p, strict=True)],
        "rest": max(0.0, 1.0 - sum(p)),
        "entropy": float(entropy),
    }


def steps_of(model: Model, said: Said) -> list[Step]:
    """One a token."""
    texts = readable(model.tokenizer, said.ids)
    return [
        {"text": text, "id": token, "logprob": float(row[token]), "spread": spread(model, row)}
        for text, token, row in zip(texts, said.ids, said.before, strict=True)
    ]


def keeps_logits(model: Model) -> bool:
    """Whether the model can leave out the logits of all but the last tokens."""
    return "logits_to_keep" in inspect.signature(model.hf.forward).parameters


def _pass(model: Model, ids: Ids, cache: Any, keep: int) -> tuple[Tensor, Any]:
    """(keep, vocabulary) log-probabilities after the last tokens, on the CPU, and the keys and values."""
    inputs: dict[str, Any] = {"input_ids": torch.tensor([list(ids)], device=model.device), "use_cache": True}
    if cache is not None:
        inputs[CACHE] = cache
    if keeps_logits(model):
        inputs["logits_to_keep"] = keep
    out = model(**inputs)
    logprobs = out.logits[0, -keep:].float().log_softmax(-1).cpu()
    return logprobs, getattr(out, CACHE, None)
