"""The exact answer of each answer, as characters and as tokens: where probes of truthfulness read.

Two ways to find it:

| way         | correct answers                    | wrong answers                                    |
|-------------|------------------------------------|--------------------------------------------------|
| label-blind | `extraction.extract`               | the same                                         |
| published   | where the right answer stands      | an extraction (theirs: by a language model)      |

The published way (Orgad et al., arXiv 2410.02707) leaks: a span found by another rule for wrong answers than for correct
ones carries the label. The probing study measures how much that is worth.

The token span is the shortest window of tokens whose text contains the answer. Byte-level tokens may end in the middle
of a letter, and carry the blank before a word; so the text is decoded token by token from the beginning, unfinished
letters left out, and a token covers the characters by which the text grew.

This module needs a tokenizer and no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwise.corpora.extraction import extract
from headwise.corpora.matching import CORRECT
from headwise.corpora.wording import words

__all__ = ["BLIND", "PUBLISHED", "WAYS", "exact_answer", "place_of", "text_of_tokens", "token_span"]

Span = tuple[int, int]

BLIND, PUBLISHED = "blind", "published"
WAYS = (BLIND, PUBLISHED)
_UNFINISHED = "\ufffd"  # what a decoder writes for bytes that are no letter yet
_PIECE = re.compile(r"[^\W_]+(?:['’.,][^\W_]+)*")


def exact_answer(
    question: str, answer: str, way: str = BLIND, *, label: str = "", golds: Sequence[str] = ()
) -> Span | None:
    """Characters [start, stop) of `answer`, or None. `label` and `golds` are for the published way alone.

    >>> exact_answer("Who wrote Emma?", "Emma was written by Jane Austen in 1815.")
    (20, 31)
    """
    if way == PUBLISHED and label == CORRECT:
        found = next((place for gold in golds if gold and (place := place_of(gold, answer))), None)
        if found is not None:
            return found
    return extract(question, answer)


def place_of(wanted: str, answer: str) -> Span | None:
    """Where a text stands: as it is written, else by its plain words (case, accents, articles aside)."""
    literal = re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", answer, re.IGNORECASE)
    if literal is not None:
        return literal.span()
    pieces = list(_PIECE.finditer(answer))
    own = words(wanted)
    for first in range(len(pieces)):
        for last in range(first, min(len(pieces), first + len(own) + 2)):
            if words(answer[pieces[first].start() : pieces[last].end()]) == own:
                return pieces[first].start(), pieces[last].end()
    return None


def token_span(tokenizer: Any, ids: Sequence[int], start: int, stop: int) -> Span:
    """First and last token (both inside) of the shortest window that holds characters [start, stop) of the text.

    The text is that of all `ids`, as `text_of_tokens` has it.
    """
    ends, open_ends = _ends(tokenizer, ids)
    first = next(place for place, end in enumerate(ends) if end > start)
    while first > 0 and ends[first - 1] == start and open_ends[first - 1]:  # the letter began in the token before
        first -= 1
    last = next((place for place in range(first, len(ids)) if ends[place] >= stop), len(ids) - 1)
    return first, last


def text_of_tokens(tokenizer: Any, ids: Sequence[int]) -> str:
    """The whole text, nothing stripped."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _ends(tokenizer: Any, ids: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Characters of the text that are finished after each token, and whether a letter is left unfinished."""
    whole = text_of_tokens(tokenizer, ids)
    ends, open_ends = list[int](), list[bool]()
    for count in range(1, len(ids) + 1):
        so_far = text_of_tokens(tokenizer, ids[:count])
        finished = so_far.rstrip(_UNFINISHED)
        ends.append(len(finished))
        open_ends.append(len(finished) < len(so_far))
    ends[-1:] = [len(whole)]
    return ends, open_ends
