"""Where a question with its answer is probed: the span of the exact answer, and fifteen tokens around it.

| name                        | token                                                        |
|-----------------------------|--------------------------------------------------------------|
| last_q                      | the last of the prompt                                       |
| first_answer, second_answer | the first two of the answer                                  |
| exact_answer_before_first   | before the exact answer                                      |
| exact_answer_first, _last   | the exact answer's own first and last                        |
| exact_answer_after_last     | after it; the end where it ends the answer                   |
| -8 ... -1                   | counted from the end                                         |

In an answer of fewer than eight tokens the first of the last eight are in the prompt, and in one of a single token
second_answer is its end: such rows are counted per position (`in_prompt`, `moved`), so that a map can mark them.
What ended an answer (end of turn) is not part of it, so -1 is the last token that was generated.

Exact answers are found label-blind, or the published way (`corpora.extraction`). The latter may ask a language model behind
an endpoint for the exact answer of wrong answers, as the paper does; without one, the label-blind rule replaces it.

After Orgad et al. (arXiv 2410.02707). Only the model's tokenizer is used; cost: one decoding per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import SITE, TOKEN
from headwise.core.parsing import parse_attribute
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

__all__ = [
    "EXACT", "EXACT_COLUMNS", "LAST", "LAST_COLUMN", "POSITIONS", "Positions", "Span", "best_layer", "exact_spans",
    "parse_ids", "positions_of",
]  # fmt: skip

BEFORE, FIRST, LAST, AFTER = (f"exact_answer_{name}" for name in ("before_first", "first", "last", "after_last"))
EXACT = (BEFORE, FIRST, LAST, AFTER)
FROM_END = tuple(str(-count) for count in range(8, 0, -1))
POSITIONS = ("last_q", "first_answer", "second_answer", *EXACT, *FROM_END)
EXACT_COLUMNS = [POSITIONS.index(name) for name in EXACT]
LAST_COLUMN = POSITIONS.index(LAST)

Span = tuple[int, int]  # first and last token of the exact answer, counted from the answer's first
EXTRACTION_PROMPT = (
    "Extract the exact answer from the long answer: only the words that answer the question, copied as they stand there. "
    "If there is no answer, write NO ANSWER.\n\nQuestion: {question}\nLong answer: {answer}\nExact answer:"
)


@dataclass(frozen=True)
class Positions:
    """Indices of the fifteen tokens of each example."""

    index: NDArray[np.int64]  # (example, position), counted from the first token of the prompt
    in_prompt: NDArray[np.int64]  # (position,): examples in which a token counted from the end is in the prompt
    moved: NDArray[np.int64]  # (position,): examples without such a token, where the nearest end of the text was taken


def positions_of(prompts: Sequence[int], answers: Sequence[int], spans: Sequence[Span]) -> Positions:
    """For prompts and answers of so many tokens, and exact answers at [first, last] of the answer's tokens.

    >>> found = positions_of([10], [3], [(1, 1)])
    >>> dict(zip(POSITIONS, found.index[0].tolist()))["exact_answer_after_last"], found.in_prompt.tolist()[7:]
    (12, [1, 1, 1, 1, 1, 0, 0, 0])
    """
    rows, moved, in_prompt = [], [], []
    for prompt, answer, (first, last) in zip(prompts, answers, spans, strict=True):
        end = prompt + answer - 1
        wanted = [prompt - 1, prompt, prompt + 1]
        wanted += [prompt + first - 1, prompt + first, prompt + last, prompt + last + 1]
        wanted += [end + 1 + int(name) for name in FROM_END]
        rows.append([max(0, min(index, end)) for index in wanted])
        moved.append([index > end or index < 0 for index in wanted])
        in_prompt.append([name in FROM_END and index < prompt for name, index in zip(POSITIONS, wanted, strict=True)])
    return Positions(
        np.array(rows, dtype=np.int64).reshape(-1, len(POSITIONS)),
        np.array(in_prompt, dtype=np.int64).reshape(-1, len(POSITIONS)).sum(axis=0),
        np.array(moved, dtype=np.int64).reshape(-1, len(POSITIONS)).sum(axis=0),
    )


def exact_spans(
    model: Model, answers: xr.Dataset, method: str = BLIND, extractor: Endpoint | None = None
) -> list[Span | None]:
    """The exact answers of the study `answers` as token spans, one per answer; None where there is no exact answer."""
    texts = [decode_ids(model.tokenizer, parse_ids(ids)) for ids in answers["answer_ids"].values]
    extracted = _extract(answers, texts, extractor) if method == PUBLISHED and extractor is not None else {}
    found: list[Span | None] = []
    columns = {name: answers[name].values for name in ("question", "label", "matched", "golds", "answer_ids")}
    for row, text in enumerate(texts):
        one = {name: str(values[row]) for name, values in columns.items()}
        answer = text.strip()
        golds = [one["matched"], *parse_attribute(one, "golds", list[str])]
        if row in extracted:
            span = find_span(extracted[row], answer)
        else:
            span = exact_answer(one["question"], answer, method, label=one["label"], golds=golds)
        blanks = len(text) - len(text.lstrip())
        ids = parse_ids(one["answer_ids"])
        found.append(
            None if span is None else token_span(model.tokenizer, ids, blanks + span[0], blanks + span[1])
        )  # fmt: skip
    return found


def _extract(answers: xr.Dataset, texts: list[str], extractor: Endpoint) -> dict[int, str]:
    """What the endpoint extracts from the answers that are not correct, by row."""
    rows = [row for row, label in enumerate(answers["label"].values) if str(label) != CORRECT]
    prompts = [
        EXTRACTION_PROMPT.format(question=answers["question"].values[row], answer=texts[row].strip()) for row in rows
    ]
    chats: list[Any] = [[{"role": "user", "content": prompt}] for prompt in prompts]
    replies = ask_all(extractor, chats, temperature=0.0, limit=32, seed=0) if rows else []
    return dict(zip(rows, (reply.strip().strip("\"'.") for reply in replies), strict=True))


def best_layer(probing: xr.Dataset, site: str) -> int:
    """The layer at which wrong answers are separated best at the last token of the exact answer."""
    return int(np.nanargmax(probing["auroc"].sel({SITE: site, TOKEN: LAST}).values))


def parse_ids(text: Any) -> tuple[int, ...]:
    """Token ids as the study `answers` writes them."""
    return tuple(int(part) for part in str(text).split())
