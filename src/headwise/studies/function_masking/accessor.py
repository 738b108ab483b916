"""A masking study as a describer reads it: what was done to which function, and what follows beyond doubt.

"Beyond doubt" is one rule: the whole 95 % interval is above 0, and at least five steps were asked. Numbers only; the
sentences are in `account` and `findings`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import AMOUNT, FUNCTION, MASKED, REMOVED
from headwise.describe.phrases import best
from headwise.studies.function_masking.figure import LEAST_ASKED
from headwise.studies.functions.figure.grid import shown_functions


class MaskingReading:
    """The parts of a masking study by name."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.parameters: dict[str, Any] = self.origin.get("parameters", {})
        self.functions = shown_functions(dataset, None, "The function_masking study")  # in the figures' order
        self.masked = [name for name in self.functions if not self.of("reason", name)]
        self.augmented = [name for name in self.functions if not self.of("augment_reason", name)]
        self.removed = [int(count) for count in dataset[REMOVED].values]
        self.amounts = [float(amount) for amount in dataset[AMOUNT].values]
        self.size = int(dataset.attrs["size"])
        self.chains = int(dataset.attrs["chains"])

    def of(self, variable: str, function: str) -> Any:
        """What a function has of a variable that has one entry a function."""
        return self.dataset[variable].sel({FUNCTION: function}).item()

    def level(self, variable: str) -> float:
        """A number of the whole study."""
        return float(self.dataset[variable])

    def at(self, variable: str, function: str, step: float) -> float:
        """A point of a curve: at so many heads, or at an amount."""
        dim = REMOVED if REMOVED in self.dataset[variable].dims else AMOUNT
        return float(self.dataset[variable].sel({FUNCTION: function, dim: step}))

    def cell(self, variable: str, masked: str, function: str) -> float:
        return float(self.dataset[variable].sel({MASKED: masked, FUNCTION: function}))

    def known(self, function: str) -> list[int]:
        """The numbers of heads at which the function was masked."""
        return [count for count in self.removed if np.isfinite(self.at("own", function, count))]

    def parted(self, function: str) -> list[int]:
        """Of these, the ones at which its heads cost more than random ones beyond doubt."""
        return [count for count in self.known(function) if self.at("effect_low", function, count) > 0]

    def enough(self) -> list[str]:
        """Masked functions of which so many steps are asked that an interval over them means something."""
        return [name for name in self.masked if int(self.of("asked", name)) >= LEAST_ASKED]

    def needed(self) -> list[str]:
        """Functions whose heads cost more than random ones, over all numbers of heads."""
        return [name for name in self.enough() if self.of("mean_effect_low", name) > 0]

    def spared(self) -> list[str]:
        """Functions whose heads cost less than random ones."""
        return [name for name in self.enough() if self.of("mean_effect_high", name) < 0]

    def specific(self) -> list[str]:
        """Functions whose own steps lose more, at `size` heads, than those of others: the intervals do not meet."""
        return [
            name for name in self.needed() if self.cell("cross_effect_low", name, name) > self.of("spill_high", name)
        ]

    def diagonal(self) -> list[float]:
        """What each masked function's own steps lose at `size` heads."""
        found = [self.cell("cross_effect", name, name) for name in self.masked]
        return [value for value in found if np.isfinite(value)]

    def others(self, variable: str = "cross_effect") -> list[float]:
        """The same (or another matrix) for steps of other functions, over all pairs."""
        found = [self.cell(variable, one, other) for one in self.masked for other in self.functions if one != other]
        return [value for value in found if np.isfinite(value)]

    def tops(self) -> tuple[list[str], list[str]]:
        """Masked functions whose own steps lose most of all, and those that share that place with others."""
        alone: list[str] = []
        shared: list[str] = []
        for name in self.masked:
            first = best({other: self.cell("cross_effect", name, other) for other in self.functions})
            if name in first:
                (shared if len(first) > 1 else alone).append(name)
        return alone, shared

    def best_amounts(self, function: str) -> list[float]:
        """The amounts at which augmenting gains most: one, or several that gain the same."""
        return best({one: self.at("gain", function, one) for one in self.amounts_known(function)})

    def amounts_known(self, function: str) -> list[float]:
        """The amounts over 0 at which the function was augmented."""
        return [one for one in self.amounts[1:] if np.isfinite(self.at("augmented", function, one))]

    def raised(self, function: str) -> list[float]:
        """The amounts at which accuracy rises beyond doubt, over nothing added and over random directions."""
        return [
            one
            for one in self.amounts_known(function)
            if self.at("gain_low", function, one) > 0 and self.at("gain_over_random_low", function, one) > 0
        ]

    def hierarchy(self) -> list[str]:
        """Low-order functions that whole chains were run without."""
        return [name for name in self.functions if np.isfinite(self.of("chain_effect", name))]
