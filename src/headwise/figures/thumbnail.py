"""A figure's first map as a picture of a few hundred bytes: one pixel per cell. For lists of studies, not for reading.

Steps: take the first panel that is a map; map its values to the colours of its scale (`colour_stops`,
so that no drawing library is loaded); turn it so that the longer side is horizontal; write it as PNG. Of small maps (`Tiles`)
the first few dozen are placed side by side. What was not measured is grey. A figure without a map has no thumbnail.

A PNG is a signature and chunks, each with its length and a CRC-32; rows are deflated with one filter byte before each
(https://www.w3.org/TR/png/). This module does not know any study.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from headwise.figures.colour_stops import stops_of
from headwise.figures.figure import Figure
from headwise.figures.panels import CategoryMap, Heatmap
from headwise.figures.scale import Scale
from headwise.figures.tiles import HIDDEN, LEVELS, Tiles, pooled_levels

__all__ = ["png", "thumbnail"]

GREY = (200, 200, 200)
TILES, TILE = 24, 12  # how many small maps are shown, and how many pixels wide


def thumbnail(figure: Figure) -> bytes | None:
    """A PNG, or None where there is no map."""
    for panel in figure.panels:
        if isinstance(panel, Heatmap):
            return png(_across(coloured(panel.values, figure.scales[panel.scale])))
        if isinstance(panel, CategoryMap):
            return png(_across(_categories(panel)))
        if isinstance(panel, Tiles):
            return png(_tile_sheet(panel, figure.scales[panel.scale]))
    return None


def coloured(values: np.ndarray, scale: Scale) -> np.ndarray:
    """(row, column) numbers as (row, column, 3) bytes of the scale's colours."""
    share = np.clip(np.nan_to_num(scale.share(values)), 0, 1)
    found = _palette(scale)[np.rint(share * (LEVELS - 1)).astype(int)]
    found[~np.isfinite(values)] = GREY
    return found


def png(pixels: np.ndarray) -> bytes:
    """(row, column, 3) bytes as a PNG file."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\x00" + row.tobytes() for row in np.ascontiguousarray(pixels, dtype=np.uint8))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits per channel, red green blue
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def _palette(scale: Scale) -> np.ndarray:
    """One colour per level, interpolated linearly between the stops."""
    stops = np.array([[int(stop[start : start + 2], 16) for start in (1, 3, 5)] for stop in stops_of(scale.colours)])
    at = np.linspace(0, len(stops) - 1, LEVELS)
    return np.stack([np.interp(at, np.arange(len(stops)), stops[:, channel]) for channel in range(3)], axis=-1).round()


def _categories(panel: CategoryMap) -> np.ndarray:
    colours = [[int(one.colour[start : start + 2], 16) for start in (1, 3, 5)] for one in panel.categories]
    return np.array([*colours, GREY])[panel.values]  # -1, not measured, is the last


def _tile_sheet(panel: Tiles, scale: Scale) -> np.ndarray:
    count = min(len(panel.names), TILES)
    columns = min(count, TILES // 2)
    small = pooled_levels(panel.levels[:count], TILE)
    palette = np.vstack([_palette(scale), [GREY]])
    size = small.shape[1] + 1
    sheet = np.full((-(-count // columns) * size, columns * size, 3), 255)
    for index, tile in enumerate(small):
        row, column = divmod(index, columns)
        sheet[row * size :, column * size :][: tile.shape[0], : tile.shape[1]] = palette[
            np.where(tile == HIDDEN, LEVELS, tile)
        ]
    return sheet


def _across(pixels: np.ndarray) -> np.ndarray:
    return pixels.transpose(1, 0, 2) if pixels.shape[0] > pixels.shape[1] else pixels
