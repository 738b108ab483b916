"""Layer x head maps of a Dataset: which ones, with intervals and baselines, and a generic figure of them.

A study whose spec names no figure is drawn by `head_table_maps`: one heatmap per head-table column, its largest values
marked, its baseline on the colour bar. `named_maps` is shared with `headwise.describe.narrator`, so that figure and words
are about the same maps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, head_name
from headwise.core.errors import StudyError, did_you_mean
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Category, Heatmap, Legend, Mark, Panel
from headwise.figures.provenance import cell_names, provenance_caption, provenance_of, with_model
from headwise.figures.scale import Scale, ScaleMark, scale_around, scale_over
from headwise.studies.spec import HeadColumn

__all__ = ["NamedMap", "chosen_keys", "head_table_maps", "named_maps"]

MARKED_HEADS = 3
MAX_PANELS = 12


@dataclass(frozen=True, eq=False)
class NamedMap:
    """One layer x head map with its confidence interval and baseline, where there are any."""

    key: str
    label: str
    values: xr.DataArray  # (layer, head), NaN: not measured
    low: xr.DataArray | None = None  # 95 % confidence interval
    high: xr.DataArray | None = None
    baseline: float = math.nan  # mean over heads
    baseline_name: str = ""
    definition: str = ""
    unit: str = ""

    @property
    def measured(self) -> bool:
        """Whether any head has a value."""
        return bool(self.values.notnull().any())

    @property
    def has_intervals(self) -> bool:
        """Whether any head has a confidence interval."""
        return self.low is not None and self.high is not None and bool((self.high - self.low).notnull().any())


def named_maps(dataset: xr.Dataset, columns: Iterable[HeadColumn | str] | None = None) -> list[NamedMap]:
    """The layer x head maps of a Dataset, one per column and entry of its own dims.

    Args:
        dataset: with the dims layer and head.
        columns: head-table columns, or names of variables (then ``x_low`` and ``x_high`` are the interval of ``x``);
            None: every numeric variable over layers and heads.

    Examples:
        >>> [one.key for one in named_maps(atlas["profile"], ["value"])][:2]
        ['entropy', 'sink']
    """
    if columns is None:
        names = [str(name) for name, array in dataset.data_vars.items() if {LAYER, HEAD} <= set(array.dims)]
        names = [name for name in names if dataset[name].dtype.kind in "fiu"]
        ends = {f"{name}{end}" for name in names for end in ("_low", "_high")}
        columns = [name for name in names if name not in ends]
    return [one for column in columns for one in _maps_of(dataset, column)]


def _maps_of(dataset: xr.Dataset, column: HeadColumn | str) -> Iterator[NamedMap]:
    if isinstance(column, str):
        column = HeadColumn(column, f"{column}_low", f"{column}_high")
    if column.variable not in dataset:
        raise StudyError(
            f"There is no variable {column.variable!r}. {did_you_mean(column.variable, map(str, dataset))}"
        )
    chosen = dataset.sel({dim: label for dim, label in column.only.items() if dim in dataset.dims})
    own = [str(dim) for dim in chosen[column.variable].dims if dim not in (LAYER, HEAD)]
    for index in np.ndindex(*(chosen.sizes[dim] for dim in own)):
        at = dict(zip(own, index, strict=True))
        one = chosen.isel(at)
        entries = [str(one[dim].values) if dim in one.coords else str(at[dim]) for dim in own]
        key = " ".join(entries) or column.variable
        baseline = float(one[column.baseline].mean()) if column.baseline in one else column.level
        yield NamedMap(
            key=key,
            label=column.label.format(_text(one, "label") or ", ".join(entries) or column.variable),
            values=one[column.variable].transpose(LAYER, HEAD),
            low=one.get(column.low),
            high=one.get(column.high),
            baseline=baseline,
            baseline_name=column.baseline_name or "the baseline",
            definition=column.definition
            or _text(one, "definition")
            or str(one[column.variable].attrs.get("long_name", "")),
            unit=_text(one, "unit"),
        )


def _text(one: xr.Dataset, coord: str) -> str:
    return str(one[coord].values) if coord in one.coords and one[coord].ndim == 0 else ""


def head_table_maps(dataset: xr.Dataset, columns: Iterable[HeadColumn | str] | None = None) -> Figure:
    """A heatmap per head-table column, for a study that has no figure of its own.

    Args:
        dataset: with the dims layer and head.
        columns: as for `named_maps`.

    Returns:
        At most `MAX_PANELS` maps and a legend.

    Examples:
        >>> head_table_maps(atlas["profile"], ["value"]).panels[1].title
        'First token (sink)'
    """
    every = [one for one in named_maps(dataset, columns) if one.measured]
    if not every:
        raise StudyError("Nothing to draw: no variable of this Dataset has a value per layer and head.")
    shown = every[:MAX_PANELS]
    drawn = [_panel(dataset, one) for one in shown]
    entries = [Category("largest", f"up to {MARKED_HEADS} largest values,\nnamed above the map", sign="ring")]
    if any(math.isfinite(one.baseline) for one in shown):
        entries.append(Category("baseline", "baseline (mean level)", sign="pointer"))
    if any(bool(one.values.isnull().any()) for one in shown):
        entries.append(Category("missing", "not measured", sign="texture"))
    panels: list[Panel] = [*(panel for panel, _ in drawn), Legend("legend", tuple(entries))]
    left = f" {len(every) - len(shown)} more maps are not drawn." if len(every) > len(shown) else ""
    origin = provenance_of(dataset)
    return Figure(
        title=with_model(str(dataset.attrs.get("title") or "Layer x head maps"), origin),
        panels=tuple(panels),
        columns=min(len(panels), 4),
        scales={panel.key: scale for panel, scale in drawn},
        notes=(f"Each cell is one head.{left}",),
        provenance=provenance_caption(origin),
    )


def _panel(dataset: xr.Dataset, one: NamedMap) -> tuple[Heatmap, Scale]:
    values = one.values.values.astype(float)
    centred = bool(np.nanmin(values) < 0 < np.nanmax(values))
    marks = (ScaleMark(one.baseline, one.baseline_name),) if math.isfinite(one.baseline) else ()
    scale = (
        scale_around(values, one.unit, clip=0.99) if centred else scale_over(values, one.unit, clip=0.99, marks=marks)
    )
    rows, columns = cell_names(dataset, LAYER), cell_names(dataset, HEAD)
    cells = largest_cells(np.abs(values) if centred else values)
    panel = Heatmap(
        key=one.key,
        title=one.label,
        subtitle=" ".join(head_name(int(rows[row]), int(columns[column])) for row, column in cells),
        values=values,
        x=Axis("Head", columns),
        y=Axis("Layer", rows),
        scale=one.key,
        marks=tuple(Mark(row, column) for row, column in cells),
        extras={
            name: end.transpose(LAYER, HEAD).values
            for name, end in (("low", one.low), ("high", one.high))
            if end is not None
        },
    )
    return panel, scale


def largest_cells(values: np.ndarray, count: int = MARKED_HEADS) -> list[tuple[int, int]]:
    """The cells to mark: those near the largest, and none where rings would cover a good part of the map."""
    if values.size < 8 * count:
        return []
    order = np.argsort(np.where(np.isfinite(values), -values, np.inf), axis=None, kind="stable")[:count]
    cells = [divmod(int(index), values.shape[1]) for index in order]
    largest = np.nanmax(values, initial=0.0)
    return [(row, column) for row, column in cells if values[row, column] >= largest / 2 > 0]


def chosen_keys(dataset: xr.Dataset, dim: str, wanted: Iterable[str] | str | None, owner: str) -> list[str]:
    """The keys along ``dim`` to draw, in the given order (None: all); ``owner`` is for messages, such as "The profile"."""
    known = [str(key) for key in dataset[dim].values]
    if wanted is None:
        return known
    keys = [wanted] if isinstance(wanted, str) else list(wanted)
    for key in keys:
        if key not in known:
            raise StudyError(f"{owner} has no {dim} {key!r}. {did_you_mean(key, known)}")
    if not keys:
        raise StudyError(f"No {dim} was chosen for the figure. {did_you_mean('', known)}")
    return list(dict.fromkeys(keys))
