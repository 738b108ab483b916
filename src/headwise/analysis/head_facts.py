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

import numpy as np

from headwise.analysis.head_sections import head_html
from headwise.analysis.neighbours import Neighbour
from headwise.figures.payload import to_jsonable

__all__ = [
    "ConsistencyCheck", "FunctionFact", "HeadReport", "MaskingFact", "Measurement", "PatternFact", "PatternMaps",
    "RelationFact", "SalientToken",
]  # fmt: skip


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
    q_paired: float = math.nan
    """the same with answers paired by length, where that was tested"""
    unit: str = ""
    definition: str = ""

    @property
    def same_for_all(self) -> bool:
        """No head has more (rank 1) and, as ties count half, none has less (percentile 50): the column is constant."""
        return self.n_heads > 1 and self.rank == 1 and self.percentile == 50


@dataclass(frozen=True)
class MaskingFact:
    """The answers of a function when a set of heads that includes this head was masked."""

    size: int
    """heads in the smallest masked set of this function that includes the head"""
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
    """95th percentile of this head's maps with permuted labels"""
    rank: int
    """1 is the most important head of this function"""
    n_heads: int
    p: float
    q: float
    chosen: bool
    """among the function's heads: those up to the elbow"""
    best: bool
    """of all functions with q < 0.05, the one for which this head is most important"""
    alone: float
    """AUROC of this function against the others from this head alone"""
    alone_q: float
    refused: str = ""
    """why this function has no map; then there are no numbers"""
    masking: MaskingFact | None = None
    """None: no masked set of this function includes the head"""


@dataclass(frozen=True)
class RelationFact:
    """One relation and this head, computed from its weights."""

    relation: str
    category: str
    sign: str
    """"promotes" or "suppresses" the targets"""
    score: float
    """share of the pairs whose target is among the top k tokens"""
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
    """(source, target) pairs that it gets right; the first few"""
    missed: tuple[tuple[str, str], ...] = ()
    """pairs that it does not; the first few"""


@dataclass(frozen=True)
class SalientToken:
    """A token that the head scales up most, and the tokens that it writes for it."""

    text: str
    strength: float
    """norm of the head's output over norm of its input"""
    targets: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PatternMaps:
    """A head's attention maps in one model, as pixels: 0 to 254 are weights 0 to 1, 255 is masked."""

    key: str
    """"model" or "against" """
    name: str
    shown: np.ndarray
    """(query, key) uint8, of the shown prompt"""
    average: np.ndarray
    """(pooled_query, pooled_key) uint8, mean over the prompts, stretched to one length"""


@dataclass(frozen=True, eq=False)
class PatternFact:
    """Example attention maps."""

    tokens: tuple[str, ...]
    """of the shown prompt; with more tokens than rows, row r of a map starts at token ``starts[r]``"""
    starts: tuple[int, ...]
    prompts: tuple[str, ...]
    """the names of the prompts that ``average`` is over"""
    maps: tuple[PatternMaps, ...]


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
        >>> sorted(known.missing)[:2]
        ['circuits', 'functions']
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
