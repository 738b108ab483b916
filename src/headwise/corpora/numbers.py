"""Numbers as people write them: "1,234", "1.5 million", "twenty-five", "two thousand three hundred and four".

`with_digits` rewrites a list of plain words so that every number is one word of digits; both the answer and the right
answer go through it, so "Apollo eleven" and "Apollo 11" become the same words. English only; a year said in two
halves ("nineteen forty-five") is a year.

This module does not know questions; it is given lower-case words without punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

__all__ = ["value", "with_digits"]

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
    """What a word of digits is worth; None for other words.

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
        out.append(_written(number))
        at = stop
    return out


def _spelled(words: Sequence[str], start: int) -> tuple[Decimal | None, int]:
    """The number that begins at `start`, and the place after it."""
    if _NUMBER.fullmatch(words[start]):
        return _in_digits(words, start)
    total, group, at = Decimal(0), None, start  # group: what has been said since the last thousand or million
    while at < len(words):
        word = words[at]
        if word in SCALES or word in DOZEN:
            if group is None and at != start:  # "thousand million" is not said
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
    """What `word` makes of the number said so far; None where it begins another one, or is none."""
    said = SMALL.get(word)
    if said is None or group is None:
        return None if said is None else Decimal(said)
    low = int(group) % 100
    if int(group) >= 100 and low == 0 and int(group) % 1000:  # three hundred, four
        return group + said
    if low in range(20, 100, 10) and 1 <= said <= 9:  # twenty, five
        return group + said
    if int(group) in range(10, 21) and 10 <= said <= 99:  # nineteen, forty
        return group * 100 + said
    return None


def _after_and(words: Sequence[str], at: int, start: int) -> bool:
    """Whether this "and" stands inside a number: three hundred and four."""
    inside = at > start and (words[at - 1] == "hundred" or words[at - 1] in SCALES)
    return inside and at + 1 < len(words) and words[at + 1] in SMALL


def _written(number: Decimal) -> str:
    plain = number.normalize()
    return f"{plain:f}"
