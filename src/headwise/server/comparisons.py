"""One atlas against another, for the page /NAME/compare/OTHER: figures, words, and the heads that changed most.

Everything is computed by `analysis`; here it is put into the form of the pages and kept as long as neither atlas changes. Two
atlases that cannot be compared are told in a sentence on the page, not as an error.
"""

from __future__ import annotations

import threading
from typing import Any

import pandas as pd

from headwise.analysis import Comparison, compare, comparison_figure, describe_comparison
from headwise.core.errors import HeadwiseError
from headwise.figures import to_payload
from headwise.server.shelf import Shelved

__all__ = ["Comparisons"]

HEADS = 40  # named in the table
COLUMNS = {"change": "Change", "noise": "Of a re-run", "times": "Times that", "columns": "Where most"}


class Comparisons:
    """Pages of comparison, made when first asked for."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def between(self, one: Shelved, other: Shelved) -> tuple[dict[str, Any], str]:
        """What changed from one to the other, and the state of both."""
        state, place = f"{one.content()[1]}-{other.content()[1]}", (one.name, other.name)
        with self._lock:
            if self._kept.get(place, ("", {}))[0] != state:
                self._kept[place] = (state, _page(one, other))
            return self._kept[place][1], state


def _page(one: Shelved, other: Shelved) -> dict[str, Any]:
    try:
        found = compare(one.atlas, other.atlas)
        words = describe_comparison(found)
        figures = _figures(found, words.short())
    except HeadwiseError as error:
        text = other.unplaced(one.unplaced(str(error)))
        return {"short": text, "figures": [], "words": {}, "table": None, "warnings": []}
    return {
        "short": words.short(),
        "figures": figures,
        "words": words.sections(),
        "table": None if found.within_noise else _table(found.heads.head(HEADS)),
        "warnings": list(found.warnings),
    }


def _figures(found: Comparison, alt: str) -> list[dict[str, Any]]:
    """The columns that changed most, then those of every study."""
    studies = dict.fromkeys(column.study for column in (found.columns or found.depths))
    made = [("most", "What changed most", comparison_figure(found))]
    made += [(study, study.replace("_", " ").capitalize(), comparison_figure(found, study=study)) for study in studies]
    return [{"key": key, "label": label, "payload": to_payload(figure.with_alt(alt))} for key, label, figure in made]


def _table(heads: pd.DataFrame) -> dict[str, Any] | None:
    """Columnar, with the head's names; None where heads are not compared one by one."""
    if heads.empty:
        return None
    columns = [{"name": label, "values": _plain(heads[name])} for name, label in COLUMNS.items() if name in heads]
    return {"names": [str(name) for name in heads.index], "columns": columns}


def _plain(values: pd.Series) -> list[Any]:
    return [None if pd.isna(one) else one for one in values.tolist()]
