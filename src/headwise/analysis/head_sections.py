"""A head report as titled tables and lists: what the terminal and the notebook print, so that they cannot disagree.

    for section in sections_of(report): section.title, section.header, section.rows, section.lines, section.footnotes
    head_html(report)                 # the same as a notebook's card, with the attention maps

Cells are formatted text; nothing is escaped yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headwise.core.markup import Html, card, image, listing, paragraph, table
from headwise.figures import Scale
from headwise.figures.thumbnail import coloured, png
from headwise.figures.tiles import HIDDEN, LEVELS

if TYPE_CHECKING:
    from headwise.analysis.head_facts import HeadReport, Measurement
    from headwise.studies.patterns.heads import PatternMaps

PERCENTILE = "percentile"  # the column that the terminal draws as a bar
TESTS = {"q": "q", "within": "similar questions", "q_within": "q, similar", "q_matched": "q, same length"}  # columns
ALIKE = (
    "Similar questions: the same number among answers to questions of one stratum (topic and difficulty where known)."
)
MAX_PAIRS, MAX_TOKENS, MAX_TARGETS = 5, 8, 3
MAP_WIDTH = 180  # CSS pixels
MAX_PROMPT_LETTERS = 120
_SCALE = Scale("Attention weight", 0.0, 1.0, "Blues")


@dataclass(frozen=True)
class HeadSection:
    """One part of a head report."""

    title: str
    note: str = ""  # next to the title
    header: tuple[str, ...] = ()  # of the table
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()  # under the table
    footnotes: tuple[str, ...] = ()


def sections_of(report: HeadReport) -> Iterator[HeadSection]:
    """Values by study, relations, functions, salient tokens, consistency, similar heads, missing studies."""
    for study, values in report.values.items():
        if values:
            yield _values(study, report.titles.get(study, ""), values)
    if report.relations:
        yield _relations(report)
    if report.functions:
        yield _functions(report)
    if report.salient:
        lines = (
            f"{one.text!r} ({_number(one.strength)} x) → {', '.join(repr(text) for text in one.targets[:MAX_TARGETS])}"
            for one in report.salient[:MAX_TOKENS]
        )
        yield HeadSection("salience", report.titles.get("salience", ""), lines=tuple(lines))
    if report.consistency:
        checks = tuple((check.verdict, check.text) for check in report.consistency)
        yield HeadSection("weights and data", header=("", ""), rows=checks)
    if report.neighbours:
        yield _neighbours(report)
    if report.missing:
        lines = (f"{study}: {reason}" for study, reason in report.missing.items())
        yield HeadSection("not measured", lines=tuple(lines))


def head_html(report: HeadReport) -> Html:
    """The report as a notebook's card."""
    parts = [paragraph(report.summary)]
    if report.patterns is not None:
        prompt = "".join(report.patterns.tokens)
        prompt = prompt if len(prompt) <= MAX_PROMPT_LETTERS else f"{prompt[: MAX_PROMPT_LETTERS - 1]}…"
        parts += [Html("".join(_map(maps, report.name) for maps in report.patterns.maps))]
        parts += [paragraph(f"Its attention in “{prompt}”", quiet=True)]
    for section in sections_of(report):
        inside = [table(section.rows, header=section.header)] if section.rows else []
        inside += [listing(section.lines)] if section.lines else []
        inside += [paragraph(note, quiet=True) for note in section.footnotes]
        parts.append(card(section.title, *inside, note=section.note))
    return card(f"{report.name} of {report.model}", *parts, note=f"layer {report.layer}, head {report.head}")


