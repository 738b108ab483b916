"""The Schema of the answers: what was asked, what was said, how it was labelled and why.

This file does not know how they are measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import EXAMPLE

__all__ = ["ANSWERS"]

_TEXTS = (
    "question",
    "answer",
    "gold",  # the right answer to show
    "golds",  # all that count as right, a JSON list
    "label",  # correct, wrong or refused
    "rule",  # what decided the label
    "matched",  # the right answer that the rule found
    "topic",
    "prompt_ids",  # token ids, decimal, separated by blanks
    "answer_ids",
)
_NUMBERS = {
    "difficulty": "int64",
    "prompt_tokens": "int64",
    "answer_tokens": "int64",
    "finished": "bool",  # ended by itself rather than cut
    "logprob_mean": "float32",  # of the answer's tokens; NaN where there are none
    "logprob_min": "float32",
}

ANSWERS = Schema(
    study="answers",
    version=1,
    variables=dict.fromkeys((*_TEXTS, *_NUMBERS), (EXAMPLE,)),
    coords={EXAMPLE: (EXAMPLE,)},
    dtypes=dict.fromkeys((*_TEXTS, EXAMPLE), TEXT) | _NUMBERS,
    attrs=("record", "title"),
)
