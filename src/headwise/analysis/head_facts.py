"""What does an atlas know about one head? The report as plain data.

    report = head_report(atlas, "L12H3")
    report.values["profile"]          # Measurements: number, confidence interval, baseline, percentile among all heads
    report.functions, report.relations, report.salient, report.patterns, report.neighbours, report.consistency
    report.missing                    # {"circuits": "not in this atlas"}: which studies say nothing about this head
    report.to_dict()                  # JSON: NaN and None become null, maps become packed pixels

All renderings are made from this structure: `head_sections` (terminal and notebook), `head_text` (prose), `to_dict` (the
explorer). Numbers that were not measured are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwise.analysis.head_sections import head_html
from headwise.analysis.neighbours import Neighbour
from headwise.figures.payload import to_jsonable
from headwise.studies.functions.heads import FunctionFact
from headwise.studies.patterns.heads import PatternFact
from headwise.studies.relations.heads import RelationFact, SalientToken


@dataclass(frozen=True)
class Measurement:
    """One number of a head with its confidence interval, baseline, test and rank."""

    key: str
    """the column of the head table, "profile.induction" """
    label: str
    """for readers, "Induction" """
    value: float
    low: float = math.nan
    """ends of the 95 % confidence interval"""
    high: float = math.nan
    baseline: float = math.nan
    """the value of a head without this property"""
    baseline_name: str = ""
    """"a uniform head", "chance" """
    percentile: float = math.nan
    """0 to 100: share of the other measured heads with a smaller value, ties counted half"""
    rank: int = 0
    """1 is the head with the largest value; 0: not measured"""
    n_heads: int = 0
    """measured heads"""
    p: float = math.nan
    q: float = math.nan
    """Benjamini-Hochberg, over the heads of this map"""
    q_matched: float = math.nan
    """the same among answers of the same length, where that was tested"""
    within: float = math.nan
    """the value among answers to similar questions, where that was tested"""
    q_within: float = math.nan
    """its q"""
    unit: str = ""
    definition: str = ""

    @property
    def same_for_all(self) -> bool:
        """No head has more (rank 1) and, as ties count half, none has less (percentile 50): the column is constant."""
        return self.n_heads > 1 and self.rank == 1 and self.percentile == 50


@dataclass(frozen=True)
class ConsistencyCheck:
    """Whether the weights and the data agree about a head, as a sentence with a verdict."""

    verdict: str
    """"agree", "disagree" or "open" """
    text: str
    weights: str
    """the column or claim from the weights"""
    data: str
    """the column or claim from data"""


@dataclass(frozen=True, eq=False)
class HeadReport:
    """Everything that an atlas knows about one head. Made by `head_report`.

    Examples:
        >>> from headwise.analysis import head_report
        >>> known = head_report(atlas, "L3H2")
        >>> known.values["profile"][3].label, known.values["profile"][3].rank, known.values["profile"][3].n_heads
        ('Previous token', 1, 36)
        >>> "circuits" in known.missing
        True
    """

    name: str
    """such as "L3H7\" """
    layer: int
    """counted from 0"""
    head: int
    """its index in the layer"""
    model: str
    """its name"""
    layers: int
    """of the model"""
    heads: int
    """heads per layer"""
    summary: str
    """one to three computed sentences"""
    values: Mapping[str, tuple[Measurement, ...]]
    """by study, in the order of the studies"""
    titles: Mapping[str, str]
    """of the studies, for readers"""
    functions: tuple[FunctionFact, ...] = ()
    """the most important first"""
    relations: tuple[RelationFact, ...] = ()
    """the highest score first; those over the threshold and the next few"""
    categories: tuple[str, ...] = ()
    """of relations; none: unclassified"""
    salient: tuple[SalientToken, ...] = ()
    """the tokens that it scales up most"""
    patterns: PatternFact | None = None
    """its attention maps"""
    neighbours: tuple[Neighbour, ...] = ()
    """the most similar heads"""
    neighbours_note: str = ""
    """how close that is among all pairs of heads"""
    consistency: tuple[ConsistencyCheck, ...] = ()
    """whether weights and data agree about it"""
    missing: Mapping[str, str] = field(default_factory=dict)
    """study -> why it says nothing about this head"""

    def __repr__(self) -> str:
        return f"<HeadReport {self.name} of {self.model}: {self.summary}>"

    def _repr_html_(self) -> str:
        return head_html(self)

    def to_dict(self, *, maps: bool = True) -> dict[str, Any]:
        """As JSON; without ``maps`` the pixels are left out."""
        one = self if maps else replace(self, patterns=None)
        found: dict[str, Any] = to_jsonable(one)
        return found
