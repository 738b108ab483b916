"""The words of an answer, with what stands around them: the raw material of `extraction`.

A word knows where it stands, which mark is before it, and whether the question has it. Words that carry a sentence but
no answer (articles, copulas, prepositions, adverbs, verbs) are told by lists and by their form. English.

This module does not know which words are the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.corpora.matching import FUNCTION_WORDS
from headwise.corpora.wording import ARTICLES, words

__all__ = ["Word", "announcer", "is_participle", "stem", "words_of"]

STRONG = frozenset("is was are were be equals equal gives called named means titled = :".split())
NAMING = frozenset(("called", "named"))
PREPOSITIONS = frozenset("in on at from for to of as with by under near".split())
ADVERBS = frozenset(
    "actually likely probably also just simply most commonly often usually generally typically traditionally officially"
    " currently originally famously primarily mainly known type kind sort form specific process number name i around"
    " specifically".split()
)
IRREGULAR = frozenset(
    "written made found born built sung won held led known fought sunk given taken drawn spoken worn begun".split()
)
VERBS = frozenset("became become becomes has have had translates represents lies stands stand refers belongs".split())
JOINTS = frozenset("of the de da di del la le van von der and bin al du dos du".split())
REMARKS = frozenset("which who that where because although though while but whose".split())
_PIECE = re.compile(
    r"[-−]?\d+(?:[.,:]\d+)*(?:st|nd|rd|th)?|\b[A-Z]\.(?=\s+[A-Z])|(?:[^\W\d_]\.){2,}(?:[^\W\d_]\b)?|\b(?:St|Dr|Mr|Mrs|Ms|Mt|Jr|Sr)\.|"
    r"[^\W_]+(?:['’&\-][^\W_]+)*|="
)
_MARK = re.compile(r"[,;:!?()\[\]\"“”«»|=—]|\.(?=\s|$)| - | – ")
_QUOTE = re.compile(r"[\"“”«»]")


@dataclass(frozen=True)
class Word:
    """A word and what stands before it."""

    text: str
    start: int
    stop: int
    plain: str  # as `wording` has it, plural and possessive aside
    mark: str  # the mark before it; empty where there is none
    quoted: bool  # a quotation mark stands right before it
    asked: bool  # stands in the question

    @property
    def function(self) -> bool:
        """Whether it carries no answer; an initial ("A.") is no article, and "US" no pronoun."""
        return (
            not self.text.endswith(".")
            and not (self.text.isupper() and len(self.text) > 1)
            and (
                self.plain in FUNCTION_WORDS
                or self.plain in ARTICLES
                or self.plain in ADVERBS
                or self.plain in PREPOSITIONS
            )
        )

    @property
    def new(self) -> bool:
        """Whether it says something that the question does not."""
        return not (self.asked or self.function or self.plain in STRONG or self.plain in VERBS)

    @property
    def capital(self) -> bool:
        return self.text[:1].isupper()


def words_of(text: str, asked: frozenset[str]) -> list[Word]:
    """The words of a text; `asked` are the stems of the question's."""
    found, before = list[Word](), 0
    for match in _PIECE.finditer(text):
        between = text[before : match.start()]
        mark = _MARK.search(between)
        plain = stem(words(match[0])[0]) if words(match[0]) else match[0]
        quoted = bool(_QUOTE.search(between))
        found.append(Word(match[0], *match.span(), plain, mark[0] if mark else "", quoted, plain in asked))
        before = match.end()
    return found


def stem(word: str) -> str:
    """Without the s of a plural: the same for question and answer is all that is asked of it.

    >>> stem("rivers"), stem("class"), stem("is")
    ('river', 'class', 'is')
    """
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def is_participle(found: Sequence[Word], place: int) -> bool:
    """Whether it is a verb ("located in", "invented by", "originates from"): not at the end, nor in quotation marks."""
    word = found[place]
    after = found[place + 1] if place + 1 < len(found) else None
    before = found[place - 1] if place else None
    shaped = word.text.endswith("ed") or word.text in IRREGULAR
    if before is not None and (before.asked or before.capital) and len(word.text) > 3:
        shaped = shaped or (word.text.endswith("s") and not word.text.endswith("ss"))
    return (
        shaped and word.text.islower() and not word.quoted and after is not None
        and after.plain in PREPOSITIONS | ARTICLES and not after.mark
    )  # fmt: skip


def announcer(found: Sequence[Word], place: int, *, skip_asked: bool = True) -> str:
    """The word that announces this one: articles, adverbs and nouns of the question are passed over."""
    for word, after in zip(reversed(found[:place]), reversed(found[1 : place + 1]), strict=True):
        if after.mark == ":":
            return ":"
        if after.mark and not after.quoted:
            return ""
        passed = word.plain in ARTICLES or word.plain in ADVERBS or word.plain == "be"
        if not (passed or (skip_asked and word.asked and word.plain not in STRONG | PREPOSITIONS)):
            return word.plain
    return ""
