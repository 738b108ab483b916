"""The figure of the profile study: where does each head attend? One layer x head map per statistic, as small multiples.

Each panel has its own scale, from 0 to a round number; shares end at 1. The baseline is a head with uniform attention over
the same texts: a pointer on each colour bar, or, with ``relative=True``, subtracted from the values. Scales of unbounded
quantities (a distance, a norm) are clipped where a few outliers would leave all other heads in one colour; a plus marks them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, STATISTIC, head_name
from headwise.core.errors import StudyError
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Category, Heatmap, Legend, Mark, Panel
from headwise.figures.scale import Scale, ScaleMark, scale_around, scale_over
from headwise.figures.ticks import tick_text

MARKED = 3  # heads per panel that get a ring and are named
UNBOUNDED = ("distance", "spread", "output_norm_ratio")  # all others are shares
CLIP = 0.99  # quantile at which the scale of an unbounded quantity is clipped


def figure(dataset: xr.Dataset, *, statistics: Iterable[str] | None = None, relative: bool = False) -> Figure:
    """All statistics, or those asked for, in that order; with ``relative`` as value minus uniform where that exists."""
    keys = chosen_keys(dataset, STATISTIC, statistics, "The profile")
    without = [key for key in keys if not np.isfinite(dataset["uniform"].sel({STATISTIC: key})).any()]
    if relative:
        keys = [key for key in keys if key not in without]
        if not keys:
            raise StudyError(
                f"Nothing to draw relative to a uniform head: {', '.join(without)} has no such baseline. "
                "Leave out relative, or choose other statistics."
            )
    drawn = [_panel(dataset.sel({STATISTIC: key}), key, relative) for key in keys]
    panels: list[Panel] = [panel for panel, _ in drawn]
    if len(panels) > 1:
        panels.append(_legend(dataset, keys, relative))
    title = str(dataset.attrs.get("title") or "Where each head attends")
    return Figure(
        title=f"{title}, against a head that attends evenly" if relative else title,
        panels=tuple(panels),
        columns=_columns(len(panels), dataset.sizes[LAYER], dataset.sizes[HEAD]),
        scales={panel.key: scale for panel, scale in drawn},
        notes=_notes(dataset, keys, relative, without),
    )


def _panel(one: xr.Dataset, key: str, relative: bool) -> tuple[Heatmap, Scale]:
    one = one.transpose(LAYER, HEAD, ...)
    value, uniform = one["value"].values, one["uniform"].values
    shown = value - uniform if relative else value
    label, unit = str(one["label"].values), str(one["unit"].values)
    level = float(np.nanmean(uniform)) if np.isfinite(uniform).any() else None
    bounded = key not in UNBOUNDED and not (value > 1.001).any()
    clip = 1.0 if bounded else CLIP
    if relative:
        scale = scale_around(shown, unit, clip=clip)
    else:
        marks = (ScaleMark(level, "uniform head"),) if level is not None else ()
        scale = scale_over(shown, unit, ceiling=1.0 if bounded else None, clip=clip, marks=marks)
    rows, columns = _names(one, LAYER), _names(one, HEAD)
    cells = _largest(shown, by_size=relative)
    names = " ".join(head_name(int(rows[row]), int(columns[column])) for row, column in cells)
    panel = Heatmap(
        key=key,
        title=label,
        subtitle=names,
        values=shown,
        x=Axis("Head", columns),
        y=Axis("Layer", rows),
        scale=key,
        marks=tuple(Mark(row, column) for row, column in cells),
        extras={"value": value, "low": one["low"].values, "high": one["high"].values, "uniform": uniform},
    )
    return panel, scale


def _names(one: xr.Dataset, dim: str) -> tuple[str, ...]:
    return tuple(str(int(index)) for index in (one[dim].values if dim in one.coords else range(one.sizes[dim])))


def _largest(values: np.ndarray, *, by_size: bool) -> list[tuple[int, int]]:
    """The cells to mark: those near the largest, and none where rings would cover a good part of the map."""
    if values.size < 8 * MARKED:
        return []
    ranked = np.abs(values) if by_size else values
    order = np.argsort(np.where(np.isfinite(ranked), -ranked, np.inf), axis=None, kind="stable")[:MARKED]
    cells = [divmod(int(index), values.shape[1]) for index in order]
    largest = np.nanmax(ranked, initial=0.0)
    return [(row, column) for row, column in cells if ranked[row, column] >= largest / 2 > 0]


def _legend(dataset: xr.Dataset, keys: list[str], relative: bool) -> Legend:
    entries = []
    if dataset.sizes[LAYER] * dataset.sizes[HEAD] >= 8 * MARKED:
        what = "furthest from uniform" if relative else "largest values"
        entries.append(Category("largest", f"up to {MARKED} {what},\nnamed above the map", sign="ring"))
    if not relative and bool(np.isfinite(dataset["uniform"].sel({STATISTIC: keys})).any()):
        entries.append(Category("uniform", "a head that attends\nevenly (mean level)", sign="pointer"))
    if not bool(np.isfinite(dataset["value"].sel({STATISTIC: keys})).all()):
        entries.append(Category("missing", "not measured", sign="texture"))
    return Legend("legend", tuple(entries))


def _columns(panels: int, layers: int, heads: int) -> int:
    """Tall or small maps are laid out in more columns, to keep the page's proportions."""
    if panels <= 4:
        return panels
    return 6 if layers >= 1.8 * heads or heads <= 12 else 4 if layers >= 0.5 * heads else 3


def _notes(dataset: xr.Dataset, keys: list[str], relative: bool, without: list[str]) -> tuple[str, ...]:
    chosen = dataset.sel({STATISTIC: keys})
    minus = ", minus what a uniform head would get" if relative else ""
    notes = f"Each cell is one head: its mean over the examples ({_examples(chosen)}){minus}."
    width = (chosen["high"] - chosen["low"]) / 2
    span = chosen["value"].max((LAYER, HEAD)) - chosen["value"].min((LAYER, HEAD))
    share = (width / span.where(span > 0)).values
    if np.isfinite(share).any():
        median = 100 * float(np.nanmedian(share))
        short = tick_text(float(f"{median:.2g}"))
        notes += f" The 95 % interval of that mean is ± {short} % of a panel's range (median cell)."
    if relative and without:
        labels = [str(dataset["label"].sel({STATISTIC: key}).values) for key in without]
        notes += f" Left out, as a uniform head has no such value: {', '.join(labels)}."
    return (notes,)


def _examples(chosen: xr.Dataset) -> str:
    """How many examples the means are over: one number, or one for each group of statistics."""
    if "per_example" not in chosen:
        return "number not recorded"
    per_example = chosen["per_example"]
    counts = per_example.notnull().any((LAYER, HEAD)).sum(EXAMPLE).values
    groups = [
        (int(count), [str(label) for label, own in zip(chosen["label"].values, counts, strict=True) if own == count])
        for count in sorted(set(counts.tolist()), reverse=True)
    ]
    largest = groups[0][0]
    return f"{largest}" + "".join(f"; {count} for {', '.join(labels)}" for count, labels in groups[1:])
