"""A comparison of two atlases as a figure and in words.

Figure: per column a map of the change, and A against B with one point per head. With models of different shape: medians over
the heads per band of relative depth, with quartiles. By default the columns are chosen: from every study in turn the one that
changed most.

Words: what was compared, what changed, in which heads, next to the noise of the texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.analysis.changes import CELLS, spreads
from headwise.analysis.comparison import Comparison
from headwise.core.dims import COLUMN, DEPTH, head_name
from headwise.core.errors import StudyError, did_you_mean
from headwise.describe.writer import Description, Writer, listed
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


MAX_COLUMNS = 6  # reported one by one
MAX_HEADS = 5
SMALLEST_Q = 0.001  # smaller ones are written as below this


def describe_comparison(found: Comparison) -> Description:
    """What changed from A to B, in words.

    Args:
        found: from `compare`.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import compare
        >>> describe_comparison(compare(atlas, atlas, studies=["profile"])).headline.partition(":")[0]
        'Nothing changed from SmolLM2-135M-Instruct (atlas) to SmolLM2-135M-Instruct (atlas)'
    """
    writer = Writer(f"What changed: {found.a} to {found.b}")
    headline = _headline(writer, found) if found.same_shape else _depths_headline(writer, found)
    writer.add("overview", headline)
    _add_overview(writer, found)
    if not found.same_shape:
        _add_depths(writer, found)
    elif not found.same:
        _add_axes(writer, found)
        _add_columns(writer, found)
        _add_heads(writer, found)
        _add_order(writer, found)
    _add_caveats(writer, found)
    return writer.finish(headline)


def _headline(writer: Writer, found: Comparison) -> str:
    """What changed most, or that nothing did."""
    between = f"from {found.a} to {found.b}"
    if found.same:
        columns = writer.count(len(_measured(found)), "columns", "column")
        heads = writer.count(len(found.heads), "heads", "head")
        return f"Nothing changed {between}: all numbers ({columns}, {heads}) are identical."
    if found.heads.empty:
        return f"What changed {between} is unknown: no head has numbers in both."
    if found.within_noise:
        total = writer.count(found.tested, "tested", "")
        text = f"Nothing changed beyond noise {between}: none of {total} head x column values has q < 0.05"
    else:
        names = listed([str(name) for name in _most_changed(found).index])
        text = f"The heads that changed most {between} are {names}"
        if found.tested and not found.changed:
            text += ", by columns without intervals: none of the values that can be tested has q < 0.05"
    middle = float(found.heads["times"].median())
    if np.isfinite(middle):
        times = writer.number(middle, "times median", digits=2)
        text += f"; the median head changed {times} times as much as expected on other texts of the same kind"
    return f"{text}."


def _most_changed(found: Comparison) -> pd.DataFrame:
    """The heads that changed most: of those with a value beyond noise, where there are such."""
    heads = found.heads
    return heads[heads["changed"] > 0 if found.changed else heads["change"] > 0].head(MAX_HEADS)


def _add_overview(writer: Writer, found: Comparison) -> None:
    compared = dict.fromkeys(found.dataset["study"].values.tolist())
    writer.add("overview", f"A is {found.a}, B is {found.b}; compared: {listed(compared)}.")
    facts = [text for text in found.models if not text.startswith(("digest", "tokenizer"))]
    differs = "" if found.same else ", so differences come from the measurement"
    same = f"Both have the same weights{differs}." if not found.models else ""
    writer.add("overview", f"The models differ in {'; '.join(facts)}." if facts else same)
    for warning in found.warnings:
        writer.add("overview", f"Note: {warning}.")
    if found.reason:
        writer.add("overview", f"{found.reason[0].upper()}{found.reason[1:]}.")
    for status in ("refused", "only in A", "only in B"):
        own = [match for match in found.studies if match.status == status]
        if not own:
            continue
        named = [f"{match.study} ({match.reason})" if status == "refused" else match.study for match in own]
        writer.add("overview", f"{status.capitalize().replace(' a', ' A').replace(' b', ' B')}: {listed(named)}.")


def _add_axes(writer: Writer, found: Comparison) -> None:
    layers, heads = (found.dataset.sizes[dim] for dim in CELLS)
    writer.add(
        "axes",
        f"The maps show B − A, {writer.count(layers, 'layers', 'layer')} of "
        f"{writer.count(heads, 'heads', 'head')}; below each, A against B with one point per head.",
    )


def _add_columns(writer: Writer, found: Comparison) -> None:
    tested = [column for column in found.columns if column.tested]
    moved = sorted((column for column in tested if column.changed), key=lambda column: -column.changed / column.tested)
    for column in moved[:MAX_COLUMNS]:
        writer.add("detail", _column(writer, column))
    writer.add("detail", _rest(writer, len(tested), len(moved)))
    for match in found.studies:
        own = [column for column in tested if column.study == match.study]
        if not own:
            continue
        changed = sum(column.changed for column in own)
        total = sum(column.tested for column in own)
        correlations = [column.correlation for column in own if np.isfinite(column.correlation)]
        tests = {column.test for column in own}
        test = own[0].test if len(tests) == 1 else " or ".join(sorted({text.split(" over ")[0] for text in tests}))
        text = (
            f"{match.study}: {writer.percent(changed / total, f'changed {match.study}')} of "
            f"{writer.count(total, f'tested {match.study}')} head x column values changed (q < 0.05, {test})"
        )
        if correlations:
            middle = writer.fixed(float(np.median(correlations)), f"correlation {match.study}")
            text += f"; the rank correlation of A and B is {middle} (median column)"
        writer.add("observations", f"{text}.")


def _rest(writer: Writer, tested: int, moved: int) -> str:
    """The columns that are not reported one by one."""
    if not tested:
        return ""
    if not moved:
        return f"None of {writer.count(tested, 'columns tested', 'column')} changed in any head (q < 0.05)."
    parts = []
    if moved > MAX_COLUMNS:
        parts.append(
            f"{writer.count(moved - MAX_COLUMNS, 'columns left out', 'more column')} changed, in as many heads or fewer"
        )
    if tested > moved:
        parts.append(f"{writer.count(tested - moved, 'columns unchanged', 'column')} changed in no head (q < 0.05)")
    return f"{'; '.join(parts)}." if parts else ""


def _column(writer: Writer, column: Any) -> str:
    count = writer.count(column.changed, f"changed {column.name}")
    total = writer.count(column.tested, f"tested {column.name}", "head")
    mean = writer.number(column.mean_change, f"mean_change {column.name}", digits=2)
    index = int(np.nanargmax(np.abs(column.change)))
    head = head_name(*divmod(index, column.a.shape[1]))
    one, other = (
        writer.number(float(side.flat[index]), f"{name} {column.name} {head}", digits=2)
        for name, side in (("a", column.a), ("b", column.b))
    )
    order = ""
    if np.isfinite(column.correlation):
        order = f"; rank correlation {writer.fixed(column.correlation, f'correlation {column.name}')}"
    apart = writer.count(column.beyond, f"beyond {column.name}", "head")
    return (
        f"{column.label} ({column.name}): {count} of {total} changed (q < 0.05, {column.test}), mean change {mean}; most "
        f"{head}, {one} to {other}; the confidence intervals of {apart} do not overlap{order}."
    )


def _add_heads(writer: Writer, found: Comparison) -> None:
    """The heads that changed most; none where nothing is significant."""
    if found.within_noise:
        return
    top = _most_changed(found)
    for name, row in top.iterrows():
        change, noise = (writer.number(float(row[key]), f"{key} {name}", digits=2) for key in ("change", "noise"))
        expected = f" (expected on other texts of the same kind: {noise})" if np.isfinite(row["noise"]) else ""
        columns = writer.count(int(row["changed"]), f"changed {name}", "column")
        writer.add(
            "observations",
            f"{name} changed by {change} standard deviations{expected}, {columns} with q < 0.05: {row['columns']}.",
        )
    sure = int((found.heads["changed"] > 0).sum())
    if sure > len(top):
        left = writer.count(sure - len(top), "heads left out", "more head")
        writer.add("observations", f"{left} changed in at least one column (q < 0.05).")


def _add_order(writer: Writer, found: Comparison) -> None:
    if not np.isfinite([found.correspondence, found.correspondence_by_chance]).all():
        writer.add("observations", "Whether heads correspond is unknown: no column ranks the heads of both.")
        return
    observed = writer.fixed(found.correspondence, "correspondence")
    chance = writer.fixed(found.correspondence_by_chance, "correspondence_by_chance")
    sure = found.correspondence > found.correspondence_by_chance
    verdict = (
        "heads with the same name correspond" if sure else "it is not shown that heads with the same name correspond"
    )
    writer.add(
        "observations",
        f"The rank correlation of A and B within layers is {observed} (mean over columns; 95th percentile with B's heads "
        f"permuted: {chance}): {verdict}.",
    )


def _depths_headline(writer: Writer, found: Comparison) -> str:
    different = writer.count(sum(one.q < 0.05 for one in found.depths), "q < 0.05")
    total = writer.count(len(found.depths), "columns", "column")
    return f"{different} of {total} differ in their distribution over heads (q < 0.05)."


def _add_depths(writer: Writer, found: Comparison) -> None:
    order = sorted(found.depths, key=lambda one: one.p)
    for one in order[:MAX_COLUMNS]:
        a, b = (
            writer.number(float(np.nanmedian(side)), f"{name} {one.name}", digits=2)
            for name, side in (("a", one.a), ("b", one.b))
        )
        small = one.q < SMALLEST_Q
        q = (
            f"below {writer.number(SMALLEST_Q, 'constant')}"
            if small
            else writer.number(one.q, f"q {one.name}", digits=2)
        )
        writer.add("detail", f"{one.label} ({one.name}): median over bands {a} in A and {b} in B (q {q}).")
    if len(order) > MAX_COLUMNS:
        left = writer.count(len(order) - MAX_COLUMNS, "columns left out", "more column")
        writer.add("detail", f"{left} with larger p.")


def _add_caveats(writer: Writer, found: Comparison) -> None:
    if found.same_shape and not found.same:
        writer.add(
            "caveats",
            "Heads are matched by index, which is meaningful only if one model was made from the other. Standard deviations "
            "are those of a column over the heads of both; studies count equally. The expected change is that of the same "
            "model on other texts of the same kind; on identical texts nothing would change.",
        )
    elif not found.same_shape:
        writer.add("caveats", "The test treats heads as independent, which heads of one layer are not.")
    measured = _measured(found)
    untested = [column.name for column in found.columns if column.name in measured and not column.tested]
    if untested:
        writer.add("caveats", f"No confidence interval, so not tested: {_named(writer, untested, 'untested')}.")
    missing = [column.name for column in found.columns if column.name not in measured]
    if missing:
        writer.add("caveats", f"Not measured in both, so not compared: {_named(writer, missing, 'not measured')}.")


def _measured(found: Comparison) -> list[str]:
    """The columns in which any head has a number in both."""
    data = found.dataset
    names: list[str] = data[COLUMN].values[data["change"].notnull().any(CELLS)].tolist() if found.same_shape else []
    return names


def _named(writer: Writer, names: list[str], source: str) -> str:
    rest = len(names) - MAX_COLUMNS
    return listed([*names[:MAX_COLUMNS], writer.count(rest, source, "more column")] if rest > 0 else names)
