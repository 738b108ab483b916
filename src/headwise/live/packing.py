"""Arrays for the wire: zlib in base64, as `figures.payload` packs pixels. NaN in lists becomes null."""

from __future__ import annotations

import base64
import math
import zlib

import numpy as np

from headwise.live.shapes import Packed

__all__ = ["nested", "number", "packed"]

QUICK = 1  # zlib's level: a large map goes over a loopback, where time matters more than bytes


def packed(array: np.ndarray) -> Packed:
    """An array as float32, little-endian."""
    plain = np.ascontiguousarray(array, dtype="<f4")
    deflated = base64.b64encode(zlib.compress(plain.tobytes(), QUICK)).decode()
    return {"dtype": "float32", "shape": list(plain.shape), "deflated": deflated}


def number(value: float) -> float | None:
    """A float as JSON has it.

    >>> number(float("nan")), number(0.1)
    (None, 0.1)
    """
    return float(f"{value:.6g}") if math.isfinite(value) else None


def nested(values: np.ndarray) -> list[list[float | None]]:
    """A map as lists."""
    return [[number(float(each)) for each in row] for row in values]
