"""The figures of a look: every head's small map in one grid, and every statistic of the profile as a map of heads.

They are figures as data, like those of an atlas (`figures`), and are drawn by the same code. The grid has layers along its
longer side. Its scale runs from 0 to where nearly all pixels lie, as that of the study `patterns`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import STATISTIC, head_name
from headwise.figures import Axis, Figure, Heatmap, Scale, ScaleMark, Tiles, scale_over, to_payload
from headwise.figures.ticks import round_up
from headwise.figures.tiles import to_levels

__all__ = ["grid_of", "look_figures", "statistic_map"]

ENOUGH = 0.995  # of the visible pixels lie under the scale's high end
LOWEST_TOP = 0.2
LABELS = {
    "sink": ("First token", "Weight on the first token"),
    "entropy": ("Entropy", "Entropy over that of an even head"),
    "previous": ("Token before", "Weight on the token before"),
    "diagonal": ("Itself", "Weight on the token itself"),
    "induction": ("Induction", "Weight on tokens that followed this one before"),
    "distance": ("Distance", "Mean distance looked back, in tokens"),
    "top1": ("Peak", "Largest weight of a row"),
    "moved": ("Written", "Size of what is written, over the residual stream"),
}
UNBOUNDED = ("distance", "moved")


def look_figures(maps: np.ndarray, numbers: xr.DataArray, uniform: xr.DataArray, tokens: int) -> list[dict[str, Any]]:
    """Key, label and payload of each: the grid first. `maps` (layer, head, row, column), NaN where the mask hides."""
    found = [{"key": "maps", "label": "Maps", "payload": to_payload(grid_of(maps, tokens))}]
    for key, (label, unit) in LABELS.items():
        values = numbers.sel({STATISTIC: key}).values
        if np.isfinite(values).any():
            level = float(uniform.sel({STATISTIC: key}).mean())
            found.append({"key": key, "label": label, "payload": to_payload(statistic_map(key, unit, values, level))})
    return found


def grid_of(maps: np.ndarray, tokens: int) -> Figure:
    """A tile a head."""
    layers, heads, pixels, _ = maps.shape
    seen = maps[np.isfinite(maps)]
    high = min(max(round_up(float(np.quantile(seen, ENOUGH))), LOWEST_TOP), 1.0)
    across = layers >= heads  # layers stand side by side
    order = [(layer, head) for head in range(heads) for layer in range(layers)]
    order = order if across else [(layer, head) for layer in range(layers) for head in range(heads)]
    numbered = {size: tuple(map(str, range(size))) for size in (layers, heads)}
    sides = (("Head", numbered[heads]), ("Layer", numbered[layers]))
    (rows, row_labels), (columns, column_labels) = sides if across else sides[::-1]
    small = f"; {tokens} tokens in {pixels} pixels a side, by the largest weight in each" if tokens > pixels else ""
    return Figure(
        title="Every head’s attention map",
        panels=(
            Tiles(
                key="maps", title="", names=tuple(head_name(*place) for place in order), scale="weight",
                levels=to_levels(np.stack([maps[place] for place in order]), 0.0, high),
                columns=layers if across else heads, row_name=rows, row_labels=row_labels,
                column_name=columns, column_labels=column_labels,
            ),
        ),
        columns=1,
        scales={"weight": Scale("Attention weight", 0.0, high, "Blues", over=bool(seen.max() > high * 1.001))},
        notes=(f"Rows are tokens that look, columns tokens that are looked at{small}. Strokes: hidden by the mask.",),
        alt=f"Attention maps of {layers * heads} heads",
    )  # fmt: skip


def statistic_map(key: str, unit: str, values: np.ndarray, level: float) -> Figure:
    """A number a head, (layer, head), with the level of a head that attends evenly on the colour bar."""
    marks = (ScaleMark(level, "even head"),) if np.isfinite(level) else ()
    bounded = key not in UNBOUNDED
    scale = scale_over(values, unit, ceiling=1.0 if bounded else None, clip=1.0 if bounded else 0.98, marks=marks)
    layers, heads = (tuple(map(str, range(size))) for size in values.shape)
    across = len(layers) >= len(heads)
    x, y = (Axis("Layer", layers), Axis("Head", heads)) if across else (Axis("Head", heads), Axis("Layer", layers))
    panel = Heatmap(key=key, title="", values=values.T if across else values, x=x, y=y, scale=key)
    return Figure(unit, (panel,), 1, {key: scale}, alt=f"{unit}, a cell a head")
