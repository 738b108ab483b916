"""The order in which every study is described: overview, axes, detail, observations, caveats, short form.

    describe = Narrative("Where each head attends", ProfileAccessor, (add_overview, add_axes, ...), headline)
    describe(dataset)                # a Description, titled "Where each head attends: <the model>"

Steps: wrap the Dataset in the study's accessor; let every part add its sentences to one `Writer`; finish with the headline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import xarray as xr

from headwise.describe.phrases import HasOrigin, model_of
from headwise.describe.writer import Description, Writer

__all__ = ["Narrative"]

Accessor = TypeVar("Accessor", bound=HasOrigin)


@dataclass(frozen=True)
class Narrative(Generic[Accessor]):
    """The parts of a study's description, in order."""

    title: str  # of a Dataset that has none
    read: Callable[[xr.Dataset], Accessor]
    parts: tuple[Callable[[Writer, Accessor], None], ...]  # in the order of the sections
    headline: Callable[[Writer, Accessor], str]  # the short form

    def __call__(self, dataset: xr.Dataset) -> Description:
        """Describe a Dataset."""
        accessor = self.read(dataset)
        writer = Writer(f"{dataset.attrs.get('title') or self.title}: {model_of(accessor)}")
        for add in self.parts:
            add(writer, accessor)
        return writer.finish(self.headline(writer, accessor))
