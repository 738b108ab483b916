"""The figure of a comparison: per column a map of the change, and A against B with one point per head.

With models of different shape: medians over the heads per band of relative depth, with quartiles. By default the columns
are chosen: from every study in turn the one that changed most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from headwise.analysis.changes import ColumnChange, DepthChange, spread_of
from headwise.analysis.comparison import Comparison
from headwise.core.dims import head_name
from headwise.core.errors import StudyError, did_you_mean
from headwise.figures import (
    Axis,
    Category,
    Curve,
    Curves,
    Figure,
    Guide,
    Heatmap,
    Legend,
    Mark,
    Panel,
    Scale,
    Scatter,
    scale_around,
)

Row = TypeVar("Row", ColumnChange, DepthChange)
DEFAULT_COLUMNS = 4
MAX_MARKS = 3
A_COLOUR, B_COLOUR = "#31688e", "#b5500b"
SAME, CHANGED = (
    Category("same", "not significant", "#9a9a9a", "dot"),
    Category("changed", "q < 0.05", B_COLOUR, "dot"),
)
UNTESTED = Category("untested", "no interval", "#31688e", "dot")


def comparison_figure(
    found: Comparison, *, study: str | None = None, columns: Iterable[str] | str | None = None
) -> Figure:
    """What changed, as maps and scatter plots.

    Args:
        found: from `compare`.
        study: whose most changed columns are drawn; None: of all studies.
        columns: to draw, such as "profile.sink".

    Returns:
        The figure.

    Examples:
        >>> from headwise.analysis import compare
        >>> found = compare(atlas, atlas, studies=["profile"])
        >>> [panel.key for panel in comparison_figure(found, columns="profile.sink").panels]
        ['change profile.sink', 'scatter profile.sink', 'legend']
    """
    if not found.same_shape:
        return _by_depth(found, study, columns)
    chosen = _chosen(found.columns, study, columns, [_size(each) for each in found.columns])
    maps = [_map(each) for each in chosen]
    panels: list[Panel] = [*(panel for panel, _ in maps), *(_scatter(each, found) for each in chosen)]
    panels.append(_legend(chosen))
    return Figure(
        title=f"What changed: {found.a} to {found.b}",
        panels=tuple(panels),
        columns=len(chosen),
        scales={panel.key: scale for panel, scale in maps},
        notes=(_note(found, chosen),),
    )


def _map(column: ColumnChange) -> tuple[Heatmap, Scale]:
    change = column.change
    rows, heads = change.shape
    sure = np.where(column.q < 0.05, np.abs(change), np.nan)
    order = np.argsort(-np.nan_to_num(sure, nan=-1.0), axis=None, kind="stable")[:MAX_MARKS]
    cells = [divmod(int(index), heads) for index in order if np.isfinite(sure.flat[index])]
    panel = Heatmap(
        key=f"change {column.name}",
        title=column.label,
        subtitle=f"{column.study}, {_tested(column)}",
        values=change,
        x=Axis("Head", tuple(map(str, range(heads)))),
        y=Axis("Layer", tuple(map(str, range(rows)))),
        scale=f"change {column.name}",
        marks=tuple(Mark(row, head) for row, head in cells),
        extras={"A": column.a, "B": column.b, "standard error": column.noise, "q": column.q},
    )
    return panel, scale_around(change, "B − A", clip=0.99)


def _tested(column: ColumnChange) -> str:
    return f"{column.changed} of {column.tested} heads" if column.tested else "no interval"


def _scatter(column: ColumnChange, found: Comparison) -> Scatter:
    one, other = column.a.ravel(), column.b.ravel()
    heads = column.a.shape[1]
    both = np.isfinite(one) & np.isfinite(other)
    drawn = np.flatnonzero(both)
    groups = tuple(2 if not np.isfinite(q) else int(q < 0.05) for q in column.q.ravel()[drawn])
    size = np.abs(other - one)[drawn]
    far = [point for point in np.argsort(-size, kind="stable")[:MAX_MARKS] if size[point] > 0]
    return Scatter(
        key=f"scatter {column.name}",
        title=column.label,
        subtitle=f"Spearman {column.correlation:.2f}".replace("-", "−") if np.isfinite(column.correlation) else "",
        x_values=one[drawn],
        y_values=other[drawn],
        x=Axis("A"),
        y=Axis("B"),
        names=tuple(head_name(*divmod(int(index), heads)) for index in drawn),
        groups=groups,
        categories=tuple(replace(each, label="") for each in (SAME, CHANGED, UNTESTED)),  # the legend names them
        shown=tuple(int(point) for point in far),
        guides=(Guide("diagonal"),),
    )


def _legend(chosen: list[ColumnChange]) -> Legend:
    kinds = {2 if not each.tested else 1 for each in chosen}
    entries = [*((CHANGED, SAME) if 1 in kinds else ()), *((UNTESTED,) if 2 in kinds else ())]
    return Legend("legend", (*entries, Category("ring", f"the {MAX_MARKS} largest changes with q < 0.05", sign="ring")))


def _note(found: Comparison, chosen: list[ColumnChange]) -> str:
    tests = "; ".join(dict.fromkeys(f"{each.study} {each.test}" for each in chosen if each.test))
    order = (
        f" Rank correlation of A and B within layers: {found.correspondence:.2f}; {found.correspondence_by_chance:.2f} with "
        "permuted heads (95th percentile)."
        if np.isfinite(found.correspondence)
        else ""
    ).replace("-", "−")
    same = "Nothing changed: every number is the same in A and B. " if found.same else ""
    return (
        f"{same}Upper row: B − A per head. Lower row: A against B, one point per head; the line is A = B. q: "
        f"Benjamini-Hochberg over heads{f' ({tests})' if tests else ''}.{order}"
    )


def _by_depth(found: Comparison, study: str | None, columns: Iterable[str] | str | None) -> Figure:
    chosen = _chosen(found.depths, study, columns, [_gap(each) for each in found.depths])
    panels = tuple(_curves(each) for each in chosen)
    legend = Legend(
        "legend", (Category("a", found.a, A_COLOUR, "line"), Category("b", found.b, B_COLOUR, "line")),
    )  # fmt: skip
    return Figure(
        title=f"By depth: {found.a} and {found.b}",
        panels=(*panels, legend),
        columns=min(len(panels), 3),
        notes=(f"Median over the heads per band of depth; shaded: quartiles. {found.reason}.",),
    )


def _curves(one: DepthChange) -> Curves:
    x = np.array(one.depth)
    return Curves(
        key=one.name,
        title=one.label,
        subtitle=f"{one.study}, q {one.q:.2g}",
        curves=(
            Curve("a", "", x, np.array(one.a), np.array(one.a_low), np.array(one.a_high), A_COLOUR),
            Curve("b", "", x, np.array(one.b), np.array(one.b_low), np.array(one.b_high), B_COLOUR),
        ),
        x=Axis("Relative depth", low=0, high=1),
        y=Axis(""),
    )


def _chosen(
    rows: Sequence[Row], study: str | None, columns: Iterable[str] | str | None, sizes: Sequence[float]
) -> list[Row]:
    """The requested columns, or from every study in turn those that changed most."""
    if columns is not None:
        return _named(rows, [columns] if isinstance(columns, str) else list(columns))
    studies = list(dict.fromkeys(row.study for row in rows))
    if study is not None and study not in studies:
        raise StudyError(f"The comparison has no columns of {study!r}. {did_you_mean(study, studies)}")
    order = sorted(range(len(rows)), key=lambda row: -np.nan_to_num(sizes[row], nan=-1.0))
    by_study = [[rows[row] for row in order if rows[row].study == each] for each in studies if study in (None, each)]
    return [row for turn in zip_longest(*by_study) for row in turn if row is not None][:DEFAULT_COLUMNS]


def _named(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    known = {row.name: row for row in rows}
    for name in names:
        if name not in known:
            raise StudyError(f"The comparison has no column {name!r}. {did_you_mean(name, known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _size(column: ColumnChange) -> float:
    """Mean change in units of the column's spread."""
    change = np.abs(column.change)
    return float(np.nanmean(change)) / spread_of(column) if np.isfinite(change).any() else float("nan")


def _gap(one: DepthChange) -> float:
    """Mean distance of the medians, in units of the quartiles' distance."""
    width = np.nanmean([high - low for side in "ab" for low, high in _ends(one, side)])
    gap = np.nanmean(np.abs(np.array(one.b) - np.array(one.a)))
    return float(gap / width) if width > 0 else float("nan")


def _ends(one: DepthChange, side: str) -> list[tuple[float, float]]:
    return list(zip(getattr(one, f"{side}_low"), getattr(one, f"{side}_high"), strict=True))
