"""The figures of the patterns study: what do the attention maps look like, of one model or of two?

figure(dataset)                                  every head's map in a grid, "MODEL" above "Sparse MODEL"   `grid`
figure(dataset, heads="L3H1,L5H2")               these heads, in this order
figure(dataset, top=24, by="change")             the heads that changed most
figure(dataset, average=True)                    the average over prompts instead of the shown prompt
figure(dataset, head="L5H2")                     one head, large, with the tokens on both axes                `head`
figure(dataset, numbers=True)                    layer x head maps of the numbers, and of their change       `numbers`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import xarray as xr

from headwise.core.dims import SUBJECT
from headwise.figures.figure import Figure
from headwise.studies.patterns.figure.grid import grid_figure
from headwise.studies.patterns.figure.head import head_figure
from headwise.studies.patterns.figure.numbers import numbers_figure
from headwise.studies.spec import FigureVariant

__all__ = ["figure", "variants_of"]


def variants_of(dataset: xr.Dataset, variants: Sequence[FigureVariant]) -> Sequence[FigureVariant]:
    """All variants; without a second model nothing has changed."""
    return [one for one in variants if one.key != "changed" or dataset.sizes.get(SUBJECT, 1) > 1]


def figure(
    dataset: xr.Dataset,
    *,
    heads: Iterable[str] | str | None = None,
    top: int | None = None,
    by: str | None = None,
    average: bool = False,
    head: str | None = None,
    numbers: bool = False,
    statistics: Iterable[str] | str | None = None,
) -> Figure:
    """One of the three figures above; which heads a grid shows stands in its subtitle and its note.

    ``by`` is "change" (also called "similarity"), a number's name, or that with _change; ``statistics`` as named.
    """
    if head is not None:
        return head_figure(dataset, head)
    if numbers or statistics is not None:
        return numbers_figure(dataset, statistics)
    return grid_figure(dataset, heads, top, by, average)
