"""A study told in words, in the order that all studies share: overview, axes, detail, observations, caveats, short form.

    describe = Account("Where each head looks", ProfileReading, (say_overview, say_axes, ...), headline)
    describe(dataset)                # Words, titled "Where each head looks: <the model>"

Steps: read the Dataset; let every part say its sentences to one `Writer`; finish with the headline.

This module does not know any study.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import xarray as xr

from headwise.describe.subject import Subject, model_of
from headwise.describe.words import Words, Writer

__all__ = ["Account"]

Reading = TypeVar("Reading", bound=Subject)


@dataclass(frozen=True)
class Account(Generic[Reading]):
    """What a study has to say, and in which order."""

    title: str  # of a Dataset that has none
    read: Callable[[xr.Dataset], Reading]
    parts: tuple[Callable[[Writer, Reading], None], ...]  # in the order of the sections
    headline: Callable[[Writer, Reading], str]  # the short form

    def __call__(self, dataset: xr.Dataset) -> Words:
        """The study as a careful reader would tell it."""
        reading = self.read(dataset)
        writer = Writer(f"{dataset.attrs.get('title') or self.title}: {model_of(reading)}")
        for say in self.parts:
            say(writer, reading)
        return writer.finish(self.headline(writer, reading))
