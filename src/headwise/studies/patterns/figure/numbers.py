"""The numbers under the grid as layer x head maps: of each subject, and how each number changed.

One row of three maps a number (first subject, second, change) or, of one model, one map a number. The two subjects'
maps share a scale; a change has one of its own, red where the number grew. Over a change stands how many heads
changed by the paired test over prompts (q < 0.05), and these have a dot, where the cells are large enough for dots.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, STATISTIC, SUBJECT
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Heatmap, Mark
from headwise.figures.provenance import cell_names, provenance_caption, provenance_of, with_model
from headwise.figures.scale import Scale, ScaleMark, scale_around, scale_over
from headwise.studies.patterns.figure.subjects import names_of, prompts_of

LEVEL = 0.05
MOST_MARKED = 1200  # cells of a map; in smaller cells dots would hide the colours
LETTERS = ("A", "B")  # the two subjects, whose names are too long to stand over a map
UNBOUNDED = ("off_diagonal",)
EQUAL = 1e-3


def numbers_figure(dataset: xr.Dataset, statistics: Iterable[str] | str | None) -> Figure:
    """Maps of these numbers; None: of all, but of one model not those that are the same in every head."""
    keys = chosen_keys(dataset, STATISTIC, statistics, "The patterns study")
    same = [] if statistics is not None else _same(dataset, keys)
    keys = [key for key in keys if key not in same] or keys
    panels: list[Heatmap] = []
    scales: dict[str, Scale] = {}
    names = names_of(dataset)
    for key in keys:
        one = dataset.sel({STATISTIC: key}).transpose(..., LAYER, HEAD)
        scales[key] = _scale(one, key)
        panels += [_panel(one, key, place) for place in range(len(names))]
        if len(names) == 2:
            scales[f"{key} change"] = scale_around(one["change"].values, "change")
            panels.append(_change(one, key))
    origin = provenance_of(dataset)
    return Figure(
        title=with_model("The attention maps in numbers", origin),
        panels=tuple(panels),
        columns=_columns(len(keys), len(names)),
        scales=scales,
        notes=(_note(dataset, keys, names, same),),
        provenance=provenance_caption(origin),
    )


def _same(dataset: xr.Dataset, keys: list[str]) -> list[str]:
    """Numbers that are equal in all heads of a model that stands alone: without gates all edges are open, all rows 1."""
    if dataset.sizes[SUBJECT] > 1:
        return []
    values = dataset["value"].isel({SUBJECT: 0})
    spread = {key: float(values.sel({STATISTIC: key}).max() - values.sel({STATISTIC: key}).min()) for key in keys}
    return [key for key in keys if spread[key] < EQUAL]


def _scale(one: xr.Dataset, key: str) -> Scale:
    uniform = one["uniform"].values
    level = float(np.nanmean(uniform)) if np.isfinite(uniform).any() else None
    marks = (ScaleMark(level, "uniform head"),) if level is not None else ()
    return scale_over(one["value"].values, "", ceiling=None if key in UNBOUNDED else 1.0, marks=marks)


def _panel(one: xr.Dataset, key: str, place: int) -> Heatmap:
    here = one.isel({SUBJECT: place})
    return Heatmap(
        key=f"{key} {one[SUBJECT].values[place]}",
        title=str(one["label"].values),
        subtitle=LETTERS[place] if one.sizes[SUBJECT] > 1 else "",
        values=here["value"].values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale=key,
        extras={extra: here[extra].values for extra in ("value", "low", "high", "uniform")},
    )


def _change(one: xr.Dataset, key: str) -> Heatmap:
    q = one["q"].values
    sure = int((q < LEVEL).sum())
    return Heatmap(
        key=f"{key} change",
        title="Change, B − A",
        subtitle=f"q < {LEVEL}: {sure} of {int(np.isfinite(q).sum())} heads",
        values=one["change"].values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale=f"{key} change",
        marks=_dots(q),
        extras={extra: one[extra].values for extra in ("change", "change_low", "change_high", "p", "q")},
    )


def _dots(q: np.ndarray) -> tuple[Mark, ...]:
    """On the cells that changed; on none where cells are too small."""
    if q.size > MOST_MARKED:
        return ()
    return tuple(Mark(int(row), int(column), f"q < {LEVEL}", "dot") for row, column in np.argwhere(q < LEVEL))


def _columns(numbers: int, subjects: int) -> int:
    if subjects == 1:
        return min(numbers, 6)
    return 6 if numbers > 1 else 3


def _note(dataset: xr.Dataset, keys: list[str], names: list[str], same: list[str]) -> str:
    told = [
        f"{dataset['label'].sel({STATISTIC: key}).values}: {dataset['definition'].sel({STATISTIC: key}).values}"
        for key in keys
    ]
    text = f"Each cell is one head, its mean over {prompts_of(dataset)}. {'; '.join(told)}."
    if len(names) == 2:
        text += (
            f" A: {names[0]}. B: {names[1]}. q: Wilcoxon's signed-rank test over prompts, Benjamini-Hochberg over "
            "the heads of a map."
        )
        text += f" Dots: q < {LEVEL}." if dataset["q"].isel({STATISTIC: 0}).size <= MOST_MARKED else ""
    if same:
        unchanging = " and ".join(str(dataset["label"].sel({STATISTIC: key}).values) for key in same)
        text += f" Not drawn, because it is the same in every head: {unchanging}."
    if bool(dataset["value"].sel({STATISTIC: keys}).isnull().any()):
        text += " Strokes: a head that looks nowhere, so that it has no such number."
    return f"{text} The pointer on a bar: a head that looks evenly at all it can see."
