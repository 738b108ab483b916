"""A profile Dataset as a describer reads it: the maps by name, the examples behind them, where they came from.

Numbers only; the sentences are in `account.py` and `findings.py`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, STATISTIC
from headwise.describe import maps


class ProfileReading:
    """The parts of a profile by name. Maps are (layer, head)."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.keys = [str(key) for key in dataset[STATISTIC].values]
        self.layers, self.heads = self._names(LAYER), self._names(HEAD)
        self.total = len(self.layers) * len(self.heads)
        self.measured = [key for key in self.keys if bool(self.map(key).notnull().any())]

    def map(self, key: str, variable: str = "value") -> xr.DataArray:
        return self.dataset[variable].sel({STATISTIC: key})

    def at(self, head: maps.HeadValue, key: str, variable: str) -> float:
        row, column = self.layers.index(head.layer), self.heads.index(head.head)
        return float(self.map(key, variable).transpose(LAYER, HEAD).values[row, column])

    def text(self, key: str, coord: str) -> str:
        return str(self.dataset[coord].sel({STATISTIC: key}).values)

    def label(self, key: str) -> str:
        return self.text(key, "label")

    def labels(self, keys: list[str]) -> list[str]:
        return [self.label(key) for key in keys]

    def uniform(self, key: str) -> float:
        """The mean level of a head that spreads its attention evenly; NaN where that is meaningless."""
        level = self.map(key, "uniform").values
        return float(level[np.isfinite(level)].mean(dtype=float)) if np.isfinite(level).any() else math.nan

    def half_width(self, key: str) -> float:
        """Half the width of the 95 % interval in the median head; NaN without intervals."""
        half = ((self.map(key, "high") - self.map(key, "low")) / 2).values
        return float(np.median(half[np.isfinite(half)])) if np.isfinite(half).any() else math.nan

    def has_intervals(self, key: str) -> bool:
        return math.isfinite(self.half_width(key))

    def missing(self, key: str) -> int:
        return int(self.map(key).isnull().sum())

    def example_groups(self) -> list[tuple[list[str], Counter[str]]]:
        """Statistics that were measured on the same examples, with the registers of these; the largest group first."""
        if "per_example" not in self.dataset:
            return []
        seen = self.dataset["per_example"].notnull().any((LAYER, HEAD)).transpose(STATISTIC, EXAMPLE).values
        registers = [str(name) for name in self.dataset["register"].values]
        groups: dict[tuple[bool, ...], list[str]] = {}
        for key, row in zip(self.keys, seen, strict=True):
            if row.any():
                groups.setdefault(tuple(row.tolist()), []).append(key)
        found = [
            (keys, Counter(name for name, used in zip(registers, row, strict=True) if used))
            for row, keys in groups.items()
        ]
        return sorted(found, key=lambda group: -len(group[0]))

    def _names(self, dim: str) -> list[int]:
        coords = self.dataset.coords
        return [int(name) for name in coords[dim].values] if dim in coords else list(range(self.dataset.sizes[dim]))
