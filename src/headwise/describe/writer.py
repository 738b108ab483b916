"""Descriptions in words: sections of sentences, in which every number can be recomputed.

A description is a figure's alternative text, the report's prose, and what a screen reader speaks. It states only what was
computed: a `Writer` turns each value into text and records it with its source, so that a test (or a reader) can go through
`Description.numbers` and recompute every number.
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
    "anomalies": "Anomalies",
    "interpretation": "Interpretation",
    "caveats": "Caveats",
}
_FLOWING = ("overview", "interpretation", "caveats")  # read as one paragraph; the others as one line per entry


@dataclass(frozen=True)
class Number:
    """A number of the text, with its source.

    Examples:
        >>> writer = Writer("A map")
        >>> writer.percent(0.3815, "share of heads over 0.5")
        '38 %'
        >>> writer.finish("").numbers[0]
        Number(text='38 %', value=38.15, source='share of heads over 0.5')
    """

    text: str  # as it is written
    value: float  # what it was made from
    source: str  # what it is, such as "value sink L3H7"


@dataclass(frozen=True)
class Description:
    """A Dataset in words. Each section is a tuple of entries, each entry one sentence or a few that belong together.

    Examples:
        >>> words = atlas.describe("profile")
        >>> print(words.short().partition("; ")[2])
        the strongest previous-token head is L3H2 (0.848).
        >>> print(words.markdown().splitlines()[0])
        ## Where each head attends: HuggingFaceTB/SmolLM2-135M-Instruct
    """

    title: str  # of the map
    overview: tuple[str, ...] = ()  # what, which model, which data
    axes: tuple[str, ...] = ()  # layout, ticks, colours, ranges
    detail: tuple[str, ...] = ()  # the strongest heads, clusters
    observations: tuple[str, ...] = ()  # shares, trends, overlaps
    anomalies: tuple[str, ...] = ()  # heads, layers or cells that break the pattern, by a stated rule
    interpretation: tuple[str, ...] = ()  # what it reads like, what speaks against that, what would decide
    caveats: tuple[str, ...] = ()  # what limits the reading
    headline: str = ""  # one or two sentences, the alt text
    numbers: tuple[Number, ...] = ()  # every number of the text

    def sections(self) -> dict[str, list[str]]:
        """The entries by heading, without empty sections."""
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
        """As Markdown, headings from ``level`` on."""
        blocks = [f"{'#' * level} {self.title}"]
        for key, heading in SECTIONS.items():
            if entries := getattr(self, key):
                body = " ".join(entries) if key in _FLOWING else "\n".join(f"- {entry}" for entry in entries)
                blocks.append(f"{'#' * (level + 1)} {heading}\n\n{body}")
        return "\n\n".join(blocks) + "\n"

    def __repr__(self) -> str:
        return f"<Description {self.title!r}: {self.short()}>"

    def _repr_html_(self) -> str:
        parts = []
        for key, heading in SECTIONS.items():
            if entries := getattr(self, key):
                body = paragraph(" ".join(entries)) if key in _FLOWING else listing(entries)
                parts.append(card(heading, body))
        return card(self.title, *parts)


class Writer:
    """Collects sentences, and records the source of every number that it formats.

    Args:
        title: of the map.

    Examples:
        >>> writer = Writer("My map")
        >>> writer.add("detail", f"L3H7 is the strongest, at {writer.number(0.87341, 'value L3H7')}.")
        >>> words = writer.finish("One head stands out.")
        >>> words.detail, words.numbers[0].value
        (('L3H7 is the strongest, at 0.873.',), 0.87341)
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._entries: dict[str, list[str]] = {key: [] for key in SECTIONS}
        self._numbers: list[Number] = []

    def add(self, section: str, entry: str) -> None:
        """Add an entry to a section; an empty one is ignored."""
        if entry:
            self._entries[section].append(entry)

    def number(self, value: float, source: str, *, digits: int = 3) -> str:
        """A quantity, to ``digits`` significant digits."""
        return self._record(significant(value, digits), value, source)

    def fixed(self, value: float, source: str) -> str:
        """A correlation or a coefficient: two decimals."""
        return self._record(f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−"), value, source)

    def percent(self, share: float, source: str) -> str:
        """A share of 1 as ``"38 %"``."""
        return self._record(percent(share), 100 * share, source)

    def count(self, value: int, source: str, noun: str = "") -> str:
        """A whole number, with its noun in the right number: ``"1 head"``, ``"2,970 cells"``."""
        text = self._record(f"{value:,}", value, source)
        return f"{text} {noun if value == 1 else plural(noun)}" if noun else text

    def label(self, text: str) -> str:
        """A number that the figure itself shows, such as a tick; recorded as an edge."""
        return self._record(text, float(text.replace("−", "-").replace(",", "")), "edge")

    def finish(self, headline: str) -> Description:
        """The description."""
        entries = {key: tuple(found) for key, found in self._entries.items()}
        return Description(self.title, headline=headline, numbers=tuple(self._numbers), **entries)

    def _record(self, text: str, value: float, source: str) -> str:
        self._numbers.append(Number(text, float(value), source))
        return text


def significant(value: float, digits: int = 3) -> str:
    """Rounded to significant digits, without powers of ten, with a true minus sign.

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
    """The plural of a regular noun.

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
