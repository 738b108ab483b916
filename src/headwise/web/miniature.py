"""A figure as a small picture: what stands beside a study's words on the opening page.

Of maps, those whose values are spread widest over their scale, as many as fit side by side, in the order of the figure; else
the first panel. A map becomes a byte a cell (as `figures.tiles`) or the place of its category; curves and intervals keep
their numbers. Decoration: nothing is read off it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headwise.figures import CategoryMap, Curves, Figure, Heatmap, Intervals, Legend, Panel, Scatter, Tiles, to_payload
from headwise.figures.tiles import to_levels

__all__ = ["miniature"]

WIDTH, HEIGHT, GAP = 160, 120, 6  # pixels of the place it stands in
MOST_TILES = 24


def miniature(figure: Figure | None) -> dict[str, Any] | None:
    """``{kind, ...}`` for the front end; None where there is nothing to draw."""
    if figure is None:
        return None
    first = next((panel for panel in figure.panels if not isinstance(panel, Legend)), None)
    if isinstance(first, Heatmap):
        return _maps(figure, [panel for panel in figure.panels if isinstance(panel, Heatmap)])
    return _small(first, figure)


def _maps(figure: Figure, panels: list[Heatmap]) -> dict[str, Any]:
    """The most telling maps of the shape of the first, side by side."""
    shape = panels[0].values.shape
    alike = [panel for panel in panels if panel.values.shape == shape]
    fit = max(1, int((WIDTH + GAP) / (HEIGHT * shape[1] / shape[0] + GAP)))
    widest = sorted(alike, key=lambda panel: -_spread(panel, figure))[:fit]
    chosen = [panel for panel in alike if panel in widest]
    return {"kind": "maps", "maps": [_map(panel, figure) for panel in chosen]}


def _map(panel: Heatmap, figure: Figure) -> dict[str, Any]:
    share = figure.scales[panel.scale].share(panel.values)
    levels = to_levels(np.where(np.isfinite(panel.values), share, np.nan), 0.0, 1.0)
    return {"levels": levels.tolist(), "scale": _scale(figure, panel.scale)}


def _spread(panel: Heatmap, figure: Figure) -> float:
    share = np.clip(figure.scales[panel.scale].share(panel.values), 0, 1)
    return float(np.nan_to_num(np.nanstd(share))) if np.isfinite(share).any() else 0.0


def _small(panel: Panel | None, figure: Figure) -> dict[str, Any] | None:
    match panel:
        case CategoryMap():
            return {
                "kind": "categories",
                "places": panel.values.tolist(),
                "colours": [category.colour for category in panel.categories],
            }
        case Tiles():
            step = max(len(panel.names) // MOST_TILES, 1)
            tiles = panel.levels[::step][:MOST_TILES]
            return {"kind": "tiles", "levels": tiles[:, ::2, ::2].tolist(), "scale": _scale(figure, panel.scale)}
        case Intervals():
            rows = zip(panel.values, panel.low, panel.high, strict=True)
            colours = [category.colour for category in panel.categories]
            groups = panel.groups or (0,) * len(panel.values)
            return {
                "kind": "intervals",
                "rows": [[None if not np.isfinite(one) else round(float(one), 4) for one in row] for row in rows],
                "colours": [colours[group] if colours else None for group in groups],
            }
        case Curves():
            return {
                "kind": "curves",
                "curves": [
                    {
                        "x": _plain(curve.x),
                        "y": _plain(curve.y),
                        "colour": curve.colour,
                        "dashed": curve.style == "dashed",
                    }
                    for curve in panel.curves
                ],
                "log": panel.x.log,
            }
        case Scatter():
            return {"kind": "points", "x": _plain(panel.x_values), "y": _plain(panel.y_values)}
    return None


def _scale(figure: Figure, key: str) -> Mapping[str, Any]:
    """Only what a colour needs: the stops, as a figure's payload has them."""
    bare = Figure("", (Legend("none", ()),), 1, {key: figure.scales[key]})
    return {"stops": to_payload(bare)["scales"][key]["stops"]}


def _plain(values: np.ndarray) -> list[float | None]:
    return [float(str(value)) if np.isfinite(value) else None for value in values]
