"""One study's page as plain dicts: its question, words, figures, method and origin. Made when asked for, and kept.

Cost: words take up to a second a study, a figure some tenths; the opening page needs the words and the first figure only.
This module does not know other studies, nor how any of them is measured.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import xarray as xr

from headwise.atlas import Provenance
from headwise.core.errors import DataError, did_you_mean
from headwise.describe import Words, describe
from headwise.figures import Figure, has_figure, to_payload
from headwise.web.card import origin_facts
from headwise.web.chapters import CHAPTERS, Variant, figures_of
from headwise.web.methods import METHODS
from headwise.web.miniature import miniature
from headwise.web.questions import question_table

__all__ = ["Study"]

CAVEATS = "Caveats"


class Study:
    """A study of an atlas, as its page shows it."""

    def __init__(self, key: str, dataset: xr.Dataset) -> None:
        self.key, self.dataset = key, dataset

    @cached_property
    def title(self) -> str:
        """As the study itself is called."""
        return str(self.dataset.attrs.get("title") or self.key.replace("_", " ").capitalize())

    @cached_property
    def question(self) -> str:
        """What it asks; empty for a study that is not ours."""
        return CHAPTERS[self.key].question if self.key in CHAPTERS else ""

    @cached_property
    def words(self) -> Words | None:
        """What a careful reader would see; None for a study that is a table."""
        return describe(self.key, self.dataset) if has_figure(self.key) else None

    @cached_property
    def short(self) -> str:
        """The finding in a sentence or two."""
        if self.words is not None:
            return self.words.short()
        return str(question_table(self.dataset)["short"]) if self.key == "answers" else ""

    @cached_property
    def figures(self) -> dict[str, tuple[Variant, Figure]]:
        """Every figure that its data can give, by the key of its variant, the words as alternative text."""
        return {one.key: (one, figure.with_alt(self.short)) for one, figure in figures_of(self.key, self.dataset)}

    def listing(self) -> dict[str, Any]:
        """As the contents have it."""
        return {"key": self.key, "title": self.title, "question": self.question}

    def finding(self) -> dict[str, Any]:
        """As the opening page has it: the short words, and a small picture of the first figure."""
        _, first = next(figures_of(self.key, self.dataset), (None, None))
        return {**self.listing(), "short": self.short, "miniature": miniature(first)}

    def page(self) -> dict[str, Any]:
        """As its own page has it; figures by the paths they stand at."""
        method = METHODS.get(self.key)
        sections = {} if self.words is None else self.words.sections()
        return {
            "key": self.key,
            "title": self.title,
            "question": self.question,
            "short": self.short,
            "words": {heading: entries for heading, entries in sections.items() if heading != CAVEATS},
            "caveats": sections.get(CAVEATS, []),
            "figures": [
                {"key": key, "label": variant.label, "path": f"figure/{self.key}/{key}"}
                for key, (variant, _) in self.figures.items()
            ],
            "table": question_table(self.dataset) if self.key == "answers" else None,
            "method": None if method is None else {"text": method.text, "source": method.source, "link": method.link},
            "provenance": origin_facts(Provenance.from_attrs(self.dataset.attrs)),
        }

    def payload(self, variant: str) -> dict[str, Any]:
        """One of its figures, for a browser."""
        if variant not in self.figures:
            raise DataError(
                f"The study {self.key!r} has no figure {variant!r} here. {did_you_mean(variant, self.figures)}"
            )
        return to_payload(self.figures[variant][1])
