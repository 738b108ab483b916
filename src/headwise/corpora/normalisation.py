"""Text normalisation for comparing answers: case, accents, punctuation, articles, initials and numbers.

    "The U.S.A."  ->  usa          "Saint-Étienne", "St. Etienne"  ->  saint etienne
    "1,234"       ->  1234         "twenty-five degrees"           ->  25 degrees

`tokens` keeps the punctuation marks that end a phrase; `words` drops them and the articles: two texts with the same
words are the same answer. Numbers are rewritten in digits, so that "Apollo eleven" equals "Apollo 11"; a year in two
halves ("nineteen forty-five") is a year. English only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

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
MARKS = frozenset('.,;:!?()[]{}/="+*|<>~')  # marks that end a phrase; others ("%", "°", "$") are ignored


def _plain(text: str) -> str:
    """Lower case without accents, one spelling of quotes and dashes, punctuation included."""
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
    """Normalised words and the marks between them, numbers in digits.

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
    """The words without marks, and without articles unless there is nothing else.

    >>> words("The Beatles"), words("A"), words("Saint-Étienne"), words("1,234")
    (('beatles',), ('a',), ('saint', 'etienne'), ('1234',))
    """
    every = tuple(token for token in tokens(text) if not is_mark(token))
    return tuple(word for word in every if word not in ARTICLES) or every


def squashed(text_words: tuple[str, ...]) -> str:
    """The letters without spaces, so that "ice cream" equals "icecream"; empty if there are digits."""
    joined = "".join(text_words)
    return "" if any(letter.isdigit() for letter in joined) else joined


def sentences(text: str) -> list[str]:
    """Split at full stops and line ends, but not after "St.", an initial, or the "1." of a list.

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


_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
_ONES += ["seventeen", "eighteen", "nineteen"]
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
SMALL = {word: number for number, word in enumerate(_ONES)} | {word: 10 * (n + 2) for n, word in enumerate(_TENS)}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
DOZEN = {"dozen": 12}
SIGNS = ("minus", "negative")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WITH_UNIT = re.compile(r"(-?\d+(?:\.\d+)?)(?!s$|st$|nd$|rd$|th$)[a-z]+")  # 10km; but not 1960s or 5th


def value(word: str) -> Decimal | None:
    """The value of a word of digits; None for other words.

    >>> value("2.50") == value("2.5"), value("10km"), value("1960s")
    (True, Decimal('10'), None)
    """
    if _NUMBER.fullmatch(word):
        return Decimal(word)
    unit = _WITH_UNIT.fullmatch(word)
    return Decimal(unit[1]) if unit else None


def with_digits(words: Sequence[str]) -> list[str]:
    """The same words, numbers in digits.

    >>> with_digits("two thousand three hundred and four sheep and twenty five dogs".split())
    ['2304', 'sheep', 'and', '25', 'dogs']
    >>> with_digits("nineteen forty five".split()), with_digits("1.5 million".split())
    (['1945'], ['1500000'])
    """
    out: list[str] = []
    at = 0
    while at < len(words):
        number, stop = _spelled(words, at)
        if number is None:
            out.append(words[at])
            at += 1
            continue
        if out and out[-1] in SIGNS:
            out.pop()
            number = -number
        out.append(f"{number.normalize():f}")
        at = stop
    return out


def _spelled(words: Sequence[str], start: int) -> tuple[Decimal | None, int]:
    """The number that begins at `start`, and the index after it."""
    if _NUMBER.fullmatch(words[start]):
        return _in_digits(words, start)
    total, group, at = Decimal(0), None, start  # group: the number since the last thousand or million
    while at < len(words):
        word = words[at]
        if word in SCALES or word in DOZEN:
            if group is None and at != start:  # "thousand million" is not a number
                break
            total += (Decimal(1) if group is None else group) * (SCALES | DOZEN)[word]
            group = None
        elif word == "hundred":
            if group is not None and not 1 <= group <= 99:
                break
            group = (Decimal(1) if group is None else group) * 100
        elif word == "and":
            if not _after_and(words, at, start):
                break
        else:
            joined = _joined(group, word)
            if joined is None:
                break
            group = joined
        at += 1
    if at == start:
        return None, start
    return total + (group or 0), at


def _in_digits(words: Sequence[str], start: int) -> tuple[Decimal, int]:
    """A number in digits, with the scales that follow it: 1.5 million."""
    number, at = Decimal(words[start]), start + 1
    while at < len(words) and words[at] in SCALES | DOZEN | {"hundred": 100}:
        number *= (SCALES | DOZEN | {"hundred": 100})[words[at]]
        at += 1
    return number, at


def _joined(group: Decimal | None, word: str) -> Decimal | None:
    """The number so far, continued by `word`; None if the word begins another number, or is none."""
    small = SMALL.get(word)
    if small is None or group is None:
        return None if small is None else Decimal(small)
    low = int(group) % 100
    if int(group) >= 100 and low == 0 and int(group) % 1000:  # three hundred, four
        return group + small
    if low in range(20, 100, 10) and 1 <= small <= 9:  # twenty, five
        return group + small
    if int(group) in range(10, 21) and 10 <= small <= 99:  # nineteen, forty
        return group * 100 + small
    return None


def _after_and(words: Sequence[str], at: int, start: int) -> bool:
    """Whether this "and" is inside a number: three hundred and four."""
    inside = at > start and (words[at - 1] == "hundred" or words[at - 1] in SCALES)
    return inside and at + 1 < len(words) and words[at + 1] in SMALL
