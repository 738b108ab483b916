"""A comparison of two atlases in words: what was compared, what changed, in which heads, next to the noise of the texts.

describe_comparison(compare(a, b)).text()
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headwise.analysis.changes import CELLS
from headwise.analysis.comparison import Comparison
from headwise.core.dims import COLUMN, head_name
from headwise.describe.writer import Description, Writer, listed

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
