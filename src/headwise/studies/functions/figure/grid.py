"""What the figures of functions share: which functions they show, in which order, in how many columns.

The eight functions of Ma et al. (arXiv 2512.10978) stand as in their figure, two rows of four; any other set stands as it
is stored, four to a row at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import xarray as xr

from headwise.core.dims import FUNCTION
from headwise.figures.choice import chosen_keys
from headwise.figures.panels import Panel
from headwise.figures.scale import Scale

PUBLISHED = (
    "Knowledge Recall", "Retrieval", "Logical Reasoning", "Decision-making",
    "Semantic Understanding", "Syntactic Understanding", "Inference", "Math Calculation",
)  # fmt: skip
MOST_COLUMNS = 4


@dataclass(frozen=True)
class Parts:
    """What a figure is made of, beside its title and origin."""

    panels: tuple[Panel, ...]
    columns: int
    notes: tuple[str, ...]
    scales: Mapping[str, Scale] = field(default_factory=dict)


def shown_functions(dataset: xr.Dataset, wanted: Iterable[str] | str | None, owner: str) -> list[str]:
    """The functions asked for, or all (None)."""
    names = chosen_keys(dataset, FUNCTION, wanted, owner)
    return list(PUBLISHED) if wanted is None and set(names) == set(PUBLISHED) else names


def columns_for(count: int) -> int:
    """How many panels to a row: as few rows as can be, evenly filled.

    >>> [columns_for(count) for count in (1, 2, 4, 5, 8, 9, 11)]
    [1, 2, 4, 3, 4, 3, 4]
    """
    rows = -(-count // MOST_COLUMNS)
    return -(-count // rows)
