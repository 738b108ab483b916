"""Which tokens of an answer carry what it says? A rule that anybody can repeat; the published way asks a large model.

    content    tokens of words that say something: neither article, pronoun, auxiliary, preposition nor filler ("The answer
               is 7." -> "7"); where there are none, all tokens with a letter or a digit; where there are none, all
    all        every token
    first      the first token
    last       the last token with a letter or a digit

A token belongs to every word that it has a character of. This module does not know what is right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwise.core.errors import DataError, did_you_mean

__all__ = ["RULES", "key_places"]

RULES = {
    "content": "the tokens of content words",
    "all": "all tokens",
    "first": "the first token",
    "last": "the last token with a letter or a digit",
}
EMPTY = frozenset(
    "a an the this that these those it its he she they them his her him their i me my we us our you your who whom which "
    "what is are was were be been being am do does did has have had will would can could may might must should shall of in "
    "on at to by for from with as than then so there here and or but if also very just only answer a: q: sure okay because "
    "since s t re ve ll".split()
)
WORD = re.compile(r"\w+")


def key_places(pieces: Sequence[str], rule: str = "content") -> list[int]:
    """The places of the key tokens, from the text of every token.

    >>> key_places(["The", " answer", " is", " Par", "is", "."]), key_places([" it"]), key_places([])
    ([3, 4], [0], [])
    """
    if rule not in RULES:
        raise DataError(f"there is no rule {rule!r} for key tokens. {did_you_mean(rule, RULES)}")
    every = list(range(len(pieces)))
    spoken = [place for place in every if any(map(str.isalnum, pieces[place]))] or every
    if rule == "content":
        return [place for place in spoken if place in _of_content_words(pieces)] or spoken
    return {"all": every, "first": every[:1], "last": spoken[-1:]}[rule]


def _of_content_words(pieces: Sequence[str]) -> set[int]:
    text, owner = "".join(pieces), [place for place, piece in enumerate(pieces) for _ in piece]
    words = [match for match in WORD.finditer(text) if match[0].casefold() not in EMPTY]
    return {owner[at] for match in words for at in range(*match.span())}
