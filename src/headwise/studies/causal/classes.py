r"""Which class does a predicted token belong to? Six classes, by simple rules on decoded tokens; the first that holds.

| class          | the token                                                                                        |
|----------------|--------------------------------------------------------------------------------------------------|
| delimiter      | consists of punctuation or line ends                                                             |
| number         | contains a digit                                                                                 |
| sentence_start | follows the end of a sentence or line (. ! ? or a line end, quotes and brackets ignored)         |
| repeated       | occurred earlier in the same prompt                                                              |
| name           | begins with a capital letter                                                                     |
| other          | anything else                                                                                    |

A token is a piece of a word in most vocabularies: of a name in several pieces only the first is one by this rule. The tokens
of the gold answer to a question are a class of their own (`ANSWER`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.corpora.sequences import is_delimiter

TEXT_CLASSES = ("repeated", "name", "number", "delimiter", "sentence_start", "other")
ANSWER = "answer"  # the tokens of a gold answer, after its question
CLASSES = (*TEXT_CLASSES, ANSWER)
SENTENCE_END = (".", "!", "?", "\n")
CLOSING = "\"'”’)]*_ \t"


def classify(ids: Sequence[int], texts: Sequence[str]) -> NDArray[np.int64]:
    r"""The class of every token as an index of `CLASSES`; -1 for the first token, which nothing predicts.

    >>> words = ["Anna", " saw", " Bob", ".", " She", " saw", " 3", " boats", "\n"]
    >>> ids = [words.index(word) for word in words]
    >>> [CLASSES[index] for index in classify(ids, words)[1:]]
    ['other', 'name', 'delimiter', 'sentence_start', 'repeated', 'number', 'other', 'delimiter']
    """
    found = np.full(len(ids), -1, dtype=np.int64)
    seen: set[int] = set()
    for place, (token, text) in enumerate(zip(ids, texts, strict=True)):
        if place:
            found[place] = CLASSES.index(_class_of(text, texts[place - 1], repeated=token in seen))
        seen.add(token)
    return found


def _class_of(text: str, before: str, *, repeated: bool) -> str:
    if is_delimiter(text):
        return "delimiter"
    if any(letter.isdigit() for letter in text):
        return "number"
    if before.rstrip(CLOSING).endswith(SENTENCE_END):
        return "sentence_start"
    if repeated:
        return "repeated"
    return "name" if text.strip()[:1].isupper() else "other"
