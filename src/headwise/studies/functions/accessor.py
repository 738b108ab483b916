"""A functions Dataset as a describer reads it: functions by name, their maps, their heads, and what is shared.

Numbers only; the sentences are in `account` and `findings`.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER, SEED, head_name
from headwise.describe import maps
from headwise.studies.functions.figure.companions import correlations
from headwise.studies.functions.figure.grid import shown_functions
from headwise.studies.functions.figure.maps import scale_of


class FunctionsReading:
    """The parts of a functions study by name. Maps are (layer, head)."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.functions = shown_functions(dataset, None, "The functions study")  # in the figures' order
        self.layers = [int(layer) for layer in dataset[LAYER].values]
        self.heads = [int(head) for head in dataset[HEAD].values]
        self.refused = [name for name in self.functions if bool(self.of("refused", name))]
        self.mapped = [name for name in self.functions if name not in self.refused]
        self.seeds = dataset.sizes[SEED]
        self.scale = scale_of(dataset)
        self.left_out: dict[str, str] = json.loads(dataset.attrs.get("left_out", "{}"))

    def of(self, variable: str, function: str) -> Any:
        """What a function has of a variable that has one entry a function."""
        return self.dataset[variable].sel({FUNCTION: function}).item()

    def level(self, variable: str) -> float:
        """A number of the whole study."""
        return float(self.dataset[variable])

    def map(self, function: str, variable: str = "magnitude") -> xr.DataArray:
        return self.dataset[variable].sel({FUNCTION: function}).astype(float)

    def at(self, head: maps.HeadValue, function: str, variable: str) -> float:
        return float(self.map(function, variable).sel({LAYER: head.layer, HEAD: head.head}))

    def measured(self, function: str) -> int:
        return int(self.map(function).notnull().sum())

    def chosen(self, function: str) -> set[str]:
        """The names of the heads up to the elbow."""
        cells = np.argwhere(self.dataset["chosen"].sel({FUNCTION: function}).transpose(LAYER, HEAD).values)
        return {head_name(self.layers[row], self.heads[column]) for row, column in cells}

    def fullest_layers(self, function: str) -> list[int]:
        """The layers with most of the heads up to the elbow: one, or several with as many."""
        counts = self.dataset["chosen"].sel({FUNCTION: function}).sum(HEAD)
        return [int(layer) for layer in counts[LAYER].values[(counts == counts.max()).values]]

    def mass(self, function: str) -> float:
        """The share of the map's total that the heads up to the elbow have."""
        values = self.map(function)
        inside = values.where(self.dataset["chosen"].sel({FUNCTION: function}))
        return float(inside.sum() / values.sum())

    def by_third(self, function: str) -> maps.DepthTrend | None:
        """Where the heads up to the elbow stand."""
        return maps.depth_trend(self.map(function, "chosen"))

    def beyond(self, function: str) -> int:
        """Heads that shuffled labels do not explain."""
        return int(self.dataset["beyond_null"].sel({FUNCTION: function}).sum())

    def whole(self, head: maps.HeadValue, variable: str) -> float:
        """What a head has of a variable of all functions together."""
        return float(self.dataset[variable].sel({LAYER: head.layer, HEAD: head.head}))

    def total(self) -> int:
        """How many heads there are."""
        return int(self.dataset["alone_accuracy"].notnull().sum())

    def alone(self, function: str) -> float:
        """The share of heads that tell the function from the others by themselves, beyond shuffled labels."""
        q = self.dataset["alone_q"].sel({FUNCTION: function})
        return float((q < 0.05).sum() / q.notnull().sum())

    def owners(self) -> dict[str, list[str]]:
        """For each head that some function has up to its elbow: these functions. Heads of most functions first."""
        found: dict[str, list[str]] = {}
        for function in self.mapped:
            for name in sorted(self.chosen(function)):
                found.setdefault(name, []).append(function)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def exclusive(self, function: str) -> int:
        """How many heads of the function are of no other."""
        owners = self.owners()
        return sum(owners[name] == [function] for name in self.chosen(function))

    def pairs(self) -> list[tuple[str, str, float]]:
        """Functions two by two, with the correlation of their maps, the most alike first."""
        found = correlations(self.dataset.sel({FUNCTION: self.functions}))
        names = [str(name) for name in found[FUNCTION].values]
        rows = [(names[i], names[j], float(found.values[i, j])) for i, j in combinations(range(len(names)), 2)]
        return sorted((row for row in rows if np.isfinite(row[2])), key=lambda row: -row[2])

    def clipped(self) -> maps.Share:
        """Cells of all maps that lie over the end of the colour scale."""
        values = self.dataset["magnitude"].values
        return maps.Share(int((values > self.scale.high * (1 + 1e-6)).sum()), int(np.isfinite(values).sum()))

    def over(self, threshold: float) -> maps.Share:
        """Cells of all maps over a threshold."""
        values = self.dataset["magnitude"].values
        return maps.Share(int((values > threshold).sum()), int(np.isfinite(values).sum()))

    def form_tells(self) -> list[str]:
        """Functions that the answer's form alone tells within the interval of the probe on all heads, or better."""
        return [name for name in self.mapped if self.of("confound_auroc", name) >= self.of("auroc_low", name)]

    def right(self) -> float:
        """The share of all steps that the model answers right."""
        return float(self.dataset["right"].mean())

    def steps(self) -> int:
        return int(self.dataset.sizes[EXAMPLE])

    def chains(self) -> int:
        """How many questions the steps come from."""
        return len(set(self.dataset["chain"].values.tolist()))
