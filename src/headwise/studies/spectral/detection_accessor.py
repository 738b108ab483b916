"""A table of detectors as a describer reads it: rows by name and by kind, the curves that some of them have.

Numbers only; the sentences are in `account.py` and `findings.py`.
"""

from __future__ import annotations

import json
import math
import re
from statistics import NormalDist
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, LAYER, TOPIC, TRAINED_ON

OTHERS = "others"  # fitted on every topic but the one tested on
PUBLISHED = (  # from worst to best in the paper, by the names they may have here
    ("attnscore", "attentionscore"),
    ("attneigvals", "attentioneigenvalues", "attention"),
    ("lapeigvals", "laplacianeigenvalues", "laplacian"),
)


class DetectionReading:
    """The parts of a table of detectors by name."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.names = [str(name) for name in dataset[DETECTOR].values]
        reference = str(dataset.attrs.get("reference", ""))
        self.reference = reference if reference in self.names else None
        order = sorted(self.names, key=lambda name: -np.nan_to_num(self.at(name), nan=-1))
        self.ranked = [name for name in order if math.isfinite(self.at(name))]
        self.length = next((name for name in self.names if "length" in f"{name} {self.label(name)}".lower()), None)

    def at(self, name: str, variable: str = "auroc") -> float:
        """A number of one row; NaN where it does not apply."""
        return float(self.dataset[variable].sel({DETECTOR: name})) if variable in self.dataset else math.nan

    def interval(self, name: str, variable: str = "auroc") -> tuple[float, float] | None:
        low, high = self.at(name, f"{variable}_low"), self.at(name, f"{variable}_high")
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None

    def knows(self, name: str) -> bool:
        """Whether a detector is better than a coin toss: its whole interval is above 0.5."""
        ends = self.interval(name)
        return ends is not None and ends[0] > 0.5

    def finds(self) -> bool:
        """Whether any row is better than a coin toss when it is allowed for that all of them were looked at.

        Bonferroni: the lower half of the interval is widened as if for a level of 5 % over the whole table.
        """
        wider = NormalDist().inv_cdf(1 - 0.025 / max(len(self.ranked), 1)) / NormalDist().inv_cdf(1 - 0.025)
        rows = [(self.at(name), ends[0]) for name in self.ranked if (ends := self.interval(name)) is not None]
        return any(value - wider * (value - low) > 0.5 for value, low in rows)

    def label(self, name: str) -> str:
        return str(self.dataset["label"].sel({DETECTOR: name}).values) if "label" in self.dataset.coords else name

    def kind(self, name: str) -> str:
        return str(self.dataset["kind"].sel({DETECTOR: name}).values) if "kind" in self.dataset.coords else "supervised"

    def chooses_layer(self, name: str) -> bool:
        """Whether a detector reads one layer, chosen inside the training folds, and not all of them."""
        return "choice" in self.dataset.coords and str(self.dataset["choice"].sel({DETECTOR: name}).values) == LAYER

    def of_kind(self, *kinds: str) -> list[str]:
        """Best first."""
        return [name for name in self.ranked if self.kind(name) in kinds]

    def published(self) -> list[str]:
        """The rows of the paper's order, worst first; empty unless all are there."""
        found = [next((name for name in self.ranked if self._is(name, known)), "") for known in PUBLISHED]
        return found if all(found) else []

    def curve(self, name: str, variable: str, dim: str) -> dict[int, float]:
        """Place -> AUROC, where it was measured."""
        if variable not in self.dataset:
            return {}
        row = self.dataset[variable].sel({DETECTOR: name})
        pairs = zip(self.dataset[dim].values, row.values, strict=True)
        return {int(place): float(value) for place, value in pairs if math.isfinite(value)}

    def transfer(self, name: str) -> tuple[list[float], list[float], list[float]] | None:
        """AUROCs inside a topic, from one topic to another, and from all others to one; None when one is empty."""
        if "transfer" not in self.dataset:
            return None
        grid = self.dataset["transfer"].sel({DETECTOR: name}).transpose(TRAINED_ON, TOPIC)
        rows, columns = ([str(each) for each in grid[dim].values] for dim in (TRAINED_ON, TOPIC))
        inside, across, others = list[float](), list[float](), list[float]()
        for row, values in zip(rows, grid.values, strict=True):
            for column, value in zip(columns, values, strict=True):
                if math.isfinite(value):
                    (others if row == OTHERS else inside if row == column else across).append(float(value))
        return (inside, across, others) if inside and across and others else None

    def counts(self) -> tuple[int, int] | None:
        """Wrong and correct answers."""
        attrs = self.dataset.attrs
        if {"n_wrong", "n_right"} <= set(attrs):
            return int(attrs["n_wrong"]), int(attrs["n_right"])
        if "wrong" not in self.dataset.variables:
            return None
        wrong = self.dataset["wrong"].values.astype(bool)
        return int(wrong.sum()), int((~wrong).sum())

    def _is(self, name: str, known: tuple[str, ...]) -> bool:
        return any(re.sub(r"[^a-z]", "", text.lower()) in known for text in (name, self.label(name)))
