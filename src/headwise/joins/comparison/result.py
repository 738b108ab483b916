"""What two atlases differ in, as plain data.

    found = joins.compare(Atlas.open("dense"), Atlas.open("sparse"))      # Comparison
    found.heads.head(10)                       # a DataFrame: the heads that changed most, over all studies
    joins.comparison_figure(found), joins.comparison_words(found)
    found.to_dict()                            # JSON

This module does not know how anything is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headwise.core.markup import card, listing, paragraph, table
from headwise.describe.words import significant
from headwise.joins.plain import plain

__all__ = ["ColumnChange", "Comparison", "DepthChange", "StudyMatch"]

SHOWN = 10  # heads in a notebook's cell
_PLAIN = (
    "a",
    "b",
    "same_shape",
    "reason",
    "models",
    "warnings",
    "studies",
    "correspondence",
    "correspondence_by_chance",
)


@dataclass(frozen=True)
class StudyMatch:
    """Whether a study can be compared."""

    study: str
    title: str
    status: str
    """"compared"; "warned": compared, but options or versions differ; "refused"; "only in A"; "only in B" """
    reason: str
    """in a sentence; empty where nothing is to be said"""
    differences: tuple[str, ...]
    """of the provenance, one sentence each"""


@dataclass(frozen=True, eq=False)
class ColumnChange:
    """One column of the head record in both atlases. Maps are (layer, head), NaN where not measured."""

    name: str
    study: str
    label: str
    a: np.ndarray
    b: np.ndarray
    noise: np.ndarray
    """standard error of the change, head by head; NaN where the studies carry no interval"""
    q: np.ndarray
    """Benjamini-Hochberg over the heads, of the test that nothing changed; NaN where there is no interval"""
    test: str
    """how p was made: "paired over 84 texts", "from both intervals", or "" """
    mean_change: float
    """B - A"""
    correlation: float
    """Spearman of A with B over heads"""
    changed: int
    """heads with q < 0.05"""
    tested: int
    beyond: int
    """heads whose two 95 % intervals do not touch"""

    @property
    def change(self) -> np.ndarray:
        """B - A, head by head."""
        return self.b - self.a

    @property
    def same(self) -> bool:
        """Whether all heads have the same number in both."""
        return bool(np.array_equal(self.a, self.b, equal_nan=True))

    @property
    def measured(self) -> bool:
        """Whether any head has a number in both."""
        return bool(np.isfinite(self.change).any())


@dataclass(frozen=True)
class DepthChange:
    """One column of two models of unlike shape: by relative depth, never head by head."""

    name: str
    study: str
    label: str
    depth: tuple[float, ...]
    """middles of the bands, 0 is the first layer, 1 the last"""
    a: tuple[float, ...]
    """median over the heads of the band"""
    a_low: tuple[float, ...]
    """quartiles"""
    a_high: tuple[float, ...]
    b: tuple[float, ...]
    b_low: tuple[float, ...]
    b_high: tuple[float, ...]
    p: float
    """Kolmogorov-Smirnov, all heads of A against all heads of B"""
    q: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two atlases, A and B. Made by `compare`.

    Examples:
        >>> from headwise.joins import compare
        >>> found = compare(atlas, atlas, studies=["profile"])
        >>> found.same_shape, found.within_noise, len(found.heads)
        (True, True, 36)
    """

    a: str
    """name of A, for a reader"""
    b: str
    """name of B"""
    same_shape: bool
    """whether both have as many layers and heads"""
    reason: str
    """why heads are not compared one by one; empty where they are"""
    models: tuple[str, ...]
    """what the two models differ in, as the provenance has it"""
    warnings: tuple[str, ...]
    """what makes the comparison less sure, a sentence each"""
    studies: tuple[StudyMatch, ...]
    """which studies could be compared"""
    columns: tuple[ColumnChange, ...]
    """empty where the shapes differ"""
    depths: tuple[DepthChange, ...]
    """empty where the shapes agree"""
    heads: pd.DataFrame
    """one row a head, the most changed first: change, noise (what a re-run would give), times (change / noise), and the
    columns that changed most; empty where the shapes differ. Where change and noise are both 0, times is 0"""
    correspondence: float = float("nan")
    """mean over columns of the rank correlation of A with B within layers: 1 where heads kept their places; columns in which
    the heads of a layer are all alike, in A or in B, have none and are left out; NaN where no column has one"""
    correspondence_by_chance: float = float("nan")
    """95 % of shuffles of B's heads within layers stay below"""

    @property
    def tested(self) -> int:
        """Values, head by head and column by column, whose change was tested."""
        return sum(column.tested for column in self.columns)

    @property
    def changed(self) -> int:
        """Those with q < 0.05."""
        return sum(column.changed for column in self.columns)

    @property
    def same(self) -> bool:
        """Whether every number of every head is the same in both."""
        return bool(self.columns) and all(column.same for column in self.columns)

    @property
    def within_noise(self) -> bool:
        """Whether nothing changed beyond noise: no value with q < 0.05, and what was not tested is the same in both."""
        loose = any(not column.tested and not column.same for column in self.columns)
        return self.same or (self.tested > 0 and self.changed == 0 and not loose)

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """As JSON: maps become lists; of the heads the ``top`` first, or all."""
        table = self.heads if top is None else self.heads.head(top)
        found = {name: plain(getattr(self, name)) for name in _PLAIN}
        found["columns"] = [plain(one) | {"change": plain(one.change)} for one in self.columns]
        found["depths"] = plain(self.depths)
        found["heads"] = [plain(row) for row in table.reset_index().to_dict("records")]
        return found

    def __repr__(self) -> str:
        told = f"{len(self.columns)} numbers of {len(self.heads)} heads" if self.same_shape else self.reason
        return f"<Comparison of {self.a} and {self.b}: {told}>"

    def _repr_html_(self) -> str:
        first = self.heads.head(SHOWN).reset_index()
        rows = [
            [significant(cell) if isinstance(cell, float) else cell for cell in row] for row in first.values.tolist()
        ]
        told = paragraph(self.reason) if self.reason else table(rows, header=list(first.columns))
        if self.within_noise:
            told = paragraph(
                "Nothing changed." if self.same else "Nothing changed beyond noise (no value with q < 0.05)."
            )
        note = f"{self.a} against {self.b}" + (
            "" if self.reason or self.within_noise else "; the heads that changed most"
        )
        return card("Comparison of two atlases", told, listing(self.warnings), note=note)
