"""The table of heads for a browser: one array a column, so that 5,120 heads x 100 columns are sorted and filtered there.

Numbers keep the fewest digits that bring the same float32 back; what was not measured is null. A column knows its study, a
readable title and its kind: ``number``, ``text``, or ``test`` for p- and q-values, where small is what a reader looks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from headwise.analysis import default_columns
from headwise.core.dims import HEAD, LAYER

__all__ = ["columnar"]

_TESTS = ("p", "q", "head_q")


def columnar(frame: pd.DataFrame, order: Sequence[str] = ()) -> dict[str, Any]:
    """``{names, layer, head, columns: [{name, study, title, kind, usual, values}]}`` of the joined record of an atlas.

    The columns of studies in ``order`` come first, in that order; ``usual`` are those that a page shows at first.
    """
    studies = {study: place for place, study in enumerate(order)}
    names = [str(name) for name in frame.columns if name not in (LAYER, HEAD)]
    names.sort(key=lambda name: studies.get(name.partition(".")[0], len(studies)))
    usual = set(default_columns(names))
    return {
        "names": [str(name) for name in frame.index],
        "layer": [int(place) for place in frame[LAYER]],
        "head": [int(place) for place in frame[HEAD]],
        "columns": [_column(name, frame[name], name in usual) for name in names],
    }


def _column(name: str, values: pd.Series, usual: bool) -> dict[str, Any]:
    study, _, rest = name.partition(".")
    number = values.dtype.kind in "iufb"
    last = rest.rpartition(".")[2]
    return {
        "name": name,
        "study": study,
        "title": rest.replace(".", " · ").replace("_", " "),
        "kind": "test" if number and last in _TESTS else "number" if number else "text",
        "usual": usual,
        "values": _numbers(values.to_numpy()) if number else [_text(value) for value in values],
    }


def _numbers(values: np.ndarray) -> list[float | int | None]:
    if values.dtype.kind != "f":
        return [int(value) for value in values]
    finite = np.isfinite(values)
    return [float(str(value)) if there else None for value, there in zip(values, finite, strict=True)]


def _text(value: Any) -> str | None:
    return None if value is None or (isinstance(value, float) and np.isnan(value)) else str(value)
