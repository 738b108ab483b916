"""From typed text to tokens, and from tokens to an answer: prompts and greedy decoding, token by token.

| mode     | the tokens                                                    | the answer ends            |
|----------|---------------------------------------------------------------|----------------------------|
| question | the text as a question, in the prompt format of study `answers` | with its first sentence  |
| chat     | the text as the user's turn, nothing added                    | with the model's turn      |
| text     | the text itself, to be continued                              | with a special token       |

    decoding = decoder.begin([prompt.ids], longest, most_likely)    # one forward pass over the prompt
    logprobs_of(decoding)                                           # (vocabulary,) of the next token
    generate(model, decoding, limit, ends, cancel)                  # greedy decoding
    decoding.fork().teacher_force(answer)                           # the logits before each token of a given answer

Only answers in question mode can be scored: the detector was fitted on answers to that prompt. A prompt over the limit is
refused before any forward pass.

The loop is that of the studies (`studies.decoding`). Here one prompt is answered; every token is reported when it is there,
with the whole distribution it was taken from and the scores of the answer so far; between two tokens it can be cancelled.

Cost: a forward pass over the prompt, one step per token. Head changes are applied by the `observe` around these calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from headwise.core.cancellation import CancelToken
from headwise.core.errors import DataError
from headwise.corpora.prompts import typed_prompt_ids
from headwise.live.answer_scores import AnswerScores
from headwise.live.response_schemas import GeneratedToken, LiveEvent, NextTokens, ScoreSoFar
from headwise.model import Model, readable_tokens
from headwise.studies.answers.endings import ending, ending_ids
from headwise.studies.decoding import Decoding, Ids

MAX_PROMPT_TOKENS = 4096
MAX_CHARACTERS_PER_TOKEN = 32  # on average; longer texts are refused before tokenising
TOP_TOKENS = 12  # shown of a distribution

OnEvent = Callable[[LiveEvent], None]


@dataclass(frozen=True)
class LivePrompt:
    """A tokenised prompt."""

    mode: str
    text: str
    ids: Ids


@dataclass(frozen=True)
class Generation:
    """Generated tokens and the distributions they were taken from."""

    ids: Ids
    finished: bool
    before: list[Tensor]  # (vocabulary,) log-probabilities, one per token
    steps: list[GeneratedToken]  # the same for display
    scores: dict[str, ScoreSoFar]  # of the whole answer

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
    most = max_prompt_tokens(model, reserved, limit)
    if len(text) > most * MAX_CHARACTERS_PER_TOKEN:
        raise DataError(f"the prompt has {len(text):,} characters; the limit is {most:,} tokens: shorten it")
    ids = typed_prompt_ids(model, text, mode, few_shot=few_shot, chat=chat, limit=most + 1)
    if len(ids) > most:
        raise DataError(f"the prompt has more than {most:,} tokens, which is the limit: shorten it")
    return LivePrompt(mode, text, ids)


def ends_of(model: Model, mode: str) -> Callable[[Ids, int], bool]:
    """``ends(so_far, token)``: whether a token ends the answer."""
    if mode == "question":
        return ending(model, numeric=False)
    stops = ending_ids(model)
    return lambda so_far, token: token in stops


def most_likely(logits: Tensor, rows: Sequence[int]) -> Tensor:
    """(line,) tokens from (line, vocabulary) logits."""
    return logits.argmax(-1)


def logprobs_of(decoding: Decoding) -> Tensor:
    """(vocabulary,) log-probabilities of the next token, float32 on the CPU."""
    return decoding.logits[0].log_softmax(-1).cpu()


def generate(
    model: Model, decoding: Decoding, limit: int, ends: Callable[[Ids, int], bool], cancel: CancelToken, *,
    scores: AnswerScores | None = None, on_event: OnEvent | None = None, part: str = "answer",
) -> Generation:  # fmt: skip
    """Continue a prompt that has been read.

    Args:
        model: whose tokenizer names the tokens.
        decoding: of the prompt.
        limit: tokens of the answer at most.
        ends: ``ends(so_far, token)``: whether a token ends the answer.
        cancel: cancels from another thread.
        scores: of the answer so far; None: there are none.
        on_event: called with every token, and at the end.
        part: whose answer it is, for these events.

    Returns:
        The tokens, with what they were taken from.
    """
    tokens: list[int] = []
    before: list[Tensor] = []
    steps: list[GeneratedToken] = []
    finished, found = False, {}
    for step in decoding if limit else ():
        cancel.check()
        token, found = step.tokens[0], scores.step(step) if scores is not None else {}
        if ends(tuple(tokens), token):
            finished = True
            break
        logprobs = logprobs_of(decoding)
        tokens.append(token)
        before.append(logprobs)
        steps.append(_described(model, token, logprobs, found))
        cancel.report_progress(len(tokens) / limit)
        if on_event is not None:
            on_event({"event": "token", "part": part, "index": len(tokens) - 1, "limit": limit, **steps[-1]})
        if len(tokens) == limit:
            break
    if on_event is not None and limit:
        on_event({"event": "answered", "part": part, "finished": finished, "scores": found})
    return Generation(tuple(tokens), finished, before, steps, found)


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


def _described(model: Model, token: int, logprobs: Tensor, scores: dict[str, ScoreSoFar]) -> GeneratedToken:
    """A token with its distribution."""
    (text,) = readable_tokens(model.tokenizer, [token])
    return {
        "text": text, "id": token, "logprob": float(logprobs[token]), "distribution": next_tokens(model, logprobs),
        "scores": scores,
    }  # fmt: skip


def supports_logits_to_keep(model: Model) -> bool:
    """Whether the model can skip the logits of all but the last tokens."""
    return "logits_to_keep" in inspect.signature(model.hf.forward).parameters
