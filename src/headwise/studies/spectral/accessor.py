"""A spectral Dataset as a describer reads it: the maps by name, the counts of answers, what chance would give.

Numbers only; the sentences are in `account.py` and `findings.py`.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, PART
from headwise.describe import maps

LEVEL = 0.05
WHOLE, ANSWER = "whole", "answer"


class SpectralReading:
    """The parts of a spectral study by name. Maps are (layer, head), of the whole text unless said otherwise."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.parts = [str(part) for part in dataset[PART].values]
        self.keys = [str(key) for key in dataset[FEATURE].values]
        self.part = WHOLE if WHOLE in self.parts else self.parts[0]
        self.layers, self.heads = self._names(LAYER), self._names(HEAD)
        self.total = len(self.layers) * len(self.heads)
        self.counts: dict[str, int] = json.loads(dataset.attrs.get("counts", "{}")) or self._counted()
        self.measured = [key for key in self.keys if self.has(key)]

    def map(self, key: str, variable: str = "p", part: str | None = None) -> xr.DataArray:
        """In double precision, so that a threshold is the same number everywhere."""
        return self.dataset[variable].sel({PART: part or self.part, FEATURE: key}).astype(float)

    def has(self, key: str, variable: str = "p", part: str | None = None) -> bool:
        """Whether there is a map, with at least one head measured."""
        if variable not in self.dataset or (part or self.part) not in self.parts:
            return False
        return bool(self.map(key, variable, part).notnull().any())

    def under(self, key: str, variable: str = "p", part: str | None = None) -> maps.Share:
        """How many heads are under 0.05, of those measured."""
        values = self.map(key, variable, part)
        return maps.Share(int((values < LEVEL).sum()), int(values.notnull().sum()))

    def strength(self, key: str) -> xr.DataArray:
        """How far the single feature's AUROC is from a coin toss, either way."""
        return abs(self.map(key, "effect") - 0.5)

    def chosen(self, key: str) -> xr.DataArray:
        """1 where q < 0.05, else 0; NaN where there is no test."""
        q = self.map(key, "q")
        return (q < LEVEL).astype(float).where(q.notnull())

    def kept(self, key: str) -> int | None:
        """Heads with q < 0.05 that have it with answers paired by length, too; None where that was not tested."""
        if not self.has(key, "q_matched"):
            return None
        return int(((self.map(key, "q_matched") < LEVEL) & (self.chosen(key) > 0)).sum())

    def at(self, head: maps.HeadValue, key: str, variable: str) -> float:
        row, column = self.layers.index(head.layer), self.heads.index(head.head)
        return float(self.map(key, variable).transpose(LAYER, HEAD).values[row, column])

    def level(self, key: str, variable: str, part: str | None = None) -> float:
        """A number a map, such as ``null_p``; NaN where it was not computed."""
        if variable not in self.dataset or (part or self.part) not in self.parts:
            return math.nan
        return float(self.dataset[variable].sel({PART: part or self.part, FEATURE: key}))

    def finds(self, key: str) -> bool:
        """Whether the map shows more than chance: more heads than with shuffled labels, or some that survive FDR."""
        return self.level(key, "null_p") < LEVEL or self.under(key, "q").count > 0

    def label(self, key: str) -> str:
        return self._text(key, "label") or key

    def definition(self, key: str) -> str:
        return self._text(key, "definition")

    def missing(self, key: str) -> int:
        return int(self.map(key).isnull().sum())

    def lengths(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Tokens of the wrong and of the correct answers; None without both."""
        if not {"answer_tokens", "wrong"} <= set(self.dataset.variables):
            return None
        tokens, wrong = self.dataset["answer_tokens"].values.astype(float), self.dataset["wrong"].values.astype(bool)
        return (tokens[wrong], tokens[~wrong]) if wrong.any() and not wrong.all() else None

    def _counted(self) -> dict[str, int]:
        if "wrong" not in self.dataset:
            return {}
        wrong = int(self.dataset["wrong"].values.astype(bool).sum())
        return {"wrong": wrong, "correct": self.dataset.sizes[EXAMPLE] - wrong}

    def _text(self, key: str, coord: str) -> str:
        return str(self.dataset[coord].sel({FEATURE: key}).values) if coord in self.dataset.coords else ""

    def _names(self, dim: str) -> list[int]:
        coords = self.dataset.coords
        return [int(name) for name in coords[dim].values] if dim in coords else list(range(self.dataset.sizes[dim]))
