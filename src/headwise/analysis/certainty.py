r"""What is most certain in an atlas, and what is not shown? By one rule for all studies.

A candidate is a number with a null: a head's statistic against its baseline (the spec's `HeadColumn`s), or a sentence about the
whole model that a spec declares (`Claim`). Its p-value, corrected for what was compared, is

    k q, with the study's own q-value, among answers to similar questions where the study has that test
    else from the 95 % interval: z = (value - null) / ((high - low) / 3.92) and p = m 2 \Phi(-z)

at most 1, with k the maps of the study that have q-values (each corrects for the heads of its own map alone), m its candidates
that were tested by their intervals, and of a claim all rows of its table (Bonferroni). By its
interval a head counts where it is above its baseline: less than a uniform head has is seldom a finding. Every study gives its
most certain head, and every claim itself; the three smallest p-values are the most certain findings (a head is listed once),
and what has p >= 0.05 is not shown. Studies of answers take part with numbers that compare answers to similar questions, since
the question alone explains most of the rest. Of a study's statistics, those that its head table shows first take part, where
they have a null.

It is a rule for where to look first, not a ranking of importance: intervals cover the examples that were drawn, not the choice
of model or texts. Cost: milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.analysis.columns import Column, columns_of
from headwise.core.errors import AtlasError
from headwise.describe.writer import significant
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.registry import datasets as dataset_specs
from headwise.studies.spec import Claim

FINDINGS = 3
ASYMPTOTIC = 25.0  # from this z on, the normal tail by its leading term


@dataclass(frozen=True)
class Finding:
    """One candidate with its p-value."""

    study: str  # the Dataset
    text: str  # a sentence about what was found
    claim: str  # a clause, for what is not shown: "that ..."
    log_p: float  # natural logarithm of the corrected p-value
    head: str = ""  # the head that it is about; empty: the whole model

    @property
    def shown(self) -> bool:
        """Whether the corrected p-value is below 0.05."""
        return self.log_p < math.log(ALPHA)


@dataclass(frozen=True)
class Certainty:
    """The findings of an atlas by how certain they are. Made by `certainty_of`.

    Examples:
        >>> found = certainty_of({"profile": atlas["profile"]})
        >>> len(found.most_certain), found.not_shown
        (1, ())
        >>> found.most_certain[0].text.partition(":")[0]
        'L3H2'
    """

    most_certain: tuple[Finding, ...]  # at most three
    not_shown: tuple[Finding, ...]  # claims, and studies of heads, with p >= 0.05

    @property
    def rule(self) -> str:
        """How the findings were chosen, in words."""
        return (
            "Of every study, the head that is farthest above its baseline relative to its 95 % interval, or has the smallest "
            "q-value, and the study's claims about the whole model; corrected for all heads, statistics and rows that were "
            "compared, and, where answers are compared, among answers to similar questions only. The three with the smallest "
            "p-values are listed. This is a rule for where to look first, not a ranking of importance."
        )


def certainty_of(datasets: Mapping[str, xr.Dataset]) -> Certainty:
    """The most certain findings of an atlas, and what is not shown.

    Args:
        datasets: by study, as an atlas gives them.

    Returns:
        The findings, most certain first.

    Examples:
        >>> [finding.study for finding in certainty_of({"profile": atlas["profile"]}).most_certain]
        ['profile']
    """
    found = sorted([*_heads(datasets), *_claims(datasets)], key=lambda finding: finding.log_p)
    shown: dict[str, Finding] = {}
    for finding in found:
        if finding.shown:
            shown.setdefault(finding.head or finding.text, finding)
    return Certainty(tuple(shown.values())[:FINDINGS], tuple(finding for finding in found if not finding.shown))


def log_tail(z: float) -> float:
    """The logarithm of the two-sided p-value of a standard normal z, also where the p-value underflows.

    >>> round(math.exp(log_tail(1.959964)), 6), round(log_tail(100.0))
    (0.05, -5005)
    """
    if z < ASYMPTOTIC:
        return math.log(math.erfc(z / math.sqrt(2)))
    return math.log(2) - z * z / 2 - math.log(z * math.sqrt(2 * math.pi))


# ---- heads ----------------------------------------------------------------------------------------------------------


def _heads(datasets: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    """The most certain head of every study that measured heads."""
    try:
        columns = columns_of(datasets)
    except AtlasError:  # no study here measured heads
        return
    for study in columns.studies:
        chosen = list(_with_null([column for column in columns.columns if column.study == study]))
        maps = sum(column.test_q is not None for column in chosen)
        heads = sum(int(np.isfinite(column.values).sum()) for column in chosen if column.test_q is None)
        logs = [_log_p(column, heads, maps) for column in chosen]
        known = [index for index, found in enumerate(logs) if np.isfinite(found).any()]
        if known:
            best = min(known, key=lambda index: np.nanmin(logs[index]))
            row = int(np.nanargmin(logs[best]))
            yield _head_finding(chosen[best], columns.names[row], row, float(logs[best].flat[row]))


def _with_null(columns: Iterable[Column]) -> Iterator[Column]:
    """The columns that take part."""
    columns = [
        column
        for column in columns
        if column.baseline is not None
        and (column.q is not None or (column.low is not None and column.high is not None))
    ]
    columns = [column for column in columns if column.controlled] or columns
    defaults = {name for spec in dataset_specs().values() for name in spec.default_columns}
    yield from [column for column in columns if column.name in defaults] or columns


def _log_p(column: Column, count: int, maps: int) -> np.ndarray:
    """The corrected p-value of every head, as its logarithm; of `count` heads by their intervals, or of `maps` by q-values."""
    q = column.test_q
    if q is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.minimum(np.log(np.where(q > 0, q, np.nan)) + math.log(maps), 0.0)
    logs = [log_tail(z) + math.log(count) if math.isfinite(z) else math.nan for z in _z(column).flat]
    return np.minimum(np.array(logs).reshape(column.values.shape), 0.0)


def _z(column: Column) -> np.ndarray:
    """Standard errors of a number above its baseline; NaN where it is not above, and where the interval has no width."""
    assert column.low is not None and column.high is not None and column.baseline is not None
    width = np.where(column.high > column.low, column.high - column.low, np.nan)
    above = column.values - column.baseline
    return np.where(above > 0, above, np.nan) / (width / (2 * HALF_WIDTH))


def _head_finding(column: Column, head: str, row: int, log_p: float) -> Finding:
    def at(values: np.ndarray | None) -> float:
        return math.nan if values is None else float(values.flat[row])

    value, alike = column.values, ""
    if column.q_within is not None and column.within is not None:
        value, alike = column.within, " among answers to similar questions"
    ends = [at(column.low), at(column.high)]
    digits = 3 if significant(ends[0]) != significant(ends[1]) else 6  # so that an interval does not look like a point
    spread = f" (corrected p = {significant(math.exp(log_p), 2)})"
    if column.test_q is None:
        spread = f" ({significant(ends[0], digits)} to {significant(ends[1], digits)})"
    null = f"against {significant(at(column.baseline))} for {column.baseline_name or 'the baseline'}"
    meaning = column.definition.rpartition("; ")[2]  # the study's own, after that of the statistic
    meaning = f" {meaning[:1].upper()}{meaning[1:]}." if meaning else ""
    text = f"{head}: {column.label} {significant(at(value), digits)}{alike}{spread}, {null}.{meaning}"
    about = ", among answers to similar questions" if column.controlled else ""
    claim = f"that any single head stands out in {column.study.replace('_', ' ')}{about}"
    return Finding(column.study, text, f"{claim} (best corrected p = {significant(math.exp(log_p), 2)})", log_p, head)


# ---- claims about the whole model ------------------------------------------------------------------------------------


def _claims(datasets: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    """Every claim that a spec declares and its Dataset can decide."""
    specs = dataset_specs()
    declared = [(study, claim) for study in datasets if study in specs for claim in specs[study].claims]
    for study, claim in declared:
        found = _numbers(datasets[study], claim)
        if found is None:
            continue
        value, low, high, p = found
        rows = int(np.isfinite(datasets[study][claim.variable].values).sum())
        z = abs(value - claim.level) / ((high - low) / (2 * HALF_WIDTH))
        log_p = log_tail(z) if not 0 < p <= 1 else math.log(p)
        log_p = min(0.0, log_p + math.log(rows)) if value > claim.level else 0.0  # a claim has a direction
        numbers = f"{claim.what} {value:+.3f}, {low:.3f} to {high:.3f}".replace("-", "\N{MINUS SIGN}")
        yield Finding(
            study,
            f"{claim.sentence[:1].upper()}{claim.sentence[1:]}: {numbers}.",
            f"that {claim.sentence} ({numbers}; corrected p = {significant(math.exp(log_p), 2)})",
            log_p,
        )


def _numbers(dataset: xr.Dataset, claim: Claim) -> tuple[float, float, float, float] | None:
    """Value, interval and p-value (NaN: none); None where this Dataset has no such number."""
    names = (claim.variable, f"{claim.variable}_low", f"{claim.variable}_high")
    if any(name not in dataset for name in names):
        return None
    if any(dim not in dataset.coords or entry not in dataset[dim].values for dim, entry in claim.at.items()):
        return None
    value, low, high = (float(dataset[name].sel(claim.at)) for name in names)
    p = float(dataset[f"{claim.variable}_p"].sel(claim.at)) if f"{claim.variable}_p" in dataset else math.nan
    return (value, low, high, p) if math.isfinite(value) and high > low else None
