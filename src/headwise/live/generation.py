"""From typed text to tokens, and from tokens to an answer: prompts, prefill, teacher forcing and greedy decoding.

| mode     | the tokens                                                    | the answer ends            |
|----------|---------------------------------------------------------------|----------------------------|
| question | the text as a question, in the prompt format of study `answers` | with its first sentence  |
| chat     | the text as the user's turn, nothing added                    | with the model's turn      |
| text     | the text itself, to be continued                              | with a special token       |

    state = prefill(model, prompt.ids)              # one forward pass over the prompt
    state.logprobs                                  # (vocabulary,) log-probabilities of the next token
    teacher_force(model, state, answer)             # (token, vocabulary): before each token of a given answer
    generate(model, state, limit, ends, cancel)     # greedy decoding

Only answers in question mode can be scored: the detector was fitted on answers to that prompt. A prompt over the limit is
refused before any forward pass. The prompt's KV cache is copied before each use, so one prefill serves a given answer and a
new one; models without a KV cache read all tokens again at each step.

`studies.decoding` answers many prompts at once and returns tokens; here one prompt is answered with the whole distribution
before every token, and can be cancelled between two tokens.

Cost: a forward pass over the prompt, one step per token. Head changes are applied by the `observe` around these calls.
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
from headwise.core.errors import DataError, did_you_mean
from headwise.corpora import Question, has_chat_template, question_prompt
from headwise.live.response_schemas import GeneratedToken, NextTokens
from headwise.model import Model, readable_tokens
from headwise.studies.answers.endings import ending, ending_ids
from headwise.studies.decoding import CACHE, Ids

PROMPT_MODES = ("question", "chat", "text")
MAX_PROMPT_TOKENS = 4096
MAX_CHARACTERS_PER_TOKEN = 32  # on average; longer texts are refused before tokenising
TOP_TOKENS = 12  # shown of a distribution


@dataclass(frozen=True)
class LivePrompt:
    """A tokenised prompt."""

    mode: str
    text: str
    ids: Ids


@dataclass
class DecoderState:
    """A prompt after its forward pass."""

    ids: Ids
    cache: Any  # KV cache; None where the model has none
    logprobs: Tensor  # (vocabulary,) of the next token, float32 on the CPU


@dataclass(frozen=True)
class Generation:
    """Generated tokens and the distributions they were taken from."""

    ids: Ids
    finished: bool
    before: list[Tensor]  # (vocabulary,) log-probabilities, one per token

    @property
    def logprob(self) -> float:
        """Of all tokens together."""
        return sum(float(row[token]) for row, token in zip(self.before, self.ids, strict=True))


def max_prompt_tokens(model: Model, reserved: int, limit: int = MAX_PROMPT_TOKENS) -> int:
    """The maximum number of prompt tokens.

    Args:
        model: whose context it has to fit into.
        reserved: tokens that are reserved for the answer.
        limit: upper bound in any case.

    Returns:
        Tokens.

    Examples:
        >>> max_prompt_tokens(model, reserved=20), max_prompt_tokens(model, reserved=20, limit=100)
        (300, 100)
    """
    context = model.card.max_positions
    return limit if context is None else min(limit, context - reserved)


def read_prompt(
    model: Model, text: str, mode: str, *, reserved: int, limit: int = MAX_PROMPT_TOKENS, few_shot: int | None = None,
    chat: bool | None = None,
) -> LivePrompt:  # fmt: skip
    """Tokenise a text; `few_shot` and `chat` describe the atlas's prompt format."""
    if mode not in PROMPT_MODES:
        raise DataError(f"{mode!r} is no prompt mode. {did_you_mean(mode, PROMPT_MODES)}")
    if not text.strip():
        raise DataError("the prompt is empty; type a question or a text")
    if mode == "chat" and not has_chat_template(model):
        raise DataError(f"{model.id} has no chat template; choose the mode question or text")
    most = max_prompt_tokens(model, reserved, limit)
    if len(text) > most * MAX_CHARACTERS_PER_TOKEN:
        raise DataError(f"the prompt has {len(text):,} characters; the limit is {most:,} tokens: shorten it")
    ids = tuple(model.ids(_model_input(model, text, mode, few_shot, chat), limit=most + 1))
    if len(ids) > most:
        raise DataError(f"the prompt has more than {most:,} tokens, which is the limit: shorten it")
    return LivePrompt(mode, text, ids)


