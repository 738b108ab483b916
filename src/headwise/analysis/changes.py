"""The same columns of two atlases: what changed, head by head or by depth, and which heads changed most.

    change of a head = mean over studies of  mean over columns of |b - a| / spread
    noise of a head  = the same with the mean |b - a| that a re-run without any change would give: √(2/π) x standard error

where a column's spread is the standard deviation of its values over heads, both atlases together. So a head is said to have
changed only with what nothing at all would have looked like beside it. Columns without an interval enter the change, and not
the ratio of both.

This module does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import binom, ks_2samp, norm, t

from headwise.analysis.columns import Column, Columns
from headwise.analysis.permutation import benjamini_hochberg
from headwise.core.dims import EXAMPLE, HEAD, LAYER, SUBJECT
from headwise.describe.maps import spearman

__all__ = ["ColumnChange", "DepthChange", "changes", "depths", "ranked_heads", "spread_of"]

Floats = tuple[float, ...]
BANDS = 10
NAMED = 3
HALF_NORMAL = float(np.sqrt(2 / np.pi))


@dataclass(frozen=True, eq=False)
class ColumnChange:
    """One column of the head table in both atlases. Maps are (layer, head), NaN where not measured."""

    name: str
    study: str
    label: str
    a: np.ndarray
    b: np.ndarray
    noise: np.ndarray
    """standard error of the change, head by head; NaN where the studies carry no interval"""
    q: np.ndarray
    """Benjamini-Hochberg over the heads, of the test that nothing changed; NaN where there is no interval"""
    test: str
    """how p was made: "paired over 84 texts", "from both intervals", or "" """
    mean_change: float
    """B - A"""
    correlation: float
    """Spearman of A with B over heads"""
    changed: int
    """heads with q < 0.05"""
    tested: int
    beyond: int
    """heads whose two 95 % intervals do not touch"""

    @property
    def change(self) -> np.ndarray:
        """B - A, head by head."""
        return self.b - self.a

    @property
    def same(self) -> bool:
        """Whether all heads have the same number in both."""
        return bool(np.array_equal(self.a, self.b, equal_nan=True))

    @property
    def measured(self) -> bool:
        """Whether any head has a number in both."""
        return bool(np.isfinite(self.change).any())


@dataclass(frozen=True)
class DepthChange:
    """One column of two models of unlike shape: by relative depth, never head by head."""

    name: str
    study: str
    label: str
    depth: tuple[float, ...]
    """middles of the bands, 0 is the first layer, 1 the last"""
    a: tuple[float, ...]
    """median over the heads of the band"""
    a_low: tuple[float, ...]
    """quartiles"""
    a_high: tuple[float, ...]
    b: tuple[float, ...]
    b_low: tuple[float, ...]
    b_high: tuple[float, ...]
    p: float
    """Kolmogorov-Smirnov, all heads of A against all heads of B"""
    q: float


def changes(
    a: Columns, b: Columns, one: Mapping[str, xr.Dataset], other: Mapping[str, xr.Dataset]
) -> tuple[ColumnChange, ...]:
    """Of every column that both have; both must have the same layers and heads."""
    beside = {column.name: column for column in b.columns}
    return tuple(
        _change(column, beside[column.name], one[column.study], other[column.study])
        for column in a.columns
        if column.name in beside and column.study in one and column.study in other
    )


def _change(a: Column, b: Column, one: xr.Dataset, other: xr.Dataset) -> ColumnChange:
    noise = noise_of(a, b, one, other)
    q = benjamini_hochberg(noise.p)
    apart = 0
    if a.low is not None and a.high is not None and b.low is not None and b.high is not None:
        apart = int(((a.low > b.high) | (b.low > a.high)).sum())
    both = np.isfinite(a.values) & np.isfinite(b.values)
    change = np.where(both, b.values - a.values, np.nan)
    return ColumnChange(
        name=a.name,
        study=a.study,
        label=a.label,
        a=a.values,
        b=b.values,
        noise=noise.error,
        q=q,
        test=noise.test,
        mean_change=float(np.nanmean(change)) if both.any() else float("nan"),
        correlation=spearman(a.values.ravel(), b.values.ravel()),
        changed=int((q < 0.05).sum()),
        tested=int(np.isfinite(q).sum()),
        beyond=apart,
    )


def spread_of(column: ColumnChange) -> float:
    """Standard deviation over the heads of both; NaN where all are alike."""
    values = np.concatenate([column.a.ravel(), column.b.ravel()])
    found = float(np.std(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
    return found if found > 0 else float("nan")


def ranked_heads(columns: tuple[ColumnChange, ...], names: list[str], heads: int) -> pd.DataFrame:
    """One row a head, the most changed first."""
    spreads = [spread_of(column) for column in columns]
    change = np.stack([np.abs(c.change).ravel() / s for c, s in zip(columns, spreads, strict=True)])  # (column, head)
    noise = np.stack([HALF_NORMAL * c.noise.ravel() / s for c, s in zip(columns, spreads, strict=True)])
    study = np.array([column.study for column in columns])
    noted = np.where(np.isfinite(noise), change, np.nan)
    sure = np.stack([column.q.ravel() < 0.05 for column in columns])
    told = [_told(columns, change[:, place], place) for place in range(len(names))]
    over, under = _over_studies(noted, study), _over_studies(noise, study)
    with np.errstate(invalid="ignore", divide="ignore"):
        times = np.where(over == 0, 0.0, over / under)
    frame = pd.DataFrame(
        {
            LAYER: np.arange(len(names)) // heads,
            HEAD: np.arange(len(names)) % heads,
            "change": _over_studies(change, study),
            "noise": under,
            "times": times,
            "changed": sure.sum(0),
            "columns": told,
        },
        index=pd.Index(names, name="name"),
    )
    return frame[np.isfinite(frame["change"])].sort_values("change", ascending=False, kind="stable")


def _told(columns: tuple[ColumnChange, ...], change: np.ndarray, place: int) -> str:
    order = [int(each) for each in np.argsort(-np.nan_to_num(change), kind="stable")[:NAMED]]
    return ", ".join(
        f"{columns[each].name} {columns[each].a.flat[place]:.3g} → {columns[each].b.flat[place]:.3g}"
        for each in order
        if np.nan_to_num(change[each]) > 0
    )


def _over_studies(values: np.ndarray, study: np.ndarray) -> np.ndarray:
    """(head,): mean over studies of the mean over columns; NaN where none has a value."""
    per_study = np.stack([_mean(values[study == each]) for each in dict.fromkeys(study.tolist())])
    return _mean(per_study)


def _mean(values: np.ndarray) -> np.ndarray:
    there = np.isfinite(values)
    total = there.sum(0)
    return np.where(total > 0, np.where(there, values, 0).sum(0) / np.maximum(total, 1), np.nan)


def depths(a: Columns, b: Columns) -> tuple[DepthChange, ...]:
    """Of every column that both have and measured: medians and quartiles in bands of relative depth."""
    beside = {column.name: column for column in b.columns}
    pairs = [(column, beside[column.name]) for column in a.columns if column.name in beside]
    pairs = [sides for sides in pairs if all(np.isfinite(side.values).any() for side in sides)]
    count = min(BANDS, a.layers, b.layers)
    p = np.array([_unlike(one.values, other.values) for one, other in pairs])
    q = benjamini_hochberg(p)
    middles = tuple((place + 0.5) / count for place in range(count))
    found = []
    for place, (one, other) in enumerate(pairs):
        here, there = _bands(one.values, count), _bands(other.values, count)
        sides = (*here, *there)
        found.append(DepthChange(one.name, one.study, one.label, middles, *sides, p=float(p[place]), q=float(q[place])))
    return tuple(found)


def _bands(values: np.ndarray, count: int) -> tuple[Floats, Floats, Floats]:
    """Median, lower and upper quartile of every band."""
    layers = len(values)
    depth = np.arange(layers) / max(layers - 1, 1)
    band = np.minimum((depth * count).astype(int), count - 1)
    found = []
    for place in range(count):
        own = values[band == place]
        own = own[np.isfinite(own)]
        found.append(np.quantile(own, (0.5, 0.25, 0.75)) if own.size else np.full(3, np.nan))
    middle, low, high = (tuple(float(each) for each in side) for side in np.array(found).T)
    return middle, low, high


def _unlike(one: np.ndarray, other: np.ndarray) -> float:
    first, second = (values[np.isfinite(values)] for values in (one, other))
    return float(ks_2samp(first, second).pvalue) if first.size and second.size else float("nan")


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
