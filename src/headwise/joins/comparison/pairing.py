"""What is the noise of a change? From paired examples where both atlases have the same ones, else from the two intervals.

| the column | its noise |
|---|---|
| a mean over examples that both have (profile, patterns) | of the mean of the differences, example by example; t-test |
| a share of pairs that both asked (relations) | pairs that only one of the two gets right: exact sign test (McNemar) |
| anything else with an interval in both | se² = se_a² + se_b², se = width / (2 x 1.96); normal |
| no interval | none: a change is shown, and not tested |

The third takes the two for independent; where they were asked the same questions that is careful (their errors go together).

This module does not know how anything is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy.stats import binom, norm, t

from headwise.core.dims import EXAMPLE, HEAD, LAYER, SUBJECT
from headwise.joins.columns import Column

__all__ = ["Noise", "noise_of"]

LEAST_EXAMPLES = 5
HITS = {"score": "mapped", "suppression": "suppressed"}  # variable of relations -> which pairs are right
WIDTH = 2 * 1.959964


@dataclass(frozen=True, eq=False)
class Noise:
    """Of one column: standard error of the change and p, both (layer, head); NaN where there are none."""

    error: np.ndarray
    p: np.ndarray
    test: str


def noise_of(a: Column, b: Column, one: xr.Dataset, other: xr.Dataset) -> Noise:
    """The noise of b - a, with the Datasets the two columns came from."""
    found = _hits(a, one, other) if a.study == "relations" else _examples(a, one, other)
    return found or _intervals(a, b)


def _examples(column: Column, one: xr.Dataset, other: xr.Dataset) -> Noise | None:
    """Where the column is a mean over named examples that both Datasets have."""
    pair = [_per_example(column, dataset) for dataset in (one, other)]
    if pair[0] is None or pair[1] is None:
        return None
    first, second = xr.align(pair[0], pair[1], join="inner")
    difference = (second - first).transpose(EXAMPLE, LAYER, HEAD).values.astype(float)
    seen = np.isfinite(difference).sum(0)
    if first.sizes[EXAMPLE] < LEAST_EXAMPLES or (seen[seen > 0] < LEAST_EXAMPLES).any() or not seen.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(difference, 0) / np.where(seen > 0, seen, np.nan)
        error = np.sqrt(np.nansum((difference - mean) ** 2, 0) / (seen - 1) / seen)
        p = 2 * t.sf(np.abs(mean) / error, seen - 1)
    p = np.where(error > 0, p, np.where(np.abs(mean) > 0, 0.0, 1.0))
    return Noise(error, np.where(np.isfinite(mean), p, np.nan), f"paired over {int(seen.max())} texts")


def _per_example(column: Column, dataset: xr.Dataset) -> xr.DataArray | None:
    """(example, layer, head) of a column that is the variable "value", or None."""
    if "per_example" not in dataset or "value" not in dataset or column.values.size == 0:
        return None
    chosen = dataset["per_example"].reset_coords(drop=True)
    if SUBJECT in chosen.dims:
        chosen = chosen.sel({SUBJECT: "model"}).drop_vars(SUBJECT)
    (beside,) = [str(dim) for dim in chosen.dims if dim not in (EXAMPLE, LAYER, HEAD)] or [""]
    key = column.name.rsplit(".", 1)[-1]
    labels = chosen[beside].values.astype(str).tolist() if beside else []
    return chosen.isel({beside: labels.index(key)}).drop_vars(beside) if key in labels else None


def _hits(column: Column, one: xr.Dataset, other: xr.Dataset) -> Noise | None:
    """Where both asked the same pairs of the column's relation."""
    variable = HITS[column.name.rsplit(".", 1)[-1]]
    relation = column.label.rsplit(",", 1)[0]
    sides = []
    for dataset in (one, other):
        own = dataset["relation_of"].values.astype(str) == relation
        sides.append(dataset[variable].isel({EXAMPLE: own}).transpose(EXAMPLE, LAYER, HEAD))
    if sides[0].sizes[EXAMPLE] == 0 or sides[0][EXAMPLE].values.tolist() != sides[1][EXAMPLE].values.tolist():
        return None
    first, second = (side.values.astype(bool) for side in sides)
    gained, lost = (~first & second).sum(0), (first & ~second).sum(0)
    pairs, moved = len(first), gained + lost
    p = np.where(moved > 0, np.minimum(1, 2 * binom.cdf(np.minimum(gained, lost), moved, 0.5)), 1.0)
    mean = (gained - lost) / pairs
    error = np.sqrt(np.maximum(moved / pairs - mean**2, 0) / max(pairs - 1, 1))
    there = np.isfinite(column.values)
    grid = tuple(slice(0, size) for size in gained.shape)
    return Noise(_laid(error, there, grid), _laid(p, there, grid), f"paired over {pairs} pairs")


def _laid(values: np.ndarray, there: np.ndarray, grid: tuple[slice, ...]) -> np.ndarray:
    laid = np.full(there.shape, np.nan)
    laid[grid] = values
    return np.where(there, laid, np.nan)


def _intervals(a: Column, b: Column) -> Noise:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        nothing = np.full(a.values.shape, np.nan)
        return Noise(nothing, nothing, "")
    error = np.hypot((a.high - a.low) / WIDTH, (b.high - b.low) / WIDTH)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = 2 * norm.sf(np.abs(b.values - a.values) / error)
    p = np.where(error > 0, p, np.where(b.values == a.values, 1.0, 0.0))
    return Noise(
        error, np.where(np.isfinite(error) & np.isfinite(b.values - a.values), p, np.nan), "from both intervals"
    )
