"""What a packed map holds, and the same map by the plain instrument."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import torch

from headwise.instruments import Patterns
from headwise.seam import observe


def opened(packed: dict[str, Any]) -> np.ndarray:
    """The array that went over the wire."""
    return np.frombuffer(zlib.decompress(base64.b64decode(packed["deflated"])), "<f4").reshape(packed["shape"])


def plain(model: Any, ids: Any, *watchers: Any) -> np.ndarray:
    """Every head's whole map, (layer, head, query, key), by `Patterns`; NaN where the mask hides."""
    pattern = Patterns()
    with observe(model, *watchers, pattern), torch.no_grad():
        model(input_ids=torch.as_tensor(ids).reshape(1, -1), use_cache=False)
    found = pattern.result()
    weights = found["weights"].values[0]
    layers = int(found["layer"].max()) + 1
    return weights.reshape(layers, -1, *weights.shape[1:])


def largest(maps: np.ndarray, rows: list[int], columns: list[int]) -> np.ndarray:
    """The largest of each rectangle between these edges, plainly; NaN where all is hidden."""
    made = np.full((*maps.shape[:-2], len(rows) - 1, len(columns) - 1), np.nan, dtype=np.float32)
    for row in range(len(rows) - 1):
        for column in range(len(columns) - 1):
            block = maps[..., rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
            flat = block.reshape(*block.shape[:-2], -1)
            hidden = np.isnan(flat).all(axis=-1)
            made[..., row, column] = np.where(hidden, np.nan, np.nan_to_num(flat, nan=-1).max(axis=-1))
    return made
