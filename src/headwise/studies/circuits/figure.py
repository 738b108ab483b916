"""The figures of circuits: how much growing circuits explain, and which heads matter.

``kind="curves"``: for each task two panels, circuits of heads and of edges: the share of the clean-corrupt difference
that the n highest ranked explain, with bands over prompts; dashed, as many at random; a line at 90 %. Where two models
were measured both are drawn. Two more panels give the sizes that explain 90 %, with their intervals.

``kind="maps"``: for each task (and model) the effect of every head, layer x head, on one diverging scale.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import CIRCUIT_SIZE, CONDITION, HEAD, LAYER, TASK, UNIT, head_name
from headwise.core.parsing import parse_attribute
from headwise.core.schema import INTERVAL_ENDS
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Heatmap, Intervals, Mark, Panel
from headwise.figures.provenance import cell_names
from headwise.figures.scale import Scale
from headwise.figures.ticks import round_up, tick_text

KINDS = {"curves": "What circuits of a task explain", "maps": "Heads that a task needs"}
COLOURS = {"model": "#31688e", "reference": "#b5500b"}
WORDS = {"model": "blue", "reference": "orange"}
RANDOM = {"model": "#8fa8b8", "reference": "#d9ab8b"}
MAX_RINGED = 3  # heads per map
AXIS_LABELS = {"heads": "Heads in the circuit", "edges": "Edges in the circuit"}


def figure(dataset: xr.Dataset, *, kind: str = "curves", tasks: Iterable[str] | str | None = None) -> Figure:
    """All tasks, or the chosen ones; ``kind`` is "curves" or "maps"."""
    dataset = dataset.sel({TASK: chosen_keys(dataset, TASK, tasks, "The circuits map")})
    return _maps(dataset) if kind == "maps" else _curves(dataset)


def _conditions(dataset: xr.Dataset) -> list[str]:
    return [str(key) for key in dataset[CONDITION].values]


# ---- curves ---------------------------------------------------------------------------------------------------------


def _curves(dataset: xr.Dataset) -> Figure:
    units = [str(unit) for unit in dataset[UNIT].values if bool(dataset["needed"].sel({UNIT: unit}).notnull().any())]
    panels: list[Panel] = [
        _task(dataset.sel({TASK: task, UNIT: unit}), str(task), unit) for task in dataset[TASK].values for unit in units
    ]
    panels += [_needed(dataset, unit) for unit in units]
    return Figure(
        title=KINDS["curves"],
        panels=tuple(panels),
        columns=4 if len(units) > 1 else 3,
        subtitle=_signs(dataset),
        notes=_curve_notes(dataset),
    )


def _task(one: xr.Dataset, task: str, unit: str) -> Curves:
    curves = [
        _curve(one.sel({CONDITION: key}), kind, sizes, key)
        for kind, sizes in (("random", "random_size"), ("share", "size"))
        for key in _conditions(one)
    ]
    known = [curve for curve in curves if curve is not None]
    top = max((float(np.max(curve.high)) for curve in known if curve.high is not None), default=1.0)
    least = min((float(np.min(curve.low)) for curve in known if curve.low is not None), default=0.0)
    sizes = [float(size) for curve in known for size in curve.x]
    needed = " / ".join(_size(one["needed"].sel({CONDITION: key})) for key in _conditions(one))
    return Curves(
        f"{task}-{unit}",
        f"{one['label'].values}, {unit}",
        tuple(known),
        Axis(AXIS_LABELS[unit], low=0.8 * min(sizes, default=1.0), high=1.2 * max(sizes, default=2.0), log=True),
        Axis("Share explained", low=max(-0.6, min(-0.1, least)), high=min(1.8, max(1.1, top + 0.05))),
        subtitle=f"90 % at {needed}" if float(one.attrs.get("goal", 0.9)) == 0.9 else f"goal at {needed}",
        guides=(Guide("y", float(one.attrs.get("goal", 0.9))), Guide("y", 0.0)),
    )


def _curve(one: xr.Dataset, kind: str, sizes: str, condition: str) -> Curve | None:
    known = np.isfinite(one[sizes].values) & np.isfinite(one[kind].values)
    if not known.any():
        return None
    x, y, low, high = (
        one[name].transpose(CIRCUIT_SIZE).values[known] for name in (sizes, kind, f"{kind}_low", f"{kind}_high")
    )
    colour, style = (COLOURS[condition], "line") if kind == "share" else (RANDOM[condition], "dashed")
    return Curve(f"{kind}-{condition}", "", x, y, low, high, colour, style)


def _size(value: xr.DataArray) -> str:
    return f"{int(value):,}" if np.isfinite(value) else "not solved"


def _needed(dataset: xr.Dataset, unit: str) -> Intervals:
    """Sizes that explain the goal, with their intervals."""
    conditions = _conditions(dataset)
    one = dataset.sel({UNIT: unit})
    rows = [(str(task), key) for task in dataset[TASK].values for key in conditions]
    value, low, high = (
        np.array([float(one[f"needed{end}"].sel({TASK: task, CONDITION: key})) for task, key in rows])
        for end in INTERVAL_ENDS
    )
    top = float(np.nanmax(high, initial=1.0))
    return Intervals(
        key=f"needed-{unit}",
        title=f"{unit.capitalize()} that explain {float(dataset.attrs['goal']):.0%}".replace("%", " %"),
        values=value,
        low=low,
        high=high,
        x=Axis(AXIS_LABELS[unit], low=-0.02 * top, high=1.05 * top),
        y=Axis(
            "",
            tuple(str(dataset["label"].sel({TASK: task}).values) if key == conditions[0] else "" for task, key in rows),
        ),
        groups=tuple(conditions.index(key) for _, key in rows),
        categories=tuple(Category(key, "", COLOURS[key]) for key in conditions),
    )


def _name(dataset: xr.Dataset, key: str) -> str:
    return str(dataset["name"].sel({CONDITION: key}).values)


def _signs(dataset: xr.Dataset) -> str:
    """What the colours mean."""
    names = [f"{WORDS[key]}: {_name(dataset, key)}" for key in _conditions(dataset)]
    text = "; ".join([*names, "pale and dashed: as many at random"])
    return text[0].upper() + text[1:]


def _curve_notes(dataset: xr.Dataset) -> tuple[str, ...]:
    counts = parse_attribute(dataset.attrs, "prompts", dict[str, int])
    text = (
        "Heads (edges) are ranked by the size of their effect on "
        f"{counts['ranking']} pairs of prompts; on {counts['measuring']} others, those in the circuit run on the clean "
        "prompt and all else is as on the corrupt one. Share: of the clean-corrupt score difference. Bands and lines: 95 % "
        "interval over prompts (bootstrap). At random: a different set for every prompt. An edge is all that one head, MLP or "
        "the logits read from one head, MLP or the input."
    )
    if dataset.attrs["no_edges"]:
        text += f" Edges were not measured: {dataset.attrs['no_edges']}."
    refused = parse_attribute(dataset.attrs, "refused", dict[str, str])
    if "reference" in _conditions(dataset):
        name = _name(dataset, "reference")
        refused |= {
            f"{task} ({name})": why
            for task, why in parse_attribute(dataset.attrs, "refused_by_reference", dict[str, str]).items()
        }
    left = "; ".join(f"{task}: {why}" for task, why in refused.items())
    return (text, f"Not drawn: {left}.") if left else (text,)


# ---- maps -----------------------------------------------------------------------------------------------------------


def _maps(dataset: xr.Dataset) -> Figure:
    names = [("effect", _conditions(dataset)[0])]
    if "reference_effect" in dataset and "reference" in _conditions(dataset):
        names.append(("reference_effect", "reference"))
    panels: list[Panel] = [
        _map(dataset.sel({TASK: task}), variable, str(task)) for variable, _ in names for task in dataset[TASK].values
    ]
    every = np.concatenate([dataset[variable].values.ravel() for variable, _ in names])
    agreement = dataset["agreement"].isel({CONDITION: 0}).values
    counts = parse_attribute(dataset.attrs, "prompts", dict[str, int])
    return Figure(
        title=KINDS["maps"],
        panels=tuple(panels),
        columns=max(1, dataset.sizes[TASK]),
        subtitle=f"Above: {_name(dataset, names[0][1])}; below: {_name(dataset, names[1][1])}"
        if len(names) > 1
        else "",
        scales={"effect": _scale(every)},
        notes=(
            "Effect: what the score would lose with the head's output on the corrupt prompt, by integrated gradients between "
            f"the two prompts, over {counts['ranking']} pairs. Red helps the right answer, blue works against it. "
            f"Up to {MAX_RINGED} largest ringed and named. Rank correlation with exact patching of some heads: "
            + ", ".join(f"{value:.2f}" for value in agreement)
            + ".",
        ),
    )


def _scale(values: np.ndarray) -> Scale:
    """Up to half of the largest effect: few heads have large ones, and the others would be pale."""
    known = values[np.isfinite(values)]
    half = round_up(float(np.abs(known).max(initial=0.0)) / 2)
    over, under = bool((known > half).any()), bool((known < -half).any())
    return Scale("effect, share of the clean-corrupt difference", -half, half, "RdBu_r", over, under)


def _map(one: xr.Dataset, variable: str, task: str) -> Heatmap:
    one = one.transpose(LAYER, HEAD, ...)
    values = one[variable].values
    order = np.argsort(-np.abs(np.nan_to_num(values)), axis=None, kind="stable")[:MAX_RINGED]
    cells = [divmod(int(index), values.shape[1]) for index in order] if values.size >= 8 * MAX_RINGED else []
    cells = [cell for cell in cells if abs(values[cell]) >= 0.25 * np.nanmax(np.abs(values), initial=0.0) > 0]
    named = " ".join(f"{head_name(*cell)} {tick_text(round(float(values[cell]), 2))}" for cell in cells)
    return Heatmap(
        key=f"{variable}-{task}",
        title=str(one["label"].values),
        subtitle=named,
        values=values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale="effect",
        marks=tuple(Mark(row, column) for row, column in cells),
        extras={"low": one[f"{variable}_low"].values, "high": one[f"{variable}_high"].values},
    )
