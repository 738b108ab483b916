"""A figure as JSON, and back; results of analyses as JSON.

Every dataclass becomes an object with its class under ``type``; arrays become nested lists, NaN becomes null. Numbers
are written with the fewest digits that bring the same float32 back, so nothing is lost and an 80 x 64 map stays small.
A scale also carries what follows from it (``kind``, ``ticks``, and ``stops``: its colours), so that a browser needs no
rules of its own; on the way back these are recomputed. Infinite values do not exist in JSON: they become null too.
Pixels (bytes) are compressed by zlib (what browsers call "deflate") and written in base64.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from headwise.core.errors import DataError
from headwise.figures import figure as _figure
from headwise.figures import panels as _panels
from headwise.figures import scale as _scale
from headwise.figures import tiles as _tiles
from headwise.figures.colour_stops import stops_of

FORMAT = "headwise.figure/1"
PIXELS = "Pixels"
JSON_DIGITS = 6  # significant digits of a result; finer than any confidence interval
_CLASSES = {
    name.__name__: name
    for name in (
        _figure.Figure, _scale.Scale, _scale.ScaleMark, _panels.Axis, _panels.Frame, _panels.Mark, _panels.Category,
        _panels.Heatmap, _panels.CategoryMap, _panels.Curve, _panels.Guide, _panels.Curves, _panels.Scatter,
        _panels.Intervals, _panels.Legend, _tiles.Tiles,
    )
}  # fmt: skip


def to_payload(figure: _figure.Figure) -> dict[str, Any]:
    """The figure as JSON, for a browser.

    Args:
        figure: what is to be sent.

    Returns:
        A dict that ``json.dumps`` takes with ``allow_nan=False``.

    Examples:
        >>> payload = to_payload(atlas.figure("profile", statistics=["sink"]))
        >>> payload["format"], [panel["type"] for panel in payload["panels"]]
        ('headwise.figure/1', ['Heatmap'])
    """
    return {"format": FORMAT, **_encode(figure)}


def from_payload(payload: Mapping[str, Any]) -> _figure.Figure:
    """The figure that `to_payload` wrote.

    Args:
        payload: what it gave, or the same from JSON.

    Returns:
        The figure.

    Examples:
        >>> figure = atlas.figure("profile", statistics=["sink"])
        >>> from_payload(to_payload(figure)).title == figure.title
        True
    """
    found = payload.get("format")
    if found != FORMAT:
        raise DataError(f"This is not a figure of Headwise: its format is {found!r}, expected {FORMAT!r}.")
    return _decode({name: value for name, value in payload.items() if name != "format"})


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if is_dataclass(value):
        encoded: dict[str, Any] = {"type": type(value).__name__}
        encoded |= {each.name: _encode(getattr(value, each.name)) for each in fields(value)}
        if isinstance(value, _scale.Scale):
            encoded |= {"kind": value.kind, "ticks": _encode(value.ticks()), "stops": list(stops_of(value.colours))}
        return encoded
    if isinstance(value, Mapping):
        return {str(key): _encode(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _encode_array(array: np.ndarray) -> Any:
    if array.dtype == np.uint8:
        return _pixels(array)
    if array.dtype.kind in "iu":
        return array.tolist()
    flat = [
        float(str(each)) if finite else None for each, finite in zip(array.flat, np.isfinite(array.flat), strict=True)
    ]
    if array.ndim == 1:
        return flat
    width = array.shape[1]
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(each) for each in value)
    if not isinstance(value, Mapping):
        return value
    if "type" not in value:
        return {key: _decode(each) for key, each in value.items()}
    if value["type"] == PIXELS:
        pixels = np.frombuffer(zlib.decompress(base64.b64decode(value["deflated"])), dtype=np.uint8)
        return pixels.reshape(value["shape"])
    made_of = _CLASSES.get(value["type"])
    if made_of is None:
        raise DataError(f"{value['type']!r} is no part of a figure; expected one of {', '.join(sorted(_CLASSES))}.")
    known = {each.name for each in fields(made_of)}
    return made_of(**{name: _decode(each) for name, each in value.items() if name in known})


def to_jsonable(value: Any) -> Any:
    """A result (dataclasses, arrays, mappings) in the form that ``json.dumps(..., allow_nan=False)`` accepts.

    NaN becomes null, pixels are packed.

    >>> to_jsonable({"a": np.float32(0.25), "b": float("nan"), "c": (1, True)})
    {'a': 0.25, 'b': None, 'c': [1, True]}
    """
    kind = type(value)
    if value is None or kind in (str, int, bool):
        return value
    if isinstance(value, float):  # and of numpy
        return float(f"{value:.{JSON_DIGITS}g}") if math.isfinite(value) else None
    if kind is tuple or kind is list:
        return [to_jsonable(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(each) for key, each in value.items()}
    if is_dataclass(kind):
        return {each.name: to_jsonable(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, np.ndarray):
        return _pixels(value) if value.dtype == np.uint8 else to_jsonable(value.tolist())
    if isinstance(value, tuple | list):
        return [to_jsonable(each) for each in value]
    return to_jsonable(value.item()) if isinstance(value, np.generic) else value


def _pixels(levels: np.ndarray) -> dict[str, Any]:
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(levels).tobytes(), 6)).decode()
    return {"type": PIXELS, "shape": list(levels.shape), "deflated": packed}
