"""The span of the exact answer in characters and in tokens: the tokens at which truthfulness probes read.

| method      | correct answers                     | wrong answers                                    |
|-------------|-------------------------------------|--------------------------------------------------|
| blind       | `extraction.extract`                | the same                                         |
| published   | the position of the right answer    | an extraction (theirs: by a language model)      |

The published method (Orgad et al., arXiv 2410.02707) leaks the label, because spans of wrong and of correct answers are
found by different rules. The probing study measures the size of this leak.

The token span is the shortest window of tokens whose text contains the answer. Byte-level tokens may end inside a
character and include the space before a word, so the text is decoded token by token from the beginning, without
incomplete characters, and a token covers the characters it adds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwise.corpora.extraction import extract
from headwise.corpora.matching import CORRECT
from headwise.corpora.normalisation import words

__all__ = ["BLIND", "METHODS", "PUBLISHED", "decode_ids", "exact_answer", "find_span", "token_span"]

Span = tuple[int, int]

BLIND, PUBLISHED = "blind", "published"
METHODS = (BLIND, PUBLISHED)
_INCOMPLETE = "\ufffd"  # a decoder's replacement for incomplete characters
_PIECE = re.compile(r"[^\W_]+(?:['’.,][^\W_]+)*")


def exact_answer(
    question: str, answer: str, method: str = BLIND, *, label: str = "", golds: Sequence[str] = ()
) -> Span | None:
    """Characters [start, stop) of `answer`, or None. Only the published method uses `label` and `golds`.

    >>> exact_answer("Who wrote Emma?", "Emma was written by Jane Austen in 1815.")
    (20, 31)
    """
    if method == PUBLISHED and label == CORRECT:
        found = next((span for gold in golds if gold and (span := find_span(gold, answer))), None)
        if found is not None:
            return found
    return extract(question, answer)


def find_span(wanted: str, answer: str) -> Span | None:
    """The characters of `answer` that match a text literally, else by its normalised words (see `normalisation`)."""
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
    """First and last token (inclusive) of the shortest window that contains characters [start, stop) of the text.

    The text is `decode_ids` of all `ids`.
    """
    ends, incomplete = _ends(tokenizer, ids)
    first = next(index for index, end in enumerate(ends) if end > start)
    while first > 0 and ends[first - 1] == start and incomplete[first - 1]:  # the character begins in the token before
        first -= 1
    last = next((index for index in range(first, len(ids)) if ends[index] >= stop), len(ids) - 1)
    return first, last


def decode_ids(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of all tokens, special ones included, nothing stripped."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _ends(tokenizer: Any, ids: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Per token: the number of complete characters up to it, and whether an incomplete one follows."""
    ends, incomplete = list[int](), list[bool]()
    for count in range(1, len(ids) + 1):
        so_far = decode_ids(tokenizer, ids[:count])
        complete = so_far.rstrip(_INCOMPLETE)
        ends.append(len(complete))
        incomplete.append(len(complete) < len(so_far))
    ends[-1:] = [len(decode_ids(tokenizer, ids))]
    return ends, incomplete
