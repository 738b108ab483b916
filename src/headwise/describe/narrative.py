"""The order in which every study is described: overview, axes, detail, observations, caveats, short form.

    describe = Narrative("Where each head attends", ProfileAccessor, (_overview, _axes, _details, (_depth, ...), _caveats), ...)
    describe(dataset)                # a Description, titled "Where each head attends: <the model>"

Each part writes the entries of its section: it returns one, or yields several; an empty one is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import xarray as xr

from headwise.describe.phrases import model_in
from headwise.describe.writer import SECTIONS, Description, Writer

Read = TypeVar("Read")
Part = Callable[[Writer, Read], str | Iterable[str]]


@dataclass(frozen=True)
class Narrative(Generic[Read]):
    """The parts of a study's description, in order."""

    title: str  # of a Dataset that has none
    read: Callable[[xr.Dataset], Read]  # the study's accessor, or the Dataset itself
    parts: tuple[Part[Read] | tuple[Part[Read], ...], ...]  # one or several for each of the five sections
    headline: Callable[[Writer, Read], str]  # the short form

    def __call__(self, dataset: xr.Dataset) -> Description:
        """Describe a Dataset."""
        read = self.read(dataset)
        writer = Writer(f"{dataset.attrs.get('title') or self.title}: {model_in(dataset)}")
        for section, parts in zip(SECTIONS, self.parts, strict=True):
            for part in parts if isinstance(parts, tuple) else (parts,):
                entries = part(writer, read)
                for entry in (entries,) if isinstance(entries, str) else entries:
                    writer.add(section, entry)
        return writer.finish(self.headline(writer, read))
