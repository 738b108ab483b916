"""The figure of an atlas over training: a film strip and curves.

One row per column of the head table: first the curves over all checkpoints (the heads that emerged, with their 95 % intervals
over texts, and the median of all heads), then the layer x head map at some of the steps, all on one scale. The last row has
the losses that the trainer recorded. The steps of the maps divide the change of all maps into equal parts, so that the strip
shows most frames where most happens. The axis of steps is logarithmic; step 0 stands at its left end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from headwise.analysis.training_course import Course, Emergence
from headwise.core.errors import StudyError
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
    losses = _losses(found)
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


def _losses(found: Emergence) -> tuple[Panel, ...]:
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
