"""A patterns Dataset as a describer reads it: numbers by name, of either subject or between the two.

Numbers only; the sentences are in `account.py`, `findings.py` and `changes.py`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, STATISTIC, SUBJECT
from headwise.describe import maps

LEVEL, HALF = 0.05, 0.5
FULL = 0.999  # rows that sum to less have weight nowhere


class Estimate(NamedTuple):
    """A mean over prompts and its 95 % interval."""

    value: float
    low: float
    high: float


class PatternsReading:
    """The parts of a patterns study by name. Maps are (layer, head); subject 0 is the model, 1 what it is set against."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.parameters: dict[str, Any] = self.origin.get("parameters", {})
        self.names = [str(name) for name in dataset["name"].values]
        self.keys = [str(key) for key in dataset[STATISTIC].values]
        self.layers = [int(layer) for layer in dataset[LAYER].values]
        self.heads = [int(head) for head in dataset[HEAD].values]
        self.two = dataset.sizes[SUBJECT] == 2
        self.prompts = dataset.sizes[EXAMPLE]
        self.tokens = [str(token) for token in dataset["token_text"].values]
        self.total = int(self.value("peak").notnull().sum())  # heads

    @property
    def gated(self) -> bool:
        """Whether a subject lets rows look nowhere, so that they sum to less than 1."""
        return any(self.whole("mass", place).value < FULL for place in range(len(self.names)))

    @property
    def tests(self) -> int:
        """How many cells were tested."""
        return int(self.dataset["q"].notnull().sum())

    def value(self, key: str, subject: int = 0, variable: str = "value") -> xr.DataArray:
        """A number of every head."""
        return self.dataset[variable].isel({SUBJECT: subject}).sel({STATISTIC: key}).astype(float)

    def change(self, key: str, variable: str = "change") -> xr.DataArray:
        """How a number of every head changed, or its test."""
        return self.dataset[variable].sel({STATISTIC: key}).astype(float)

    def clear(self, key: str) -> xr.DataArray:
        """Whether the interval of a head's mean change leaves out 0: the test is of ranks, and can see less than the mean."""
        return (self.change(key, "change_low") > 0) | (self.change(key, "change_high") < 0)

    def map(self, variable: str) -> xr.DataArray:
        """A map between the two subjects, such as "similarity"."""
        return self.dataset[variable].astype(float)

    def at(self, head: maps.HeadValue, values: xr.DataArray) -> float:
        return float(values.sel({LAYER: head.layer, HEAD: head.head}))

    def whole(self, feature: str, subject: int = 0) -> Estimate:
        """A number of all heads together."""
        one = self.dataset.isel({SUBJECT: subject}).sel({FEATURE: feature})
        return Estimate(*(float(one[f"whole{end}"]) for end in ("", "_low", "_high")))

    def whole_change(self, feature: str) -> Estimate:
        one = self.dataset.sel({FEATURE: feature})
        return Estimate(*(float(one[f"whole_change{end}"]) for end in ("", "_low", "_high")))

    def whole_p(self, feature: str) -> float:
        return float(self.dataset["whole_p"].sel({FEATURE: feature}))

    def between(self, name: str) -> Estimate:
        """A number of all heads between the two subjects: similarity, other, dropped, gained, kl."""
        return Estimate(*(float(self.dataset[f"whole_{name}{end}"]) for end in ("", "_low", "_high")))

    def uniform(self, key: str) -> float:
        """The mean level of a head that looks evenly at all it can see."""
        return float(np.nanmean(self.dataset["uniform"].sel({STATISTIC: key}).values))

    def dominant(self, subject: int = 0) -> xr.DataArray:
        """Whether over half of a head's weight lies on the diagonal band."""
        return self.value("diagonal", subject) > HALF

    def moved(self, off: bool = True) -> list[maps.HeadValue]:
        """Heads that were dominant on the diagonal and no longer are (or the reverse), with q < 0.05; largest change first."""
        before, after = (self.dominant(0), self.dominant(1)) if off else (self.dominant(1), self.dominant(0))
        sure = before & ~after & (self.change("diagonal", "q") < LEVEL)
        change = self.change("diagonal")
        return maps.strongest((-change if off else change).where(sure), self.total)

    def changed(self, key: str) -> int:
        """How many heads changed, q < 0.05."""
        return int((self.change(key, "q") < LEVEL).sum())

    def peaked(self, subject: int = 0) -> int:
        """How many heads have an off-diagonal peak in at least half of the prompts."""
        return int((self.dataset["peaked"].isel({SUBJECT: subject}) >= HALF).sum())

    def label(self, key: str) -> str:
        return str(self.dataset["label"].sel({STATISTIC: key}).values)

    def definition(self, key: str) -> str:
        return str(self.dataset["definition"].sel({STATISTIC: key}).values)
