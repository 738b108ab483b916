"""A head report on the terminal: what it is, then tables, then what agrees and who is like it.

Texts from data (tokens, words) are escaped: nothing in them is taken for markup. This module does not know how a report is
made.
"""

from __future__ import annotations

import math

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from headwise.analysis import HeadReport
from headwise.analysis.head_facts import Value

__all__ = ["print_head"]

WIDTH = 120  # of a line where there is no terminal
BAR = 10  # cells of a bar of percentiles
PAIRS, TOKENS, TARGETS = 5, 8, 3
VERDICTS = {"agree": "[green]agree[/]", "disagree": "[red]disagree[/]", "open": "[yellow]open[/]"}


def print_head(report: HeadReport) -> None:
    """The whole page."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    console.print(f"[bold]{report.name}[/]  [dim]{escape(report.model)}[/]\n")
    console.print(escape(report.summary))
    for study, values in report.values.items():
        if values:
            _heading(console, study, report.titles.get(study, ""))
            _study(console, values)
    _relations(console, report)
    _functions(console, report)
    _salient(console, report)
    _views(console, report)
    _neighbours(console, report)
    if report.missing:
        _heading(console, "not known", "")
        for study, reason in report.missing.items():
            console.print(_indented(f"{study}: {escape(reason)}"))


def _heading(console: Console, name: str, title: str) -> None:
    beside = f"  [dim]{escape(title)}[/]" if title else ""
    console.print(f"\n[bold]{escape(name)}[/]{beside}")


def _table(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, header in enumerate(headers):
        table.add_column(
            header, justify="left" if place == 0 or header in ("", "pairs") else "right", no_wrap=place == 0
        )
    return table


def _study(console: Console, values: tuple[Value, ...]) -> None:
    """The numbers of a study; those that are the same for all heads are only named."""
    alike = [value for value in values if value.same_for_all]
    if telling := tuple(value for value in values if not value.same_for_all):
        console.print(_values(telling))
    if alike:
        told = ", ".join(f"{value.label.lower()} {_number(value.value)}" for value in alike)
        console.print(_indented(f"[dim]The same for all heads: {escape(told)}.[/]"))


def _values(values: tuple[Value, ...]) -> Padding:
    tested = any(math.isfinite(value.q) for value in values)
    paired = any(math.isfinite(value.q_paired) for value in values)
    tests = (("q",) if tested else ()) + (("q paired",) if paired else ())
    table = _table("", "value", "95 %", "held against", *tests, "percentile", "")
    for value in values:
        against = f"{_number(value.baseline)} {value.baseline_name}" if value.baseline_name else ""
        row = [value.label, _number(value.value), _range(value.low, value.high), against]
        row += [_number(value.q)] if tested else []
        row += [_number(value.q_paired)] if paired else []
        table.add_row(*map(escape, [*row, f"{value.percentile:.0f}", _bar(value.percentile)]))
    return _indented(table)


def _relations(console: Console, report: HeadReport) -> None:
    if not report.relations:
        return
    _heading(console, "relations", f"by its weights: {', '.join(report.categories) or 'unclassified'}")
    table = _table("", "of pairs", "95 %", "shuffled", "right", "pairs")
    for fact in report.relations:
        pairs = ", ".join(f"{source} → {target}" for source, target in fact.examples[:PAIRS])
        name = f"{fact.sign} {fact.relation}" + ("" if fact.over else " (under the threshold)")
        cells = [name, f"{100 * fact.score:.0f} %", _range(fact.low, fact.high), _number(fact.null)]
        table.add_row(*map(escape, [*cells, f"{fact.right}/{fact.pairs}", pairs]))
    console.print(_indented(table))


def _functions(console: Console, report: HeadReport) -> None:
    if not report.functions:
        return
    _heading(console, "functions", report.titles.get("functions", ""))
    table = _table("", "rank", "importance", "95 %", "q", "alone", "its set masked", "at random")
    for fact in report.functions:
        if fact.refused:
            table.add_row(escape(f"{fact.function}: {fact.refused}"))
            continue
        masked = fact.masking
        cells = [
            f"{fact.function}{' *' if fact.chosen else ''}",
            f"{fact.rank}/{fact.of}",
            _number(fact.importance),
            _range(fact.low, fact.high),
            _number(fact.q),
            f"{fact.alone:.2f}",
            f"{100 * masked.own:.0f} % right ({masked.size} heads)" if masked else "",
            f"{100 * masked.random:.0f} %" if masked else "",
        ]
        table.add_row(*map(escape, cells))
    console.print(_indented(table))
    if any(fact.chosen for fact in report.functions):
        console.print("  [dim]* among the function's heads (up to the elbow); alone: AUROC from this head alone[/]")


def _salient(console: Console, report: HeadReport) -> None:
    if not report.salient:
        return
    _heading(console, "salience", report.titles.get("salience", ""))
    for one in report.salient[:TOKENS]:
        targets = ", ".join(repr(text) for text in one.targets[:TARGETS])
        console.print(_indented(escape(f"{one.text!r} ({_number(one.strength)} x) → {targets}")))


def _views(console: Console, report: HeadReport) -> None:
    if not report.views:
        return
    _heading(console, "weights and data", "")
    for view in report.views:
        console.print(_indented(f"{VERDICTS[view.verdict]}  {escape(view.text)}"))


def _neighbours(console: Console, report: HeadReport) -> None:
    if not report.neighbours:
        return
    _heading(console, "similar heads", "")
    for near in report.neighbours:
        chance = f"; by chance {100 * near.by_chance:.2g} %" if math.isfinite(near.by_chance) else ""
        text = f"{near.name}  {near.distance:.2f} away, nearer than {100 * near.nearer_than:.4g} % of pairs{chance}"
        console.print(_indented(escape(text)))
        for word, columns in (("alike in", near.shares), ("unlike in", near.differs)):
            if columns:
                console.print(_indented(f"[dim]{word} {escape(', '.join(columns))}[/]", 9))
    console.print(_indented(f"[dim]{escape(report.neighbours_note)}[/]"))


def _indented(what: RenderableType, by: int = 2) -> Padding:
    return Padding(what, (0, 0, 0, by), expand=False)


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else ""


def _range(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}" if math.isfinite(low) and math.isfinite(high) else ""


def _bar(percentile: float) -> str:
    filled = round(percentile / 100 * BAR) if math.isfinite(percentile) else 0
    return "█" * filled + "░" * (BAR - filled)
