"""An atlas over training as a figure and in words.

Figure: a film strip and curves. One row per column of the head table: first the curves over all checkpoints (the heads that
emerged, with their 95 % intervals over texts, and the median of all heads), then the layer x head map at some of the steps,
all on one scale. The last row has the losses that the trainer recorded. The steps of the maps divide the change of all maps
into equal parts, so that the strip shows most frames where most happens. The axis of steps is logarithmic; step 0 stands at
its left end.

Words: which heads emerged, between which steps, what came before what, and the losses meanwhile. Sources of numbers are named
by column and head: "by profile.induction L1H3", "last profile.induction L1H3", "order profile.previous profile.induction".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from headwise.analysis.training_course import HALF, MIN_RATIO, SURE, Course, Emergence, HeadEmergence, Order
from headwise.core.errors import StudyError
from headwise.describe.narrative import reading
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
    ScaleMark,
    scale_over,
)

FRAMES = 5  # maps per column, by default
CURVES = 3  # heads that emerged, drawn one by one
COLOURS = ("#34688d", "#ae4b04", "#2b9853")
LOSSES = ("#7950a6", "#98792f", "#be316c", "#24acb1")
MIDDLE = "#8f8f8d"


def emergence_figure(found: Emergence, *, steps: Iterable[int] | None = None) -> Figure:
    """The course of training as curves and maps.

    Args:
        found: from `emergence`.
        steps: of the maps; None: `FRAMES` of them, chosen so that equally much changes between neighbours.

    Returns:
        The figure.

    Examples:
        >>> from headwise.analysis import emergence
        >>> found = emergence(hw.TrainingAtlas({0: atlas, 128: atlas}), columns="profile.induction")
        >>> [panel.key for panel in emergence_figure(found).panels]
        ['profile.induction', 'profile.induction 0', 'profile.induction 128', 'legend']
    """
    panels: list[Panel] = []
    scales: dict[str, Scale] = {}
    drawn = [course for course in found.courses if course.heads] or list(found.courses)
    frames = _frames(found, drawn, steps)
    for course in drawn:
        scales[course.name] = _scale(course)
        panels.append(_curves(found, course))
        panels += [_map(found, course, frame) for frame in frames]
    losses = _loss_curves(found)
    return Figure(
        title=f"Heads through training: {found.name}",
        panels=(*panels, *losses, _legend(found)),
        columns=1 + len(frames),
        scales=scales,
        notes=(_note(found, [course.label for course in found.courses if all(course is not one for one in drawn)]),),
        provenance=found.provenance,
    )


def _frames(found: Emergence, drawn: Sequence[Course], steps: Iterable[int] | None) -> list[int]:
    """Indices of the checkpoints whose maps are drawn."""
    if steps is not None:
        wanted = sorted(set(steps))
        unknown = [step for step in wanted if step not in found.steps]
        if unknown or not wanted:
            raise StudyError(
                f"There is no checkpoint of step {unknown[0] if unknown else 'none'}; there are "
                f"{', '.join(map(str, found.steps))}. Choose some of these."
            )
        return [found.steps.index(step) for step in wanted]
    return equal_changes([course.values for course in drawn], FRAMES)


def equal_changes(curves: Sequence[np.ndarray], frames: int) -> list[int]:
    """The first and the last checkpoint, and others such that about equally much changes between neighbours.

    Args:
        curves: per column (step, ...).
        frames: at most so many.

    Returns:
        Indices of checkpoints, ascending.

    Examples:
        >>> equal_changes([np.array([0.0, 0.0, 0.0, 0.5, 1.0, 1.0])], 3)  # all happens between the indices 2 and 4
        [0, 3, 5]
    """
    count = len(curves[0])
    if count <= frames:
        return list(range(count))
    change = np.zeros(count - 1)
    for values in curves:
        steps = np.nansum(np.abs(np.diff(values.reshape(count, -1), axis=0)), axis=1)
        change += steps / (steps.sum() or 1.0)
    gone = np.concatenate([[0.0], np.cumsum(change)]) + np.linspace(0, 1e-6, count)  # never two frames at one place
    wanted = np.linspace(gone[0], gone[-1], frames)[1:-1]
    chosen = {0, count - 1, *(int(np.abs(gone - one).argmin()) for one in wanted)}
    return sorted(chosen)


def _scale(course: Course) -> Scale:
    values = course.values
    share = not course.unit and np.nanmin(values) >= 0 and np.nanmax(values) <= 1.001
    marks = (ScaleMark(course.baseline, course.baseline_name),) if np.isfinite(course.baseline) else ()
    return scale_over(values, course.unit, ceiling=1.0 if share else None, clip=1.0, marks=marks)


def _positions(steps: Sequence[int]) -> np.ndarray:
    """Where the steps stand on a logarithmic axis: step 0 half a step before the first other one."""
    first = next((step for step in steps if step > 0), 1)
    return np.array([step or first / 2 for step in steps], dtype=float)


def _curves(found: Emergence, course: Course) -> Curves:
    x = _positions(found.steps)
    flat = course.values.reshape(len(x), -1)
    curves = [
        Curve("median", "", x, np.nanmedian(flat, axis=1), colour=MIDDLE, style="dashed")
    ] if np.isfinite(flat).any() else []  # fmt: skip
    for number, head in enumerate(course.heads[:CURVES]):
        at = (slice(None), head.layer, head.index)
        low, high = (None if ends is None else ends[at] for ends in (course.low, course.high))
        curves.append(Curve(head.head, head.head, x, course.values[at], low, high, COLOURS[number]))
    guides = (Guide("y", course.baseline),) if np.isfinite(course.baseline) else ()
    top = 1.0 if not course.unit and np.nanmax(course.values) <= 1.001 else None
    return Curves(
        course.name,
        course.label,
        tuple(curves),
        Axis("Step", log=True),
        Axis(course.unit, low=0.0 if top else None, high=top),
        subtitle=_by(course),
        guides=guides,
    )


def _by(course: Course) -> str:
    if not course.heads:
        return "no head emerged"
    first = course.heads[0]
    return f"{first.head} by step {first.by:,}"


def _map(found: Emergence, course: Course, frame: int) -> Heatmap:
    values = course.values[frame]
    layers, heads = values.shape
    extras = {name: ends[frame] for name, ends in (("low", course.low), ("high", course.high)) if ends is not None}
    marks = [Mark(one.layer, one.index) for one in course.heads if found.steps.index(one.by) <= frame]
    return Heatmap(
        key=f"{course.name} {found.steps[frame]}",
        title=f"Step {found.steps[frame]:,}",
        values=values,
        x=Axis("Head", tuple(map(str, range(heads)))),
        y=Axis("Layer", tuple(map(str, range(layers)))),
        scale=course.name,
        marks=tuple(marks),
        extras=extras,
    )


def _loss_curves(found: Emergence) -> tuple[Panel, ...]:
    recorded = [(name, np.array(values)) for name, values in found.losses.items() if np.isfinite(values).any()]
    if not recorded:
        return ()
    x = _positions(found.steps)
    curves = [
        Curve(name, name.replace("_", " "), x[np.isfinite(y)], y[np.isfinite(y)], colour=LOSSES[number])
        for number, (name, y) in enumerate(recorded[: len(LOSSES)])
    ]
    return (Curves("losses", "Losses", tuple(curves), Axis("Step", log=True), Axis("nats")),)


def _legend(found: Emergence) -> Legend:
    entries = [
        Category("ring", "emerged by this step", sign="ring"),
        Category("median", "median of all heads", MIDDLE, "dashed"),
    ]
    if any(np.isfinite(course.baseline) for course in found.courses):
        names = dict.fromkeys(course.baseline_name for course in found.courses if course.baseline_name)
        label = f"{next(iter(names), 'baseline')} (mean level;\nthin dashed line of the curves)"
        entries.append(Category("baseline", label, sign="pointer"))
    return Legend("legend", tuple(entries))


def _note(found: Emergence, left: Sequence[str]) -> str:
    texts = sorted({course.texts for course in found.courses if course.texts})
    over = f" over {' or '.join(map(str, texts))} texts" if texts else ""
    zero = " Step 0 stands at the left end of the logarithmic axis." if 0 in found.steps else ""
    out = f" Not drawn, since no head emerged in it: {', '.join(left)}." if left else ""
    return (
        f"{len(found.steps)} checkpoints. A head has emerged by the first checkpoint from which on it stays past half-way from "
        f"its first to its last value. Bands: 95 % intervals{over}.{zero}{out}"
    )


MAX_HEADS = 4  # described one by one per column
TRANSIENT = 0.5  # of the largest rise of its column: how far a head may fall back from its peak unmentioned
INDUCTION, PREVIOUS = "profile.induction", "profile.previous"


def describe_emergence(found: Emergence) -> Description:
    """The course of training in words.

    Args:
        found: from `emergence`.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import emergence
        >>> found = emergence(hw.TrainingAtlas({0: atlas, 128: atlas}), columns="profile.induction")
        >>> describe_emergence(found).short()
        'No head emerged in Induction between step 0 and step 128.'
    """
    writer = Writer(f"Heads through training: {found.name}")
    sections = {
        "overview": _overview, "axes": _axes, "detail": _detail, "observations": _observations,
        "anomalies": _anomalies, "interpretation": _interpretation, "caveats": _caveats,
    }  # fmt: skip
    for section, part in sections.items():
        for entry in part(writer, found):
            writer.add(section, entry)
    return writer.finish(_headline(writer, found))


def _step(writer: Writer, step: float, source: str) -> str:
    return f"step {writer.count(int(step), source)}"


def _headline(writer: Writer, found: Emergence) -> str:
    emerged = [course for course in found.courses if course.heads]
    if not emerged:
        names = listed([course.label for course in found.courses], last="or")
        ends = (_step(writer, found.steps[0], "step first"), _step(writer, found.steps[-1], "step last"))
        return f"No head emerged in {names} between {ends[0]} and {ends[1]}."
    parts = []
    for course in emerged:
        first = course.heads[0]
        parts.append(f"{course.label} in {first.head} by {_step(writer, first.by, f'by {course.name} {first.head}')}")
    return f"Emerged in training: {listed(parts)}."


def _overview(writer: Writer, found: Emergence) -> Iterator[str]:
    count = writer.count(len(found.steps), "checkpoints", "checkpoint")
    ends = (_step(writer, found.steps[0], "step first"), _step(writer, found.steps[-1], "step last"))
    layers, heads = found.courses[0].values.shape[1:]
    yield (
        f"{count} of one training run, from {ends[0]} to {ends[1]}; {writer.count(layers, 'layers', 'layer')} of "
        f"{writer.count(heads, 'heads', 'head')}. Measured at each: {listed([course.label for course in found.courses])}."
    )


def _axes(writer: Writer, found: Emergence) -> Iterator[str]:
    yield (
        "One row per statistic: curves over the steps, on a logarithmic axis, and layer x head maps at some of them, all on "
        "one colour scale; a ring is a head that has emerged by that step."
    )


def _detail(writer: Writer, found: Emergence) -> Iterator[str]:
    for course in found.courses:
        if not course.heads:
            yield f"{course.label}: no head emerged. {_largest_rise(writer, course)}".strip()
            continue
        parts = [_head(writer, course, one) for one in course.heads[:MAX_HEADS]]
        rest = len(course.heads) - len(parts)
        more = f", and {writer.count(rest, f'more {course.name}', 'more head')}" if rest else ""
        yield f"{course.label}: {'; '.join(parts)}{more}."


def _head(writer: Writer, course: Course, one: HeadEmergence) -> str:
    source = f"{course.name} {one.head}"
    first, last = writer.number(one.first, f"first {source}"), writer.number(one.last, f"last {source}")
    ends = ""
    if np.isfinite([one.last_low, one.last_high]).all():
        ends = f" ({writer.number(one.last_low, f'low {source}')} to {writer.number(one.last_high, f'high {source}')})"
    after, by = writer.count(one.after, f"after {source}"), writer.count(one.by, f"by {source}")
    interval = ""
    if np.isfinite([one.by_low, one.by_high]).all():
        if one.by_low == one.by_high == one.by:
            interval = " (the same with other texts)"
        else:
            sides = (
                writer.count(int(one.by_low), f"by_low {source}"),
                writer.count(int(one.by_high), f"by_high {source}"),
            )
            interval = f" (by step {sides[0]} to {sides[1]} with other texts)"
    return f"{one.head} rises from {first} to {last}{ends}, half of it between steps {after} and {by}{interval}"


def _largest_rise(writer: Writer, course: Course) -> str:
    rise = course.values[-1] - course.values[0]
    if not np.isfinite(rise).any():
        return ""
    layer, head = np.unravel_index(int(np.nanargmax(rise)), rise.shape)
    name = f"L{layer}H{head}"
    sides = (
        writer.number(float(course.values[0, layer, head]), f"first {course.name} {name}"),
        writer.number(float(course.values[-1, layer, head]), f"last {course.name} {name}"),
    )
    return f"The largest change is that of {name}, from {sides[0]} to {sides[1]}."


def _observations(writer: Writer, found: Emergence) -> Iterator[str]:
    labels = {course.name: course.label for course in found.courses}
    for one in found.order:
        yield _order(writer, one, labels)
    yield from _losses(writer, found)


def _order(writer: Writer, one: Order, labels: dict[str, str]) -> str:
    source = f"order {one.earlier} {one.later}"
    share = writer.percent(one.share, source)
    names = f"{labels[one.earlier]} ({one.earlier_head})", f"{labels[one.later]} ({one.later_head})"
    if one.sure:
        return (
            f"{names[0]} comes before {names[1]}: at some checkpoint only the former is past half-way, in {share} of "
            "resampled texts."
        )
    reverse = writer.percent(one.reverse, f"reverse {one.earlier} {one.later}")
    return (
        f"{names[0]} and {names[1]} cannot be ordered: the former is ahead in {share} of resampled texts, the latter in "
        f"{reverse}."
    )


def _losses(writer: Writer, found: Emergence) -> Iterator[str]:
    """Where each loss falls most between neighbouring checkpoints."""
    for name, values in found.losses.items():
        loss = np.array(values)
        fall = loss[:-1] - loss[1:]
        if not np.isfinite(fall).any():
            continue
        at = int(np.nanargmax(fall))
        label = name.replace("_", " ")
        sides = (writer.number(float(loss[at]), f"before {name}"), writer.number(float(loss[at + 1]), f"behind {name}"))
        steps = writer.count(found.steps[at], f"fall from {name}"), writer.count(found.steps[at + 1], f"fall to {name}")
        yield f"The {label} falls most between steps {steps[0]} and {steps[1]}, from {sides[0]} to {sides[1]}."


def _anomalies(writer: Writer, found: Emergence) -> Iterator[str]:
    """Heads that had more of something earlier than at the end."""
    for course in found.courses:
        peak = np.nanmax(course.values, axis=0)
        lost = peak - course.values[-1]
        largest = np.nanmax(course.values[-1] - course.values[0])
        gone = np.argwhere(
            (lost > TRANSIENT * largest) & (lost > 0) & (peak >= MIN_RATIO * np.nan_to_num(course.baseline))
        )
        if not course.heads or not len(gone):
            continue
        layer, head = max(gone.tolist(), key=lambda cell: lost[tuple(cell)])
        name = f"L{layer}H{head}"
        at = int(np.nanargmax(course.values[:, layer, head]))
        values = (
            writer.number(float(peak[layer, head]), f"peak {course.name} {name}"),
            writer.number(float(course.values[-1, layer, head]), f"last {course.name} {name}"),
        )
        count = writer.count(len(gone), f"transient {course.name}", "head")
        yield (
            f"{course.label}: {count} had more of it earlier; most of all {name}, {values[0]} at "
            f"{_step(writer, found.steps[at], f'peak_step {course.name} {name}')} and {values[1]} in the end."
        )


def _interpretation(writer: Writer, found: Emergence) -> Iterator[str]:
    """Induction is built on previous-token attention: does the order fit?"""
    by_name = {course.name: course for course in found.courses}
    if not all(name in by_name and by_name[name].heads for name in (PREVIOUS, INDUCTION)):
        return
    pairs = [one for one in found.order if {one.earlier, one.later} == {PREVIOUS, INDUCTION}]
    if not pairs:
        return
    previous, induction = by_name[PREVIOUS].heads[0], by_name[INDUCTION].heads[0]
    against = []
    if not previous.layer < induction.layer:
        against.append(f"{previous.head} is not in an earlier layer than {induction.head}")
    if pairs[0].sure and pairs[0].earlier == PREVIOUS:
        like = (
            f"{previous.head} attends to the previous token before {induction.head} does induction, as a head that supplies "
            "it would"
        )
    elif pairs[0].sure:
        like = (
            f"{induction.head} is past half-way to induction before {previous.head} is to previous-token attention, so the "
            "weaker attention that was there, in this head or another, may have been enough"
        )
    else:
        like = f"{previous.head} and {induction.head} emerge together as far as these checkpoints show"
        against.append("more checkpoints between could still show an order")
    against.append(_before_induction(writer, found, by_name[PREVIOUS], induction))
    yield from reading(
        like, [*against, "order in time is not cause"],
        f"ablate {previous.head} in the last checkpoint and see whether {induction.head} still does induction",
    )  # fmt: skip


def _before_induction(writer: Writer, found: Emergence, previous: Course, induction: HeadEmergence) -> str:
    """How much the earlier layers attend to the previous token when induction is not yet past half-way."""
    at = found.steps.index(induction.after)
    earlier = previous.values[at, : induction.layer]
    if not np.isfinite(earlier).any():
        return ""
    layer, head = np.unravel_index(int(np.nanargmax(earlier)), earlier.shape)
    name = f"L{layer}H{head}"
    value = writer.number(float(earlier[layer, head]), f"before induction {name}")
    step = _step(writer, induction.after, f"after {INDUCTION} {induction.head}")
    return f"at {step}, before that, {name} has the most previous-token attention in an earlier layer ({value})"


def _caveats(writer: Writer, found: Emergence) -> Iterator[str]:
    yield (
        f"A head counts as emerged if its value rose (q < 0.05 over the heads, paired over texts), by at least "
        f"{writer.percent(HALF, 'constant')} of the largest rise, to at least {writer.number(MIN_RATIO, 'constant')} times the "
        "baseline where there is one. The steps can only be known as closely as there are checkpoints."
    )
    yield (
        f"Intervals and orders are over texts; an order is claimed from {writer.number(100 * SURE, 'constant')} % of the "
        "resamples on. They say nothing about other seeds: train several to see whether the order holds."
    )
    for first, second in found.same_weights:
        steps = writer.count(first, "same weights"), writer.count(second, "same weights")
        yield f"The checkpoints of steps {steps[0]} and {steps[1]} have the same weights."
