"""A head's head_report in a notebook's cell: what it is in a sentence, its maps, and every number with what to hold it against.

A value stands with its interval, its baseline, its place among all heads and its q-value, where it has them. This module does
not know how anything was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from headwise.core.markup import Html, card, image, listing, paragraph, table
from headwise.describe.words import significant
from headwise.figures import Scale
from headwise.figures.thumbnail import coloured, png
from headwise.figures.tiles import HIDDEN, LEVELS

if TYPE_CHECKING:
    from headwise.analysis.head_facts import HeadReport, PatternMaps, Value

HEADER = ("", "value", "95 % interval", "against", "percentile", "q")
LEAST = 0.0001  # of a q-value that is written out
WIDTH = 180  # CSS pixels of a map
SCALE = Scale("Attention weight", 0.0, 1.0, "Blues")


def head_html(report: HeadReport) -> Html:
    """The card of one head."""
    parts = [paragraph(report.summary)]
    if report.patterns is not None:
        parts += [Html("".join(_map(maps, report.name) for maps in report.patterns.maps))]
        parts += [paragraph(f"Its attention in “{_cut(''.join(report.patterns.tokens))}”", quiet=True)]
    for study, values in report.values.items():
        measured = [value for value in values if math.isfinite(value.value)]
        if measured:
            parts += [card(report.titles.get(study, study), table(map(_row, measured), header=HEADER))]
    parts += list(_joined(report))
    return card(f"{report.name} of {report.model}", *parts, note=f"layer {report.layer}, head {report.head}")


def _joined(report: HeadReport) -> Iterator[Html]:
    if report.views:
        yield card("Weights and data", listing(f"{view.verdict.capitalize()}: {view.text}" for view in report.views))
    if report.neighbours:
        yield paragraph(f"Most like it: {', '.join(near.name for near in report.neighbours)}.")
    for study, reason in report.missing.items():
        yield paragraph(f"{study}: {reason}", quiet=True)


def _row(value: Value) -> tuple[str, ...]:
    known = math.isfinite(value.low) and math.isfinite(value.high)
    against = f"{_number(value.baseline)} {value.baseline_name}" if math.isfinite(value.baseline) else ""
    return (
        value.label,
        f"{_number(value.value)} {value.unit}".strip(),
        f"{_number(value.low)} to {_number(value.high)}" if known else "",
        against.strip(),
        _number(value.percentile),
        f"< {LEAST}" if value.q < LEAST else _number(value.q),
    )


def _number(value: float) -> str:
    return significant(value) if math.isfinite(value) else ""


def _map(maps: PatternMaps, name: str) -> str:
    weights = np.where(maps.shown == HIDDEN, np.nan, maps.shown / (LEVELS - 1))
    drawn = image(
        png(coloured(weights, SCALE)), "image/png", f"Attention map of {name}, {maps.name}", width=WIDTH, pixels=True
    )
    return f'<span style="display:inline-block;margin:4px 14px 4px 0">{drawn}{paragraph(maps.name, quiet=True)}</span>'


def _cut(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
