"""The figure of a comparison: per column a map of the change, and A against B with one point per head.

With models of different shape: medians over the heads per band of relative depth, with quartiles. By default the columns
are chosen: from every study in turn the one that changed most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import xarray as xr

from headwise.analysis.changes import CELLS, spreads
from headwise.analysis.comparison import Comparison
from headwise.core.dims import COLUMN, DEPTH, head_name
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
from headwise.figures.head_maps import chosen_keys

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
    known = {each.name: each for each in found.columns or found.depths}
    chosen = [known[name] for name in _chosen(found.dataset, study, columns)]
    if not found.same_shape:
        return _by_depth(found, chosen)
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


def _map(column: Any) -> tuple[Heatmap, Scale]:
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


def _tested(column: Any) -> str:
    return f"{column.changed} of {column.tested} heads" if column.tested else "no interval"


def _scatter(column: Any, found: Comparison) -> Scatter:
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


def _legend(chosen: list[Any]) -> Legend:
    kinds = {2 if not each.tested else 1 for each in chosen}
    entries = [*((CHANGED, SAME) if 1 in kinds else ()), *((UNTESTED,) if 2 in kinds else ())]
    return Legend("legend", (*entries, Category("ring", f"the {MAX_MARKS} largest changes with q < 0.05", sign="ring")))


def _note(found: Comparison, chosen: list[Any]) -> str:
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


def _by_depth(found: Comparison, chosen: list[Any]) -> Figure:
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


def _curves(one: Any) -> Curves:
    return Curves(
        key=one.name,
        title=one.label,
        subtitle=f"{one.study}, q {one.q:.2g}",
        curves=(
            Curve("a", "", one.depth, one.a, one.a_low, one.a_high, A_COLOUR),
            Curve("b", "", one.depth, one.b, one.b_low, one.b_high, B_COLOUR),
        ),
        x=Axis("Relative depth", low=0, high=1),
        y=Axis(""),
    )


def _chosen(data: xr.Dataset, study: str | None, columns: Iterable[str] | str | None) -> list[str]:
    """The requested columns, or from every study in turn those that changed most."""
    if columns is not None:
        return chosen_keys(data, COLUMN, columns, "The comparison")
    studies = list(dict.fromkeys(data["study"].values.tolist()))
    if study is not None and study not in studies:
        raise StudyError(f"The comparison has no columns of {study!r}. {did_you_mean(study, studies)}")
    size = abs(data["change"]).mean(CELLS) / spreads(data) if "change" in data else _gaps(data)
    ordered = data[COLUMN].isel({COLUMN: np.argsort(-size.fillna(-1.0).values, kind="stable")})
    by_study = [ordered[ordered["study"].values == each].values.tolist() for each in studies if study in (None, each)]
    return [name for turn in zip_longest(*by_study) for name in turn if name is not None][:DEFAULT_COLUMNS]


def _gaps(data: xr.Dataset) -> xr.DataArray:
    """Mean distance of the medians per column, in units of the quartiles' distance."""
    width = xr.concat([data[f"{side}_high"] - data[f"{side}_low"] for side in "ab"], "side").mean(("side", DEPTH))
    return abs(data["b"] - data["a"]).mean(DEPTH) / width.where(width > 0)