def _values(study: str, title: str, values: Sequence[Measurement]) -> HeadSection:
    """Constant columns are only named under the table."""
    constant = [value for value in values if value.same_for_all]
    varying = [value for value in values if not value.same_for_all]
    tests = [name for name in TESTS if any(math.isfinite(getattr(value, name)) for value in varying)]
    rows = []
    for value in varying:
        baseline = f"{_number(value.baseline)} {value.baseline_name}" if value.baseline_name else ""
        cells = [
            value.label,
            f"{_number(value.value)} {value.unit}".strip(),
            _interval(value.low, value.high),
            baseline,
        ]
        cells += [_number(getattr(value, name)) for name in tests]
        rows.append((*cells, f"{value.percentile:.0f}"))
    named = ", ".join(f"{value.label} {_number(value.value)}" for value in constant)
    header = ("", "value", "95 % CI", "baseline", *(TESTS[name] for name in tests), PERCENTILE)
    footnotes = ((f"The same for all heads: {named}.",) if constant else ()) + ((ALIKE,) if "q_within" in tests else ())
    return HeadSection(study, title, *_without_empty(header, rows), footnotes=footnotes)


def _relations(report: HeadReport) -> HeadSection:
    rows = []
    for fact in report.relations:
        pairs = ", ".join(f"{source} → {target}" for source, target in fact.examples[:MAX_PAIRS])
        name = f"{fact.sign} {fact.relation}" + ("" if fact.over else " (below the threshold)")
        share = (f"{100 * fact.score:.0f} %", _interval(fact.low, fact.high), _number(fact.null))
        rows.append((name, *share, f"{fact.right}/{fact.pairs}", pairs))
    note = f"categories by its weights: {', '.join(report.categories) or 'none'}"
    header = ("", "score", "95 % CI", "score, targets shuffled", "correct", "pairs")
    return HeadSection("relations", note, *_without_empty(header, rows))


def _functions(report: HeadReport) -> HeadSection:
    rows: list[tuple[str, ...]] = []
    for fact in report.functions:
        if fact.refused:
            rows.append((f"{fact.function}: {fact.refused}",))
            continue
        masked = fact.masking
        rows.append(
            (
                f"{fact.function}{' *' if fact.chosen else ''}",
                f"{fact.rank}/{fact.n_heads}",
                _number(fact.importance),
                _interval(fact.low, fact.high),
                _number(fact.q),
                f"{fact.alone:.2f}",
                f"{100 * masked.own:.0f} % ({masked.size} heads)" if masked else "",
                f"{100 * masked.random:.0f} %" if masked else "",
            )
        )
    header = (
        "", "rank", "importance", "95 % CI", "q", "AUROC alone", "accuracy, function masked", "accuracy, random heads masked",
    )  # fmt: skip
    star = "* belongs to the function's heads; AUROC alone: of a probe on this head only"
    starred = any(fact.chosen for fact in report.functions)
    title = report.titles.get("functions", "")
    return HeadSection("functions", title, *_without_empty(header, rows), footnotes=(star,) if starred else ())


def _neighbours(report: HeadReport) -> HeadSection:
    lines = []
    for near in report.neighbours:
        chance = f"; a head this close occurs by chance for {100 * near.by_chance:.2g} % of heads"
        share = f"smaller than in {100 * near.closer_than:.4g} % of pairs of heads"
        text = f"{near.name}  distance {near.distance:.2f} ({share}{chance if math.isfinite(near.by_chance) else ''})"
        similar = f"; similar in {', '.join(near.shares)}" if near.shares else ""
        lines.append(text + similar + (f"; different in {', '.join(near.differs)}" if near.differs else ""))
    return HeadSection("similar heads", lines=tuple(lines), footnotes=(report.neighbours_note,))


def _without_empty(
    header: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A table without the columns that are empty in every row; the first column names the rows."""
    columns = [
        index for index in range(len(header)) if not index or any(row[index : index + 1] > ("",) for row in rows)
    ]
    return tuple(header[index] for index in columns), tuple(
        tuple(row[index] for index in columns if index < len(row)) for row in rows
    )


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else ""


def _interval(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}" if math.isfinite(low) and math.isfinite(high) else ""


def _map(maps: PatternMaps, name: str) -> str:
    weights = np.where(maps.shown == HIDDEN, np.nan, maps.shown / (LEVELS - 1))
    picture = png(coloured(weights, _SCALE))
    drawn = image(picture, "image/png", f"Attention map of {name}, {maps.name}", width=MAP_WIDTH, pixels=True)
    return f'<span style="display:inline-block;margin:4px 14px 4px 0">{drawn}{paragraph(maps.name, quiet=True)}</span>'
