"""What is known of one head, as plain data.

    report = head_report(atlas, "L12H3")
    report.values["profile"]          # a tuple of Value: number, interval, baseline, percentile among all heads
    report.functions, report.relations, report.salient, report.patterns, report.neighbours, report.views
    report.missing                    # {"circuits": "not in the atlas"}: what nobody measured, said
    report.to_dict()                  # JSON: NaN and None are null, maps are packed pixels

Every number is NaN (in JSON null) where it was not measured. This module does not know how anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headwise.analysis.head_sections import head_html
from headwise.analysis.jsonable import plain
from headwise.analysis.neighbours import Neighbour

__all__ = [
    "FunctionFact",
    "HeadReport",
    "MaskingFact",
    "PatternFact",
    "PatternMaps",
    "RelationFact",
    "SalientToken",
    "Value",
    "View",
]  # fmt: skip


@dataclass(frozen=True)
class Value:
    """One number of a head, and what it is to be held against."""

    key: str
    """the column's name, "profile.induction"; as in the head table where the record has it"""
    label: str
    """for a reader, "Induction" """
    value: float
    low: float = math.nan
    """ends of the 95 % interval"""
    high: float = math.nan
    baseline: float = math.nan
    """what a head without this property would get"""
    baseline_name: str = ""
    """"a uniform head", "chance" """
    percentile: float = math.nan
    """0 to 100: share of the other measured heads with a smaller value, ties counted half"""
    rank: int = 0
    """1 is the head with the largest value; 0 where it was not measured"""
    of: int = 0
    """measured heads"""
    p: float = math.nan
    q: float = math.nan
    q_paired: float = math.nan
    """the same with answers paired by length, where that was tested"""
    """Benjamini-Hochberg, over the heads of this map"""
    unit: str = ""
    definition: str = ""

    @property
    def same_for_all(self) -> bool:
        """No head has more (rank 1) and, as ties count half, none has less (percentile 50): it tells nothing of this head."""
        return self.of > 1 and self.rank == 1 and self.percentile == 50


@dataclass(frozen=True)
class MaskingFact:
    """What happened to a function's answers when a set of heads with this head in it was masked."""

    size: int
    """heads in the set: the smallest masked set of this function that has the head"""
    own: float
    """share of answers still right"""
    random: float
    """the same with as many random heads"""
    effect: float
    """random - own"""
    low: float
    high: float
    asked: int


@dataclass(frozen=True)
class FunctionFact:
    """One function and this head."""

    function: str
    importance: float
    """gradient x activation, signed"""
    low: float
    high: float
    magnitude: float
    null_high: float
    """what 95 % of this head's maps with shuffled labels stay below"""
    rank: int
    """1 is the head that matters most to this function"""
    of: int
    p: float
    q: float
    chosen: bool
    """among the function's heads: those up to the elbow"""
    best: bool
    """of all functions with q < 0.05 this is the one for which the head matters most"""
    alone: float
    """AUROC of this function against the others from this head alone"""
    alone_q: float
    refused: str = ""
    """why this function has no map; then there are no numbers"""
    masking: MaskingFact | None = None
    """None: no masked set of this function has the head, or none was masked"""


@dataclass(frozen=True)
class RelationFact:
    """One relation and this head, by its weights."""

    relation: str
    category: str
    sign: str
    """"promotes" or "suppresses" the targets"""
    score: float
    """share of the pairs whose target is among the k tokens"""
    low: float
    high: float
    null: float
    """mean score with shuffled targets"""
    null_high: float
    over: bool
    """over the study's threshold"""
    percentile: float
    right: int
    pairs: int
    examples: tuple[tuple[str, str], ...] = ()
    """pairs it gets right: source, target; the first few"""
    missed: tuple[tuple[str, str], ...] = ()
    """pairs it does not; the first few"""


@dataclass(frozen=True)
class SalientToken:
    """A token the head acts on most, and what it makes of it."""

    text: str
    strength: float
    """norm of what the head writes over norm of what it reads"""
    targets: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PatternMaps:
    """A head's maps of one model, as pixels: 0 to 254 are weights 0 to 1, 255 is hidden by the mask."""

    key: str
    """"model" or "against" """
    name: str
    shown: np.ndarray
    """(query, key) uint8, of the shown prompt"""
    average: np.ndarray
    """(pooled_query, pooled_key) uint8, mean over the prompts, stretched to one length"""


@dataclass(frozen=True, eq=False)
class PatternFact:
    """Example patterns."""

    tokens: tuple[str, ...]
    """of the shown prompt; with more tokens than rows, row r of a map starts at token ``starts[r]``"""
    starts: tuple[int, ...]
    prompts: tuple[str, ...]
    """the names of the prompts that ``average`` is over"""
    maps: tuple[PatternMaps, ...]


@dataclass(frozen=True)
class View:
    """Whether what the weights say of a head and what data say of it agree, in a sentence."""

    verdict: str
    """"agree", "disagree" or "open" """
    text: str
    weights: str
    """the column or claim of the weights' side"""
    data: str


@dataclass(frozen=True, eq=False)
class HeadReport:
    """Everything an atlas knows of one head. Made by `head_report`.

    Examples:
        >>> from headwise.analysis import head_report
        >>> known = head_report(atlas, "L3H2")
        >>> known.values["profile"][3].label, known.values["profile"][3].rank, known.values["profile"][3].of
        ('Previous token', 1, 36)
        >>> sorted(known.missing)[:2]  # what nobody measured is said
        ['circuits', 'functions']
    """

    name: str
    """such as "L3H7\" """
    layer: int
    """counted from 0"""
    head: int
    """its place in the layer"""
    model: str
    """its name"""
    layers: int
    """of the model"""
    heads: int
    """heads a layer"""
    summary: str
    """one or two computed sentences"""
    values: Mapping[str, tuple[Value, ...]]
    """by study, in the order of the studies"""
    titles: Mapping[str, str]
    """of the studies, for a reader"""
    functions: tuple[FunctionFact, ...] = ()
    """the most important first"""
    relations: tuple[RelationFact, ...] = ()
    """the highest score first; those over the threshold and the next few"""
    categories: tuple[str, ...] = ()
    """of relations; none: unclassified"""
    salient: tuple[SalientToken, ...] = ()
    """tokens it acts on most"""
    patterns: PatternFact | None = None
    """its maps"""
    neighbours: tuple[Neighbour, ...] = ()
    """the heads most like it"""
    neighbours_note: str = ""
    """how near that is among all pairs of heads"""
    views: tuple[View, ...] = ()
    """whether weights and data agree about it"""
    missing: Mapping[str, str] = field(default_factory=dict)
    """study -> why it says nothing of this head"""

    def __repr__(self) -> str:
        return f"<HeadReport {self.name} of {self.model}: {self.summary}>"

    def _repr_html_(self) -> str:
        return head_html(self)

    def to_dict(self, *, maps: bool = True) -> dict[str, Any]:
        """As JSON; without ``maps`` the pixels are left out."""
        one = self if maps else replace(self, patterns=None)
        found: dict[str, Any] = plain(one)
        return found