def ends_of(model: Model, mode: str) -> Callable[[Ids, int], bool]:
    """``ends(so_far, token)``: whether a token ends the answer."""
    if mode == "question":
        return ending(model, numeric=False)
    stops = ending_ids(model)
    return lambda so_far, token: token in stops


def prefill(model: Model, ids: Ids) -> DecoderState:
    """One forward pass over a prompt."""
    logits, cache = _forward(model, ids, None, 1)
    return DecoderState(tuple(ids), cache, logits[-1])


def teacher_force(model: Model, state: DecoderState, answer: Ids) -> Tensor:
    """(len(answer), vocabulary): log-probabilities before each token of a given answer."""
    rows = [state.logprobs]
    if len(answer) > 1:
        given = answer[:-1]
        if state.cache is None:
            logits, _ = _forward(model, state.ids + given, None, len(given))
        else:
            logits, _ = _forward(model, given, copy.deepcopy(state.cache), len(given))
        rows += list(logits)
    return torch.stack(rows)


def generate(
    model: Model, state: DecoderState, limit: int, ends: Callable[[Ids, int], bool], cancel: CancelToken
) -> Generation:
    """At most `limit` tokens by greedy decoding; the state's cache is consumed."""
    tokens: list[int] = []
    before: list[Tensor] = []
    finished = False
    logprobs, cache = state.logprobs, state.cache
    while len(tokens) < limit:
        cancel.check()
        token = int(logprobs.argmax())
        if ends(tuple(tokens), token):
            finished = True
            break
        tokens.append(token)
        before.append(logprobs)
        cancel.report_progress(len(tokens) / limit)
        if len(tokens) == limit:
            break
        new = (token,) if cache is not None else state.ids + tuple(tokens)
        logits, cache = _forward(model, new, cache, 1)
        logprobs = logits[-1]
    return Generation(tuple(tokens), finished, before)


def next_tokens(model: Model, logprobs: Tensor) -> NextTokens:
    """A next-token distribution for display."""
    top = logprobs.topk(min(TOP_TOKENS, len(logprobs)))
    ids = top.indices.tolist()
    p = top.values.exp().tolist()
    texts = readable_tokens(model.tokenizer, ids)
    entropy = -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum()
    return {
        "top": [{"text": text, "id": i, "p": share} for text, i, share in zip(texts, ids, p, strict=True)],
        "rest": max(0.0, 1.0 - sum(p)),
        "entropy": float(entropy),
    }


def steps_of(model: Model, generation: Generation) -> list[GeneratedToken]:
    """Every generated token with its distribution."""
    texts = readable_tokens(model.tokenizer, generation.ids)
    return [
        {"text": text, "id": token, "logprob": float(row[token]), "distribution": next_tokens(model, row)}
        for text, token, row in zip(texts, generation.ids, generation.before, strict=True)
    ]


def supports_logits_to_keep(model: Model) -> bool:
    """Whether the model can skip the logits of all but the last tokens."""
    return "logits_to_keep" in inspect.signature(model.hf.forward).parameters


def _model_input(
    model: Model, text: str, mode: str, few_shot: int | None, chat: bool | None
) -> str | list[dict[str, str]]:
    if mode == "text":
        return text
    if mode == "chat":
        return [{"role": "user", "content": text}]
    chat = has_chat_template(model) if chat is None else chat
    shots = (0 if chat else 5) if few_shot is None else few_shot
    return question_prompt(Question("asked", text.strip(), ()), few_shot=shots, chat=chat)


def _forward(model: Model, ids: Ids, cache: Any, keep: int) -> tuple[Tensor, Any]:
    """(keep, vocabulary) log-probabilities after the last tokens, on the CPU, and the KV cache."""
    inputs: dict[str, Any] = {"input_ids": torch.tensor([list(ids)], device=model.device), "use_cache": True}
    if cache is not None:
        inputs[CACHE] = cache
    if supports_logits_to_keep(model):
        inputs["logits_to_keep"] = keep
    out = model(**inputs)
    logprobs = out.logits[0, -keep:].float().log_softmax(-1).cpu()
    return logprobs, getattr(out, CACHE, None)
