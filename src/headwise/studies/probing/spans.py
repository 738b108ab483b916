"""The exact answers of the study `answers`, as token spans: label-blind, or the published way.

The published way may ask a language model behind an endpoint for the exact answer of wrong answers, as the paper does;
without one, the label-blind rule stands in for it.

Cost: one decoding a token. This module does not know a model's weights; it needs its tokenizer.
"""

from __future__ import annotations

import json
from typing import Any

import xarray as xr

from headwise.core.dims import EXAMPLE
from headwise.corpora import (
    BLIND,
    CORRECT,
    PUBLISHED,
    Endpoint,
    ask_all,
    decode_ids,
    exact_answer,
    find_span,
    token_span,
)
from headwise.model import Model

__all__ = ["Span", "exact_spans", "ids_of"]

Span = tuple[int, int]  # first and last token of the answer, both inside
ASKED = (
    "Extract the exact answer from the long answer: only the words that answer the question, copied as they stand there. "
    "If there is no answer, write NO ANSWER.\n\nQuestion: {question}\nLong answer: {answer}\nExact answer:"
)


def exact_spans(
    model: Model, answers: xr.Dataset, way: str = BLIND, extractor: Endpoint | None = None
) -> list[Span | None]:
    """One span an answer; None where there is no exact answer."""
    texts = [decode_ids(model.tokenizer, ids_of(ids)) for ids in answers["answer_ids"].values]
    told = _told(answers, texts, extractor) if way == PUBLISHED and extractor is not None else {}
    found: list[Span | None] = []
    for row, text in enumerate(texts):
        one = answers.isel({EXAMPLE: row})
        said = text.strip()
        golds = [str(one["matched"].item()), *json.loads(str(one["golds"].item()))]
        if row in told:
            place = find_span(told[row], said)
        else:
            place = exact_answer(
                str(one["question"].item()), said, way, label=str(one["label"].item()), golds=golds
            )  # fmt: skip
        before = len(text) - len(text.lstrip())
        ids = ids_of(one["answer_ids"].item())
        found.append(
            None if place is None else token_span(model.tokenizer, ids, before + place[0], before + place[1])
        )  # fmt: skip
    return found


def _told(answers: xr.Dataset, texts: list[str], extractor: Endpoint) -> dict[int, str]:
    """What the endpoint extracts from the answers that are not correct, by row."""
    rows = [row for row, label in enumerate(answers["label"].values) if str(label) != CORRECT]
    chats: list[Any] = [
        [{"role": "user", "content": ASKED.format(question=answers["question"].values[row], answer=texts[row].strip())}]
        for row in rows
    ]
    replies = ask_all(extractor, chats, temperature=0.0, limit=32, seed=0) if rows else []
    return dict(zip(rows, (reply.strip().strip("\"'.") for reply in replies), strict=True))


def ids_of(text: Any) -> tuple[int, ...]:
    """Token ids as the study `answers` writes them."""
    return tuple(int(part) for part in str(text).split())
