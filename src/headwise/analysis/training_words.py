"""An atlas over training in words: which heads emerged, between which steps, what came before what, and the losses meanwhile.

describe_emergence(emergence(training)).text()

Sources of numbers are named by column and head: "by profile.induction L1H3", "last profile.induction L1H3",
"order profile.previous profile.induction".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headwise.analysis.training_course import HALF, MIN_RATIO, SURE, Course, Emergence, HeadEmergence, Order
from headwise.describe.narrative import reading
from headwise.describe.writer import Description, Writer, listed

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
