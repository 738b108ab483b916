"""Results as JSON: dataclasses become objects, arrays lists, pixels packed bytes, NaN and infinities null.

Pixels (uint8) have the format of `figures.payload` (zlib, then base64), so that a page reads both with one function.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["to_jsonable"]

DIGITS = 6  # significant; finer than any confidence interval


def to_jsonable(value: Any) -> Any:
    """The value in the form that ``json.dumps(..., allow_nan=False)`` accepts.

    >>> to_jsonable({"a": np.float32(0.25), "b": float("nan"), "c": (1, True)})
    {'a': 0.25, 'b': None, 'c': [1, True]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_jsonable(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, np.ndarray):
        return pixels(value) if value.dtype == np.uint8 else to_jsonable(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_jsonable(each) for each in value]
    if isinstance(value, np.generic):
        return to_jsonable(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def pixels(levels: np.ndarray) -> dict[str, Any]:
    """Bytes in the format of figures."""
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(levels).tobytes(), 9)).decode()
    return {"type": "Pixels", "shape": list(levels.shape), "deflated": packed}
