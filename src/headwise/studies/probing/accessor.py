"""A probing Dataset as a describer reads it: maps by site, columns and rows of them, the table, the leak.

Numbers only; the sentences are in `account.py` and `findings.py`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, HEAD, LAYER, SITE, TOKEN, TOPIC, TRAINED_ON
from headwise.stats.correlation import spearman

LEVEL = 0.05
EXACT = "exact_answer"
OTHERS = "others"
NAMES = {
    "mlp_in": "the MLP's input",
    "mlp_out": "the MLP's output",
    "attention_out": "attention's output",
    "residual": "the residual stream",
}


@dataclass(frozen=True)
class Cell:
    """A layer and a token, and the AUROC there."""

    layer: int
    token: str
    value: float


class ProbingReading:
    """The parts of a probing study by name. Maps are (layer, token), of the first site unless said otherwise."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.sites = [str(site) for site in dataset[SITE].values]
        self.tokens = [str(token) for token in dataset[TOKEN].values]
        self.layers = dataset.sizes[LAYER]
        self.counts: dict[str, int] = json.loads(dataset.attrs.get("counts", "{}"))
        self.leak: dict[str, dict[str, float]] = json.loads(dataset.attrs.get("leak", "{}"))
        self.exact = [token for token in self.tokens if token.startswith(EXACT)]

    def map(self, site: str | None = None, variable: str = "auroc") -> np.ndarray:
        """(layer, token) in double precision."""
        found = self.dataset[variable]
        if SITE in found.dims:
            found = found.sel({SITE: site or self.sites[0]})
        return found.transpose(LAYER, TOKEN).values.astype(float)

    def level(self, variable: str, site: str | None = None) -> float:
        """A number a site, such as ``nested``."""
        return float(self.dataset[variable].sel({SITE: site or self.sites[0]}))

    def best(self, site: str | None = None) -> Cell:
        values = self.map(site)
        layer, token = np.unravel_index(int(np.nanargmax(values)), values.shape)
        return Cell(int(layer), self.tokens[int(token)], float(values[layer, token]))

    def at(self, cell: Cell, variable: str, site: str | None = None) -> float:
        return float(self.map(site, variable)[cell.layer, self.tokens.index(cell.token)])

    def beyond(self, site: str | None = None) -> tuple[int, int]:
        """Cells above what the best of a map with shuffled labels reaches, of those measured."""
        values = self.map(site)
        return int((values > self.level("best_high", site)).sum()), int(np.isfinite(values).sum())

    def finds(self, site: str | None = None) -> bool:
        """Whether the best cell is better than the best by chance."""
        return self.level("best_p", site) < LEVEL

    def columns(self, site: str | None = None) -> dict[str, float]:
        """Token -> mean AUROC over layers, where it was measured."""
        values = self.map(site)
        found = {token: values[:, place] for place, token in enumerate(self.tokens)}
        return {token: float(np.nanmean(column)) for token, column in found.items() if np.isfinite(column).any()}

    def frame(self, site: str | None = None) -> tuple[int, int] | None:
        """Framed layers, first and last; None where nothing is framed."""
        if "frame_first" not in self.dataset:
            return None
        first, last = (int(self.level(name, site)) for name in ("frame_first", "frame_last"))
        return None if first < 0 else (first, last)

    def framed(self, site: str | None = None) -> tuple[float, float]:
        """Mean AUROC inside the frame, and in all other cells."""
        values, edges = self.map(site), self.frame(site)
        inside = np.zeros(values.shape, dtype=bool)
        if edges is not None:
            columns = [self.tokens.index(token) for token in self.exact]
            inside[edges[0] : edges[1] + 1, columns[0] : columns[-1] + 1] = True
        return _mean(values[inside]), _mean(values[~inside])

    def thirds(self, token: str, site: str | None = None) -> tuple[float, float, float] | None:
        """Mean AUROC of a token in the early, middle and late third of the layers."""
        column = self.map(site)[:, self.tokens.index(token)]
        if self.layers < 6 or not np.isfinite(column).all():
            return None
        early, middle, late = (float(part.mean()) for part in np.array_split(column, 3))
        return early, middle, late

    def row(self, name: str) -> tuple[float, float, float] | None:
        """A row of the table with its interval; None where it is not there."""
        if name not in [str(one) for one in self.dataset[DETECTOR].values]:
            return None
        found = self.dataset.sel({DETECTOR: name})
        value, low, high = (float(found[f"table_{side}"]) for side in ("auroc", "low", "high"))
        return value, low, high

    def rows(self, kind: str) -> list[str]:
        """Names of the table's rows of a kind, best first."""
        names = [str(name) for name in self.dataset[DETECTOR].values]
        kinds = [str(one) for one in self.dataset["kind"].values]
        values = self.dataset["table_auroc"].values
        chosen = [place for place in range(len(names)) if kinds[place] == kind and math.isfinite(values[place])]
        return [names[place] for place in sorted(chosen, key=lambda place: -values[place])]

    def heads(self) -> tuple[int, int]:
        """Heads with q < 0.05, of those measured."""
        q = self.dataset["head_q"].values
        return int((q < LEVEL).sum()), int(np.isfinite(q).sum())

    def head_map(self) -> xr.DataArray:
        return self.dataset["head_auroc"].transpose(LAYER, HEAD).astype(float)

    def transfer(self, variable: str = "transfer") -> tuple[list[float], list[float], list[float]] | None:
        """Inside a group, from one to another, and from all others to one; None where there is no matrix."""
        if variable not in self.dataset:
            return None
        grid = self.dataset[variable].transpose(TRAINED_ON, TOPIC)
        rows, columns = ([str(name) for name in grid[dim].values] for dim in (TRAINED_ON, TOPIC))
        found: dict[str, list[float]] = {"inside": [], "across": [], "others": []}
        for row, values in zip(rows, grid.values, strict=True):
            for column, value in zip(columns, values, strict=True):
                if math.isfinite(value):
                    found["others" if row == OTHERS else "inside" if row == column else "across"].append(float(value))
        return (found["inside"], found["across"], found["others"]) if all(found.values()) else None

    def attended(self) -> float:
        """Rank correlation, over cells, of the attention a token receives with the AUROC there; NaN if undefined."""
        one, other = self.map(variable="received").ravel(), self.map().ravel()
        there = np.isfinite(one) & np.isfinite(other)
        return spearman(one[there], other[there]) if there.sum() >= 10 else math.nan


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.nan
