"""The same words, however they are written: case, accents, punctuation, articles, initials, numbers.

    "The U.S.A."  ->  usa          "Saint-Étienne", "St. Etienne"  ->  saint etienne
    "1,234"       ->  1234         "twenty-five degrees"           ->  25 degrees

`tokens` keeps the punctuation marks that end a phrase, for the rules that need to know where one ends; `words` is the
tokens without them and without articles: two texts with the same words are the same answer.

This module does not know what is right or wrong.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from headwise.corpora.numbers import with_digits

__all__ = ["is_mark", "sentences", "squashed", "tokens", "words"]

ARTICLES = frozenset(("a", "an", "the"))
LETTERS = str.maketrans(
    {
        "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "×": "*",
        "’": "'", "‘": "'", "ʼ": "'", "ʻ": "'", "`": "'", "′": "'", "“": '"', "”": '"', "«": '"', "»": '"', "„": '"',
        "–": "-", "—": " - ", "−": "-", "‐": "-", "‑": "-", "⁄": "/", "…": " . ", "\u00a0": " ",
    }
)  # fmt: skip
SHORT_FORMS = {"st": "saint", "mt": "mount"}
ABBREVIATIONS = frozenset("st mt dr mr mrs ms jr sr no vs prof gen col lt inc co ltd etc ca approx".split())

_SUPERSCRIPT = re.compile(r"(?<=\d)([⁰¹²³⁴-⁹]+)")
_VULGAR = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_INITIALS = re.compile(r"\b(?:[a-z]\.\s*){2,}(?:[a-z]\b)?")
_POSSESSIVE = re.compile(r"(?<=\w)'s\b")
_MINUS = re.compile(r"(?<![\w)])-(?=\d)")
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|-?\d+(?:\.\d+)?[^\W_\d]*|"
    r"(?:(?![\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])[^\W_])+|[^\w\s]"
)
_SENTENCE_END = re.compile(r"[.!?]+[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])|\n+")
MARKS = frozenset('.,;:!?()[]{}/="+*|<>~')  # what ends a phrase; other marks ("%", "°", "$") say nothing


def _plain(text: str) -> str:
    """Small letters without accents, one spelling of quotes and dashes; still with punctuation."""
    text = _SUPERSCRIPT.sub(lambda found: " " + unicodedata.normalize("NFKC", found[1]), text)
    text = unicodedata.normalize("NFKC", _VULGAR.sub(" ", text)).casefold().translate(LETTERS)
    text = "".join(map(_without_accent, text))
    text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
    text = _INITIALS.sub(lambda found: re.sub(r"[.\s]", "", found[0]) + " ", text)
    text = _POSSESSIVE.sub("", text).replace("'", "").replace("&", " and ")
    return _MINUS.sub(" \u2212", text).replace("-", " ").replace("\u2212", "-")


@lru_cache(maxsize=4096)
def _without_accent(letter: str) -> str:
    if letter < "\x80":
        return letter
    if unicodedata.combining(letter):
        return "" if "\u0300" <= letter <= "\u036f" else letter
    base = unicodedata.normalize("NFD", letter)[0]
    return base if base < "\x80" else letter


@lru_cache(maxsize=65536)
def tokens(text: str) -> tuple[str, ...]:
    """Plain words and the marks between them, numbers in digits.

    >>> tokens("Twenty-five, or the U.S. dollar?")
    ('25', ',', 'or', 'the', 'us', 'dollar', '?')
    """
    found = [token for token in _TOKEN.findall(_plain(text)) if token in MARKS or token[-1].isalnum()]
    return tuple(with_digits([SHORT_FORMS.get(token, token) for token in found]))


def is_mark(token: str) -> bool:
    """Whether a token is punctuation."""
    return token in MARKS


@lru_cache(maxsize=65536)
def words(text: str) -> tuple[str, ...]:
    """The words alone, articles dropped (unless there is nothing else).

    >>> words("The Beatles"), words("A"), words("Saint-Étienne"), words("1,234")
    (('beatles',), ('a',), ('saint', 'etienne'), ('1234',))
    """
    every = tuple(token for token in tokens(text) if not is_mark(token))
    return tuple(word for word in every if word not in ARTICLES) or every


def squashed(text_words: tuple[str, ...]) -> str:
    """The letters without the spaces, so that "ice cream" is "icecream"; empty where there are digits."""
    joined = "".join(text_words)
    return "" if any(letter.isdigit() for letter in joined) else joined


def sentences(text: str) -> list[str]:
    """Cut at full stops and line ends, but not after "St.", an initial, or the "1." of a list.

    >>> sentences("It is St. Louis. The river is near.")
    ['It is St. Louis.', 'The river is near.']
    """
    out: list[str] = []
    begin = 0
    for end in _SENTENCE_END.finditer(text):
        before = text[begin : end.start() + 1]
        last = re.search(r"(\w+)\.$", before)
        if before == "1." or (
            last and (last[1].casefold() in ABBREVIATIONS or (len(last[1]) == 1 and last[1].isalpha()))
        ):
            continue
        out.append(text[begin : end.end()].strip())
        begin = end.end()
    out.append(text[begin:].strip())
    return [sentence for sentence in out if sentence]
