"""What every description is made of: sections of sentences, English for numbers and lists, the origin of each number.

A description is the figure's alt text, the report's prose, and what a screen reader speaks. It never says what was not
computed: whoever writes one uses a `Writer`, which turns a value into text and keeps the value beside it, with
a note of what it is. So a test (or a doubting reader) can go through `Words.numbers` and compute each of them again.

This module does not know any study.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headwise.core.markup import card, listing, paragraph

SECTIONS = {
    "overview": "Overview",
    "axes": "Axes and scale",
    "detail": "Detail",
    "observations": "Key observations",
    "caveats": "Caveats",
}
_FLOWING = ("overview", "caveats")  # read as one paragraph; the others as one line an entry


@dataclass(frozen=True)
class Number:
    """A number as it stands in the text, with where it comes from.

    Examples:
        >>> writer = Writer("A map")
        >>> writer.percent(0.3815, "share of heads over 0.5")
        '38 %'
        >>> writer.finish("").numbers[0]
        Number(text='38 %', value=38.15, of='share of heads over 0.5')
    """

    text: str  # as it is written
    value: float  # what it was made from
    of: str  # what it is, such as "value sink L3H7"


@dataclass(frozen=True)
class Words:
    """A map in words. Each section is a tuple of entries, each entry one sentence or a few that belong together.

    Examples:
        >>> words = atlas.describe("profile")
        >>> print(words.short().partition("; ")[2])
        the strongest previous-token head is L3H2 (0.848).
        >>> print(words.markdown().splitlines()[0])
        ## Where each head looks: HuggingFaceTB/SmolLM2-135M-Instruct
    """

    title: str  # of the map
    overview: tuple[str, ...] = ()  # what, which model, which data
    axes: tuple[str, ...] = ()  # ranges, ticks, colour scale
    detail: tuple[str, ...] = ()  # the strongest heads, clusters
    observations: tuple[str, ...] = ()  # shares, trends, overlaps
    caveats: tuple[str, ...] = ()  # what to mind
    headline: str = ""  # one or two sentences, the alt text
    numbers: tuple[Number, ...] = ()  # every number of the text

    def sections(self) -> dict[str, list[str]]:
        """The entries by the heading of their section, without the sections that have none."""
        return {heading: list(getattr(self, key)) for key, heading in SECTIONS.items() if getattr(self, key)}

    def short(self) -> str:
        """One or two sentences, for an alt text."""
        return self.headline or " ".join(self.overview[:1])

    def text(self) -> str:
        """Plain paragraphs under plain headings."""
        blocks = [self.title]
        for key, heading in SECTIONS.items():
            if entries := getattr(self, key):
                blocks.append(f"{heading}\n" + (" " if key in _FLOWING else "\n").join(entries))
        return "\n\n".join(blocks) + "\n"

    def markdown(self, *, level: int = 2) -> str:
        """Headings from ``level`` on; lists where entries stand on their own."""
        blocks = [f"{'#' * level} {self.title}"]
        for key, heading in SECTIONS.items():
            if entries := getattr(self, key):
                body = " ".join(entries) if key in _FLOWING else "\n".join(f"- {entry}" for entry in entries)
                blocks.append(f"{'#' * (level + 1)} {heading}\n\n{body}")
        return "\n\n".join(blocks) + "\n"

    def __repr__(self) -> str:
        return f"<Words {self.title!r}: {self.short()}>"

    def _repr_html_(self) -> str:
        parts = []
        for key, heading in SECTIONS.items():
            if entries := getattr(self, key):
                told = paragraph(" ".join(entries)) if key in _FLOWING else listing(entries)
                parts.append(card(heading, told))
        return card(self.title, *parts)


class Writer:
    """Collects sentences, and keeps the origin of every number that it turns into text.

    Args:
        title: of the map.

    Examples:
        >>> writer = Writer("My map")
        >>> writer.say("detail", f"L3H7 is the strongest, at {writer.number(0.87341, 'value L3H7')}.")
        >>> words = writer.finish("One head stands out.")
        >>> words.detail, words.numbers[0].value
        (('L3H7 is the strongest, at 0.873.',), 0.87341)
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._entries: dict[str, list[str]] = {key: [] for key in SECTIONS}
        self._numbers: list[Number] = []

    def say(self, section: str, entry: str) -> None:
        """Add an entry to a section; an empty one is left out."""
        if entry:
            self._entries[section].append(entry)

    def number(self, value: float, of: str, *, digits: int = 3) -> str:
        """A quantity, to this many significant digits."""
        return self._keep(significant(value, digits), value, of)

    def fixed(self, value: float, of: str) -> str:
        """A correlation or a coefficient: always two decimals."""
        return self._keep(f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−"), value, of)

    def percent(self, share: float, of: str) -> str:
        """A share of 1 as ``"38 %"``."""
        return self._keep(percent(share), 100 * share, of)

    def count(self, value: int, of: str, noun: str = "") -> str:
        """A whole number, with its noun in the right number: ``"1 head"``, ``"2,970 cells"``."""
        text = self._keep(f"{value:,}", value, of)
        return f"{text} {noun if value == 1 else plural(noun)}" if noun else text

    def finish(self, headline: str) -> Words:
        """The description."""
        entries = {key: tuple(found) for key, found in self._entries.items()}
        return Words(self.title, headline=headline, numbers=tuple(self._numbers), **entries)

    def _keep(self, text: str, value: float, of: str) -> str:
        self._numbers.append(Number(text, float(value), of))
        return text


def significant(value: float, digits: int = 3) -> str:
    """Rounded, never in powers of ten, with a true minus sign.

    >>> significant(0.87341), significant(-0.5), significant(15132.0), significant(0.000123456), significant(0.9999)
    ('0.873', '−0.5', '15,132', '0.000123', '1')
    """
    if not math.isfinite(value):
        return "not known"
    if abs(value) >= 10**digits:
        text = f"{value:,.0f}"
    else:
        text = np.format_float_positional(value, precision=digits, unique=False, fractional=False, trim="-")
    return "0" if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def percent(share: float) -> str:
    """Whole percents, or two digits below ten; never 0 or 100 unless it is.

    >>> percent(0.3815), percent(0.0412), percent(0.9996), percent(0.0), percent(1.0)
    ('38 %', '4.1 %', '99.96 %', '0 %', '100 %')
    """
    value = 100 * share
    if value in (0, 100):
        return f"{value:.0f} %"
    if 10 <= value < 99.5:
        return f"{value:.0f} %"
    return f"{significant(value, 2 if value < 10 else 4)} %"


def plural(noun: str) -> str:
    """Of the nouns that descriptions use.

    >>> plural("head"), plural("box"), plural("category")
    ('heads', 'boxes', 'categories')
    """
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def listed(parts: Iterable[str], *, last: str = "and") -> str:
    """As English lists things.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    parts = list(parts)
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def span(noun: str, first: int | str, end: int | str) -> str:
    """``span("layer", 3, 5)`` is ``"layers 3 to 5"``; one alone is ``"layer 3"``."""
    return f"{noun} {first}" if first == end else f"{plural(noun)} {first} to {end}"
