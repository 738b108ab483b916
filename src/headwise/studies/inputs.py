"""What is the model shown? The user's own texts, questions, relations and steps, or the packaged ones, read on demand.

`cut_prompts` makes prompts of equal length T: the first T tokens of each text, the registers in turn, then further stretches
of T tokens where there are too few texts (less independent, so the number of texts is recorded too). Every prompt begins with
the tokens that the tokenizer puts in front of a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import xarray as xr

from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import (
    Example,
    Passages,
    Questions,
    Relations,
    Steps,
    find_questions,
    packaged_passages,
    packaged_relations,
    packaged_steps,
    read_passages,
    read_relations,
    read_steps,
)
from headwise.model import Model, StoredModel

PROMPT_TOKENS = (128, 64, 32, 16)  # the first of these at which there are enough prompts
MIN_PROMPTS = 6  # with fewer, no change could pass a paired test


@dataclass(frozen=True)
class StudyInputs:
    """The inputs of a build. A source is a collection, a file, a known name, or None for the packaged collection."""

    passages_source: str | Path | Passages | None = None
    questions_source: str | Path | Questions | None = None
    limit: int | None = None  # questions, sampled evenly over topics; None: all
    relations_source: str | Path | Relations | None = None  # pairs of words
    steps_source: str | Path | Steps | None = None  # questions in steps, each labelled with a cognitive function
    reference: str | Path | Model | None = (
        None  # the model to compare with; None: the adapter shipped for this one, if any
    )
    maps: Mapping[str, xr.Dataset] = field(default_factory=dict)  # Datasets of the studies that this one depends on

    @cached_property
    def passages(self) -> Passages:
        """The texts."""
        if isinstance(self.passages_source, Passages):
            return self.passages_source
        return packaged_passages() if self.passages_source is None else read_passages(self.passages_source)

    @cached_property
    def questions(self) -> Questions:
        """The questions, at most ``limit``."""
        found = find_questions(self.questions_source)
        return found if self.limit is None else found.sample(self.limit, seed=0)

    @cached_property
    def relations(self) -> Relations:
        """The relations."""
        if isinstance(self.relations_source, Relations):
            return self.relations_source
        return packaged_relations() if self.relations_source is None else read_relations(self.relations_source)

    @cached_property
    def steps(self) -> Steps:
        """The steps."""
        if isinstance(self.steps_source, Steps):
            return self.steps_source
        return packaged_steps() if self.steps_source is None else read_steps(self.steps_source)

    def with_files_read(self) -> StudyInputs:
        """The same with the user's files read, for a process that cannot see them."""
        return replace(
            self,
            passages_source=None if self.passages_source is None else self.passages,
            questions_source=None if self.questions_source is None else find_questions(self.questions_source),
            relations_source=None if self.relations_source is None else self.relations,
            steps_source=None if self.steps_source is None else self.steps,
        )


@dataclass(frozen=True)
class Prompts:
    """Prompts of equal length."""

    examples: tuple[Example, ...]  # all of `tokens` tokens
    tokens: int
    texts: int  # number of different texts they were cut from


def cut_prompts(model: Model, passages: Passages, tokens: int | None, prompts: int, context: int | None) -> Prompts:
    """So many prompts, cut from texts.

    Args:
        model: its tokenizer is used.
        passages: the texts.
        tokens: per prompt; None: the first of `PROMPT_TOKENS` at which there are enough prompts.
        prompts: how many; fewer, but at least `MIN_PROMPTS`, where the texts do not suffice.
        context: the most tokens that all models accept; None: any.
    """
    if tokens is not None and context is not None and tokens > context:
        raise StudyError(
            f"prompts of {tokens} tokens were asked for (tokens={tokens}), and the context of {model.id} and what it is "
            f"compared with is {context}; give at most that"
        )
    lengths = (
        [length for length in PROMPT_TOKENS if context is None or length <= context] if tokens is None else [tokens]
    )
    prefix = _prefix(model)
    texts = []
    for item in passages.first(len(passages)).items:  # the registers in turn
        ids = tuple(model.ids(item.text, limit=model.card.max_positions))
        texts.append((item.id, item.register, ids[len(prefix) :] if ids[: len(prefix)] == prefix else ids))
    tries = [_stretches(texts, prefix, length, prompts) for length in lengths]
    for wanted in (prompts, MIN_PROMPTS):
        for length, found in zip(lengths, tries, strict=True):
            if len(found) >= wanted:
                own = len({example.id.rpartition(":")[0] or example.id for example in found})
                return Prompts(tuple(found), length, own)
    most, shortest = max((len(found) for found in tries), default=0), lengths[-1] if lengths else PROMPT_TOKENS[-1]
    raise DataError(
        f"{passages.name} gives {most} prompt{'s' * (most != 1)} of {shortest} tokens, and a paired test needs at "
        f"least {MIN_PROMPTS}; give more or longer texts"
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


def require_loaded(model: Model | StoredModel, study: str) -> None:
    """Refuse a model of which only the weights were opened, where a study runs it."""
    if not isinstance(model, Model):
        raise StudyError(f"{study} runs the model, and {model.id} was only opened; load it.")


def origin_of(maps: xr.Dataset, study: str, given: Relations | Steps) -> Provenance:
    """The provenance of the maps that a study is made from; refused where they are of other data than is given now."""
    origin = Provenance.from_attrs(maps.attrs)
    if origin.data.get("digest") != given.digest:
        raise DataError(
            f"the map of {study} was made from {origin.data.get('name')} ({origin.data.get('digest')}), and these are "
            f"{given.name} ({given.digest}); give the same data, or measure the map again with --redo {study}"
        )
    return origin


MIN_ANSWERS_PER_CLASS = 20  # wrong and correct ones: with fewer, nothing is compared


def require_both_classes(wrong: int, correct: int, total: int, minimum: int = MIN_ANSWERS_PER_CLASS) -> None:
    """Refuse answers of which too few are wrong, or too few correct.

    >>> require_both_classes(0, 40, 40, 20)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    headwise.core.errors.DataError: none of the 40 answers is wrong, and at least 20 wrong answers are needed; give more ...
    """
    for what, count, other in (("wrong", wrong, "harder"), ("correct", correct, "easier")):
        if count < minimum:
            found = f"only {count} of the {total} answers {'is' if count == 1 else 'are'}" if count else ""
            raise DataError(
                f"{found or f'none of the {total} answers is'} {what}, and at least {minimum} {what} answers are needed; give "
                f"more questions, or {other} ones if the model answers them, and check --one-means if the labels are yours."
            )
