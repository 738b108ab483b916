"""The order in which every study is described: overview, axes, detail, observations, anomalies, interpretation, caveats.

    describe = Narrative("Where each head attends", ProfileAccessor, (_overview, _axes, _details, (_depth, ...), _caveats), ...)
    describe(dataset)                # a Description, titled "Where each head attends: <the model>"

Each part writes the entries of its section: it returns one, or yields several; an empty one is left out. An interpretation has
three parts, so that no reading stands alone: `reading` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import xarray as xr

from headwise.describe.phrases import model_in
from headwise.describe.writer import Description, Writer

Read = TypeVar("Read")
Part = Callable[[Writer, Read], str | Iterable[str]]
PARTS = ("overview", "axes", "detail", "observations", "caveats")


@dataclass(frozen=True)
class Narrative(Generic[Read]):
    """The parts of a study's description, in order."""

    title: str  # of a Dataset that has none
    read: Callable[[xr.Dataset], Read]  # the study's accessor, or the Dataset itself
    parts: tuple[Part[Read] | tuple[Part[Read], ...], ...]  # one or several for each of `PARTS`
    headline: Callable[[Writer, Read], str]  # the short form
    anomalies: Part[Read] | None = None  # what breaks the pattern, by a stated rule
    interpretation: Part[Read] | None = None  # a hedged reading, from computed facts only

    def short(self, dataset: xr.Dataset) -> str:
        """The headline alone."""
        return self.headline(Writer(""), self.read(dataset)) or self(dataset).short()

    def __call__(self, dataset: xr.Dataset) -> Description:
        """Describe a Dataset."""
        read = self.read(dataset)
        writer = Writer(f"{dataset.attrs.get('title') or self.title}: {model_in(dataset)}")
        sections = dict(zip(PARTS, self.parts, strict=True)) | {
            name: part
            for name, part in (("anomalies", self.anomalies), ("interpretation", self.interpretation))
            if part is not None
        }
        for section, parts in sections.items():
            for part in parts if isinstance(parts, tuple) else (parts,):
                entries = part(writer, read)
                for entry in (entries,) if isinstance(entries, str) else entries:
                    writer.add(section, entry)
        return writer.finish(self.headline(writer, read))


def reading(like: str, against: Iterable[str], decide: str) -> Iterator[str]:
    """What the map reads like, what speaks against it, what would decide it; nothing without a reading.

    >>> list(reading("a few heads do the work", ["the top two overlap", ""], "ablate them"))
    ['It reads like this: a few heads do the work.', 'Against it: the top two overlap.', 'To decide: ablate them.']
    >>> list(reading("", [], "ablate them"))
    []
    """
    if not like:
        return
    yield f"It reads like this: {like}."
    known = "; ".join(filter(None, against))
    yield f"Against it: {known}." if known else "Nothing that was measured here speaks against it."
    yield f"To decide: {decide}."
