"""Two atlases in words: what was compared and what refused, what changed, which heads, and what a re-run would give.

    describe_comparison(compare(a, b)).text()

Every number is kept, with what it is, in `Words.numbers`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from headwise.analysis.changes import ColumnChange
from headwise.analysis.comparison import Comparison
from headwise.describe.words import Words, Writer, listed

__all__ = ["describe_comparison"]

MOST = 6  # columns told
TINY = 0.001  # q-values below are not written out
HEADS = 5


def describe_comparison(found: Comparison) -> Words:
    """What changed from A to B, in words.

    Args:
        found: what `compare` gave.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import compare
        >>> describe_comparison(compare(atlas, atlas, studies=["profile"])).headline.partition(":")[0]
        'Nothing changed from SmolLM2-135M-Instruct (atlas) to SmolLM2-135M-Instruct (atlas)'
    """
    writer = Writer(f"What changed: {found.a} to {found.b}")
    headline = _lead(writer, found) if found.same_shape else _depths_lead(writer, found)
    writer.say("overview", headline)
    _say_overview(writer, found)
    if not found.same_shape:
        _say_depths(writer, found)
    elif not found.same:
        _say_axes(writer, found)
        _say_columns(writer, found)
        _say_heads(writer, found)
        _say_places(writer, found)
    _say_caveats(writer, found)
    return writer.finish(headline)


def _lead(writer: Writer, found: Comparison) -> str:
    """The one sentence: what changed most, or that nothing did."""
    between = f"from {found.a} to {found.b}"
    if found.same:
        columns = writer.count(sum(column.measured for column in found.columns), "columns", "column")
        heads = writer.count(len(found.heads), "heads", "head")
        return f"Nothing changed {between}: all numbers ({columns}, {heads}) are the same in both, to the last digit."
    if found.heads.empty:
        return f"What changed {between} cannot be told: no head has numbers in both."
    if found.within_noise:
        total = writer.count(found.tested, "tested", "")
        text = f"Nothing changed beyond noise {between}: none of {total} head x column values has q < 0.05"
    else:
        names = listed([str(name) for name in _most(found).index])
        text = f"The heads that changed most {between} are {names}"
        if found.tested and not found.changed:
            text += ", by columns without intervals: none of the values that can be tested has q < 0.05"
    middle = float(found.heads["times"].median())
    if np.isfinite(middle):
        times = writer.number(middle, "times median", digits=2)
        text += f"; the median head changed {times} times as much as a re-run without any change would show"
    return f"{text}."


def _most(found: Comparison) -> pd.DataFrame:
    """The heads that changed most: of those with a value beyond noise, where there are such."""
    heads = found.heads
    return heads[heads["changed"] > 0 if found.changed else heads["change"] > 0].head(HEADS)


def _say_overview(writer: Writer, found: Comparison) -> None:
    columns = [column.study for column in found.columns] or [one.study for one in found.depths]
    compared = list(dict.fromkeys(columns))
    writer.say("overview", f"A is {found.a}, B is {found.b}; held against each other: {listed(compared)}.")
    facts = [text for text in found.models if not text.startswith(("digest", "tokenizer"))]
    differs = "" if found.same else ", so what differs is of the measurement"
    same = f"Both are of the same weights{differs}." if not found.models else ""
    writer.say("overview", f"The models differ in {'; '.join(facts)}." if facts else same)
    for warning in found.warnings:
        writer.say("overview", f"Mind {warning}.")
    if found.reason:
        writer.say("overview", f"{found.reason[0].upper()}{found.reason[1:]}.")
    for status in ("refused", "only in A", "only in B"):
        own = [match for match in found.studies if match.status == status]
        if not own:
            continue
        told = [f"{match.study} ({match.reason})" if status == "refused" else match.study for match in own]
        writer.say("overview", f"{status.capitalize().replace(' a', ' A').replace(' b', ' B')}: {listed(told)}.")


def _say_axes(writer: Writer, found: Comparison) -> None:
    layers, heads = found.columns[0].a.shape
    writer.say(
        "axes",
        f"Maps of the change are B less A, {writer.count(layers, 'layers', 'layer')} of "
        f"{writer.count(heads, 'heads', 'head')}; below each, A against B with one point a head.",
    )


def _say_columns(writer: Writer, found: Comparison) -> None:
    tested = [column for column in found.columns if column.tested]
    moved = sorted((column for column in tested if column.changed), key=lambda column: -column.changed / column.tested)
    for column in moved[:MOST]:
        writer.say("detail", _told(writer, column))
    writer.say("detail", _rest(writer, len(tested), len(moved)))
    for match in found.studies:
        own = [column for column in tested if column.study == match.study]
        if not own:
            continue
        changed = sum(column.changed for column in own)
        total = sum(column.tested for column in own)
        kept = [column.correlation for column in own if np.isfinite(column.correlation)]
        tests = {column.test for column in own}
        test = own[0].test if len(tests) == 1 else " or ".join(sorted({text.split(" over ")[0] for text in tests}))
        text = (
            f"{match.study}: {writer.percent(changed / total, f'changed {match.study}')} of "
            f"{writer.count(total, f'tested {match.study}')} head x column values changed (q < 0.05, {test})"
        )
        if kept:
            middle = writer.fixed(float(np.median(kept)), f"correlation {match.study}")
            text += f"; the order of heads correlates at {middle} (median column)"
        writer.say("observations", f"{text}.")


def _rest(writer: Writer, tested: int, moved: int) -> str:
    """What is not told of the columns."""
    if not tested:
        return ""
    if not moved:
        return f"None of {writer.count(tested, 'columns tested', 'column')} changed in any head (q < 0.05)."
    parts = []
    if moved > MOST:
        parts.append(
            f"{writer.count(moved - MOST, 'columns left out', 'more column')} changed, in as many heads or fewer"
        )
    if tested > moved:
        parts.append(f"{writer.count(tested - moved, 'columns unchanged', 'column')} changed in no head (q < 0.05)")
    return f"{'; '.join(parts)}." if parts else ""


def _told(writer: Writer, column: ColumnChange) -> str:
    count = writer.count(column.changed, f"changed {column.name}")
    total = writer.count(column.tested, f"tested {column.name}", "head")
    mean = writer.number(column.mean_change, f"mean_change {column.name}", digits=2)
    place = int(np.nanargmax(np.abs(column.change)))
    head = f"L{place // column.a.shape[1]}H{place % column.a.shape[1]}"
    one, other = (
        writer.number(float(side.flat[place]), f"{name} {column.name} {head}", digits=2)
        for name, side in (("a", column.a), ("b", column.b))
    )
    order = ""
    if np.isfinite(column.correlation):
        order = f"; rank correlation {writer.fixed(column.correlation, f'correlation {column.name}')}"
    return (
        f"{column.label} ({column.name}): {count} of {total} changed (q < 0.05, {column.test}), mean change {mean}; most "
        f"{head}, {one} to {other}; intervals apart in {writer.count(column.beyond, f'beyond {column.name}', 'head')}{order}."
    )


def _say_heads(writer: Writer, found: Comparison) -> None:
    """The heads that changed most; none where all of it is noise."""
    if found.within_noise:
        return
    top = _most(found)
    for name, row in top.iterrows():
        change, noise = (writer.number(float(row[key]), f"{key} {name}", digits=2) for key in ("change", "noise"))
        beside = f" (a re-run would give {noise})" if np.isfinite(row["noise"]) else ""
        columns = writer.count(int(row["changed"]), f"changed {name}", "column")
        writer.say(
            "observations",
            f"{name} changed by {change} standard deviations{beside}, {columns} with q < 0.05: {row['columns']}.",
        )
    sure = int((found.heads["changed"] > 0).sum())
    if sure > len(top):
        left = writer.count(sure - len(top), "heads left out", "more head")
        writer.say("observations", f"{left} changed in at least one column (q < 0.05), and less than these.")


def _say_places(writer: Writer, found: Comparison) -> None:
    if not np.isfinite([found.correspondence, found.correspondence_by_chance]).all():
        writer.say(
            "observations", "Whether heads kept their places cannot be told: no column orders the heads of both."
        )
        return
    kept = writer.fixed(found.correspondence, "correspondence")
    chance = writer.fixed(found.correspondence_by_chance, "correspondence_by_chance")
    sure = found.correspondence > found.correspondence_by_chance
    verdict = "heads kept their places" if sure else "that heads of the same name are the same heads is not shown"
    writer.say(
        "observations",
        f"Within layers the heads of A and B rank alike at {kept} (mean over columns; 95 % of shuffles of B's heads stay below "
        f"{chance}): {verdict}.",
    )


def _depths_lead(writer: Writer, found: Comparison) -> str:
    unlike = writer.count(sum(one.q < 0.05 for one in found.depths), "q < 0.05")
    total = writer.count(len(found.depths), "columns", "column")
    return f"{unlike} of {total} differ in distribution over heads (q < 0.05)."


def _say_depths(writer: Writer, found: Comparison) -> None:
    order = sorted(found.depths, key=lambda one: one.p)
    for one in order[:MOST]:
        a, b = (
            writer.number(float(np.nanmedian(side)), f"{name} {one.name}", digits=2)
            for name, side in (("a", one.a), ("b", one.b))
        )
        small = one.q < TINY
        q = f"below {writer.number(TINY, 'constant')}" if small else writer.number(one.q, f"q {one.name}", digits=2)
        writer.say("detail", f"{one.label} ({one.name}): median over bands {a} in A and {b} in B (q {q}).")
    if len(order) > MOST:
        left = writer.count(len(order) - MOST, "columns left out", "more column")
        writer.say("detail", f"{left}, of larger p, not told here.")


def _say_caveats(writer: Writer, found: Comparison) -> None:
    if found.same_shape and not found.same:
        writer.say(
            "caveats",
            "Heads are compared by place, which means something only if one model was made from the other. Standard deviations "
            "are those of a column over the heads of both; studies count equally. A re-run means other examples of the same "
            "kind: on the very same ones nothing would change.",
        )
    elif not found.same_shape:
        writer.say("caveats", "The test takes heads for independent, which those of one layer are not.")
    untested = [column.name for column in found.columns if column.measured and not column.tested]
    if untested:
        writer.say("caveats", f"Without intervals, so not tested: {_named(writer, untested, 'untested')}.")
    missing = [column.name for column in found.columns if not column.measured]
    if missing:
        writer.say("caveats", f"Not measured in both, so not compared: {_named(writer, missing, 'not measured')}.")


def _named(writer: Writer, names: list[str], of: str) -> str:
    rest = len(names) - MOST
    return listed([*names[:MOST], writer.count(rest, of, "more column")] if rest > 0 else names)
