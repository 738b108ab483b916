"""Agreement between studies, as plain data: head sets, pairs of them, and what was left out.

    found = joins.agreement(atlas)              # Agreement
    found.pair("relations.knowledge", "functions.Knowledge_Recall").q
    joins.agreement_figure(found), joins.agreement_words(found)
    found.to_dict()                             # JSON

This module does not know how anything is tested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headwise.core.errors import DataError, did_you_mean
from headwise.core.markup import card, paragraph, table
from headwise.joins.plain import plain

__all__ = ["Agreement", "Pair", "SetFact"]

SHOWN = 12  # pairs in a notebook's cell
HEADER = ("heads of", "and of", "in both", "expected", "q of overlap", "correlation within layers", "q of correlation")


@dataclass(frozen=True)
class SetFact:
    """A set of heads that one study names, and the map it was cut from."""

    key: str
    """"relations.knowledge" """
    study: str
    label: str
    """for a reader, "Knowledge" """
    rule: str
    """which heads are in, in words"""
    heads: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Two head sets of two studies. ``_all``: against heads shuffled over the whole model; else within their layers."""

    first: str
    second: str
    first_size: int
    second_size: int
    count: int
    """heads in both"""
    shared: tuple[str, ...]
    expected: float
    """mean overlap with heads shuffled within layers"""
    expected_low: float
    """95 % of the shuffles give from expected_low to expected_high"""
    expected_high: float
    expected_all: float
    odds_ratio: float
    """of the 2 x 2 table, 0.5 added to each cell; NaN where a set is empty"""
    p: float
    """NaN where a set is empty, or where shuffling within layers never changes the overlap"""
    q: float
    p_all: float
    q_all: float
    correlation: float
    """Spearman, of the two maps over all heads"""
    correlation_expected: float
    """its mean with heads shuffled within layers: what depth alone gives"""
    correlation_within: float
    """the same of ranks with the mean of their layer taken off: what depth does not explain"""
    correlation_p: float
    """of the correlation within layers: depth's part is the same in every shuffle"""
    correlation_q: float
    correlation_p_all: float
    correlation_q_all: float


@dataclass(frozen=True)
class Agreement:
    """All pairs of head sets of unlike studies. Made by `agreement`.

    Examples:
        >>> from headwise.joins import agreement
        >>> found = agreement(atlas, permutations=200)
        >>> found
        <Agreement HuggingFaceTB/SmolLM2-135M-Instruct: 74 pairs of 15 head sets, 36 heads>
        >>> found.frame().shape[0] == len(found.pairs)
        True
    """

    model: str  # its name
    heads: int
    """that were measured by all these studies"""
    sets: tuple[SetFact, ...]  # the head sets
    pairs: tuple[Pair, ...]  # every set against every set of another study
    permutations: int  # shuffles a test
    seed: int  # of the shuffles
    shuffled: str
    """how heads were shuffled, in words"""
    by_chance: float
    """mean number of pairs whose overlap has q < 0.05 when one map is shuffled within layers: should be near 0"""
    correlation_by_chance: float
    """the same of the correlation"""
    left_out: tuple[str, ...] = ()
    """sentences"""
    provenance: str = ""
    """model and versions on one line"""

    def pair(self, first: str, second: str) -> Pair:
        """The pair of these two sets, in either order."""
        for one in self.pairs:
            if {one.first, one.second} == {first, second}:
                return one
        known = [one.key for one in self.sets]
        missing = next((key for key in (first, second) if key not in known), None)
        if missing is None:
            raise DataError(f"{first} and {second} are of one study; pairs are made across studies.")
        raise DataError(f"There is no head set {missing!r}. {did_you_mean(missing, known)}")

    def frame(self) -> pd.DataFrame:
        """One row a pair."""
        return pd.DataFrame([plain(one) for one in self.pairs])

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = plain(self)
        return found

    def __repr__(self) -> str:
        return f"<Agreement {self.model}: {len(self.pairs)} pairs of {len(self.sets)} head sets, {self.heads} heads>"

    def _repr_html_(self) -> str:
        rows = [_row(one) for one in sorted(self.pairs, key=_surprise)[:SHOWN]]
        note = (
            f"The {len(rows)} pairs with the smallest q of {len(self.pairs)}. Expected: heads shuffled {self.shuffled}."
        )
        return card(
            f"Agreement between studies of {self.model}", table(rows, header=HEADER), paragraph(note, quiet=True)
        )


def _surprise(pair: Pair) -> float:
    """The smaller q of the two, where there is one."""
    return min((q for q in (pair.q, pair.correlation_q) if math.isfinite(q)), default=math.inf)


def _row(pair: Pair) -> tuple[object, ...]:
    expected = f"{pair.expected:.2g} ({pair.expected_low:.2g} to {pair.expected_high:.2g})"
    numbers = (f"{q:.2g}" if math.isfinite(q) else "" for q in (pair.q, pair.correlation_within, pair.correlation_q))
    return (pair.first, pair.second, pair.count, expected, *numbers)
