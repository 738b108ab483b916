"""Results as JSON: dataclasses become objects, arrays lists, pixels packed bytes, and what is not a number null.

Pixels (uint8) are written as figures write them (`figures.payload`): zlib, then base64, so that a page reads both with one
function. This module does not know what any result means.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["plain"]

DIGITS = 6  # significant; more than any interval is wide


def plain(value: Any) -> Any:
    """The value as ``json.dumps(..., allow_nan=False)`` takes it.

    >>> plain({"a": np.float32(0.25), "b": float("nan"), "c": (1, True)})
    {'a': 0.25, 'b': None, 'c': [1, True]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, np.ndarray):
        return pixels(value) if value.dtype == np.uint8 else plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def pixels(levels: np.ndarray) -> dict[str, Any]:
    """Bytes as figures write them."""
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(levels).tobytes(), 9)).decode()
    return {"type": "Pixels", "shape": list(levels.shape), "deflated": packed}
