"""Prompts of equal length, so that maps can be averaged and rows compared: texts cut to their first T tokens.

One prompt a text, the registers in turn. Where there are fewer texts than prompts are wanted, the texts' further
stretches of T tokens follow (less independent than as many texts: the number of texts is kept beside that of prompts).
Every stretch begins with the tokens that the tokenizer puts in front of a text. T is what was asked for; else the first
of 128, 64, 32 and 16 at which there are enough prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.core.errors import DataError, StudyError
from headwise.corpora import Example, Passages
from headwise.model import Model
from headwise.studies.patterns.spec import MIN_PROMPTS, MIN_TOKENS, PatternsOptions

LENGTHS = (128, 64, 32, MIN_TOKENS)


@dataclass(frozen=True)
class Prompts:
    """What both models are shown."""

    examples: tuple[Example, ...]  # all of `tokens` tokens
    tokens: int
    texts: int  # how many different texts they were cut from
    shown: Example  # the prompt whose maps are kept whole


def cut_prompts(model: Model, passages: Passages, options: PatternsOptions, context: int | None) -> Prompts:
    """The prompts, and the one to be shown; `context`: the most tokens that every subject takes."""
    shown = Example("shown", "shown", tuple(model.ids(options.prompt)))
    _refuse_short(shown, context, options)
    texts = [(item.id, item.register, _body(model, item.text)) for item in passages.first(len(passages)).items]
    prefix = _prefix(model)
    lengths = [length for length in LENGTHS if context is None or length <= context]
    if options.tokens is not None:
        _refuse_long(model, options.tokens, context)
        lengths = [options.tokens]
    tries = [_stretches(texts, prefix, length, options.prompts) for length in lengths]
    for least in (options.prompts, MIN_PROMPTS):
        for length, found in zip(lengths, tries, strict=True):
            if len(found) >= least:
                own = len({example.id.rpartition(":")[0] or example.id for example in found})
                return Prompts(tuple(found), length, own, shown)
    most = max((len(found) for found in tries), default=0)
    raise DataError(
        f"{passages.name} gives {most} prompts of {lengths[-1] if lengths else MIN_TOKENS} tokens, and patterns need at "
        f"least {MIN_PROMPTS} to tell how sure they are; give more or longer texts"
    )


def _stretches(
    texts: Sequence[tuple[str, str, tuple[int, ...]]], prefix: tuple[int, ...], length: int, wanted: int
) -> list[Example]:
    """The first stretch of every text that is long enough, then the second of each, and so on."""
    step = length - len(prefix)
    found: list[Example] = []
    turn = 0
    while step > 0 and len(found) < wanted:
        here = [(name, kind, body[turn * step : (turn + 1) * step]) for name, kind, body in texts]
        here = [one for one in here if len(one[2]) == step]
        if not here:
            break
        found += [Example(f"{name}:{turn + 1}" if turn else name, kind, prefix + cut) for name, kind, cut in here]
        turn += 1
    return found[:wanted]


def _prefix(model: Model) -> tuple[int, ...]:
    """What the tokenizer puts in front of every text."""
    tokenizer = model.tokenizer
    assert tokenizer is not None  # model.ids has refused otherwise
    begun, ended = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    for length in range(len(begun)):
        if begun[length : length + len(ended)] == ended:
            return tuple(begun[:length])
    return ()


def _body(model: Model, text: str) -> tuple[int, ...]:
    """A text's own tokens, as far as one context reaches."""
    prefix = _prefix(model)
    ids = tuple(model.ids(text, limit=model.card.max_positions))
    return ids[len(prefix) :] if ids[: len(prefix)] == prefix else ids


def _refuse_short(shown: Example, context: int | None, options: PatternsOptions) -> None:
    if len(shown.ids) < 2:
        raise DataError(f"the prompt {options.prompt!r} has one token, and a map of one token shows nothing; give more")
    if context is not None and len(shown.ids) > context:
        raise DataError(
            f"the prompt to be shown has {len(shown.ids)} tokens, and the smaller context of the two models is {context}; "
            "shorten it"
        )


def _refuse_long(model: Model, tokens: int, context: int | None) -> None:
    if context is not None and tokens > context:
        raise StudyError(
            f"prompts of {tokens} tokens were asked for (tokens={tokens}), and the context of {model.id} and what it is "
            f"compared with is {context}; give at most that"
        )
