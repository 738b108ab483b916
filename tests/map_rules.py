"""Numbers that sentences about layer x head maps share, computed again by plain numpy: anomalies, boxes, ranges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FAR, ROBUST = 6, 1.4826


def map_rules(grid: Callable[[str], np.ndarray]) -> dict[str, Callable[..., float]]:
    """Rules by the first word of a number's source; ``grid(key)`` is a map, (layer, head)."""

    def cell(name: str) -> tuple[int, int]:
        layer, head = name[1:].split("H")
        return int(layer), int(head)

    def window(key: str, layer: int) -> np.ndarray:
        values = grid(key)[max(layer - 1, 0) : layer + 2]
        return values[np.isfinite(values)]

    def outlying(key: str) -> int:
        count = 0
        for layer, row in enumerate(grid(key)):
            around = window(key, layer)
            spread = ROBUST * np.median(np.abs(around - np.median(around)))
            if around.size >= 8 and spread > 0:
                count += int((np.abs(row - np.median(around)) > FAR * spread).sum())
        return count

    def level(key: str, layer: str) -> float:
        return float(np.nanmedian(grid(key)[int(layer)]))

    def around_layer(key: str, layer: str) -> float:
        levels, at = np.nanmedian(grid(key), axis=1), int(layer)
        return float(np.median([levels[other] for other in range(len(levels)) if 0 < abs(other - at) <= 2]))

    def block(key: str, *edges: str) -> np.ndarray:
        first, last, left, right = map(int, edges)
        return grid(key)[first : last + 1, left : right + 1]

    def tenth(key: str) -> float:
        return float(np.nanquantile(grid(key), 0.9))

    return {
        "value": lambda key, name: grid(key)[cell(name)],
        "around": lambda key, name: np.median(window(key, cell(name)[0])),
        "anomalies-rest": lambda key: outlying(key) - 1,
        "anomaly-percent": lambda key: 100 * outlying(key) / np.isfinite(grid(key)).sum(),
        "layer-level": level,
        "layer-around": around_layer,
        "tenth": tenth,
        "box-size": lambda key, *edges: (block(key, *edges) >= tenth(key)).sum(),
        "box-area": lambda key, *edges: np.isfinite(block(key, *edges)).sum(),
        "box-mean": lambda key, *edges: np.nanmean(block(key, *edges)),
        "min": lambda key: np.nanmin(grid(key)),
        "max": lambda key: np.nanmax(grid(key)),
    }
