"""What changed between the same columns of two atlases, per head or by depth, and which heads changed most?

    change of a head = mean over studies of  mean over columns of |b - a| / spread
    noise of a head  = the same with the expected |b - a| of re-running the same model: √(2/π) x standard error

where the spread of a column is the standard deviation over the heads of both atlases. Every reported change is shown next to
the change expected from re-running the same model. Columns without a confidence interval enter the change, not the ratio.

The standard error of a change comes from paired examples where both atlases have the same ones, else from the intervals:

| column | standard error and test |
|---|---|
| mean over examples that both have (profile, patterns) | of the mean difference per example; paired t-test |
| share of pairs that both asked (relations) | pairs that only one of the two gets right; exact McNemar test |
| anything else with a confidence interval in both | se² = se_a² + se_b², se = width / (2 x 1.96); normal |
| no confidence interval | none: the change is shown, not tested |

The third treats the two as independent, which is conservative where both were asked the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy
import xarray as xr

from headwise.analysis.columns import Column, Columns
from headwise.core.dims import CONDITION, EXAMPLE, HEAD, LAYER
from headwise.stats.correlation import spearman
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.multiple_testing import benjamini_hochberg

__all__ = ["ColumnChange", "DepthChange", "changes", "depths", "ranked_heads", "spread_of"]

Floats = tuple[float, ...]
DEPTH_BANDS = 10
NAMED_COLUMNS = 3  # per head
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
    """standard error of the change, per head; NaN where the studies have no confidence interval"""
    q: np.ndarray
    """Benjamini-Hochberg over the heads, of the test of no change; NaN where there is no confidence interval"""
    test: str
    """the test: "paired over 84 texts", "from both intervals", or "" """
    mean_change: float
    """B - A"""
    correlation: float
    """Spearman of A with B over heads"""
    changed: int
    """heads with q < 0.05"""
    tested: int
    beyond: int
    """heads whose two 95 % confidence intervals do not overlap"""

    @property
    def change(self) -> np.ndarray:
        """B - A, per head."""
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
    """One column of two models of different shape: by relative depth, not per head."""

    name: str
    study: str
    label: str
    depth: tuple[float, ...]
    """centres of the bands; 0 is the first layer, 1 the last"""
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
    others = {column.name: column for column in b.columns}
    return tuple(
        _change(column, others[column.name], one[column.study], other[column.study])
        for column in a.columns
        if column.name in others and column.study in one and column.study in other
    )


def _change(a: Column, b: Column, one: xr.Dataset, other: xr.Dataset) -> ColumnChange:
    error = change_error(a, b, one, other)
    q = benjamini_hochberg(error.p)
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
        noise=error.error,
        q=q,
        test=error.test,
        mean_change=float(np.nanmean(change)) if both.any() else float("nan"),
        correlation=spearman(a.values.ravel(), b.values.ravel()),
        changed=int((q < 0.05).sum()),
        tested=int(np.isfinite(q).sum()),
        beyond=apart,
    )


def spread_of(column: ColumnChange) -> float:
    """Standard deviation over the heads of both; NaN where all are equal."""
    values = np.concatenate([column.a.ravel(), column.b.ravel()])
    found = float(np.std(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
    return found if found > 0 else float("nan")


def ranked_heads(columns: tuple[ColumnChange, ...], names: list[str], heads: int) -> pd.DataFrame:
    """One row per head, the most changed first."""
    spreads = [spread_of(column) for column in columns]
    change = np.stack([np.abs(c.change).ravel() / s for c, s in zip(columns, spreads, strict=True)])  # (column, head)
    noise = np.stack([HALF_NORMAL * c.noise.ravel() / s for c, s in zip(columns, spreads, strict=True)])
    study = np.array([column.study for column in columns])
    noted = np.where(np.isfinite(noise), change, np.nan)
    sure = np.stack([column.q.ravel() < 0.05 for column in columns])
    named = [_largest_changes(columns, change[:, head], head) for head in range(len(names))]
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
            "columns": named,
        },
        index=pd.Index(names, name="name"),
    )
    return frame[np.isfinite(frame["change"])].sort_values("change", ascending=False, kind="stable")


def _largest_changes(columns: tuple[ColumnChange, ...], change: np.ndarray, head: int) -> str:
    order = [int(each) for each in np.argsort(-np.nan_to_num(change), kind="stable")[:NAMED_COLUMNS]]
    return ", ".join(
        f"{columns[each].name} {columns[each].a.flat[head]:.3g} → {columns[each].b.flat[head]:.3g}"
        for each in order
        if np.nan_to_num(change[each]) > 0
    )


def _over_studies(values: np.ndarray, study: np.ndarray) -> np.ndarray:
    """(head,): mean over studies of the mean over columns; NaN where none has a value."""
    per_study = np.stack([_mean(values[study == each]) for each in dict.fromkeys(study.tolist())])
    return _mean(per_study)


def _mean(values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    total = known.sum(0)
    return np.where(total > 0, np.where(known, values, 0).sum(0) / np.maximum(total, 1), np.nan)


def depths(a: Columns, b: Columns) -> tuple[DepthChange, ...]:
    """Of every column that both have and measured: medians and quartiles per band of relative depth."""
    others = {column.name: column for column in b.columns}
    pairs = [(column, others[column.name]) for column in a.columns if column.name in others]
    pairs = [sides for sides in pairs if all(np.isfinite(side.values).any() for side in sides)]
    count = min(DEPTH_BANDS, a.layers, b.layers)
    p = np.array([_unlike(one.values, other.values) for one, other in pairs])
    q = benjamini_hochberg(p)
    centres = tuple((band + 0.5) / count for band in range(count))
    found = []
    for index, (one, other) in enumerate(pairs):
        here, there = _bands(one.values, count), _bands(other.values, count)
        sides = (*here, *there)
        found.append(DepthChange(one.name, one.study, one.label, centres, *sides, p=float(p[index]), q=float(q[index])))
    return tuple(found)


def _bands(values: np.ndarray, count: int) -> tuple[Floats, Floats, Floats]:
    """Median, lower and upper quartile per band."""
    layers = len(values)
    depth = np.arange(layers) / max(layers - 1, 1)
    band = np.minimum((depth * count).astype(int), count - 1)
    found = []
    for each in range(count):
        own = values[band == each]
        own = own[np.isfinite(own)]
        found.append(np.quantile(own, (0.5, 0.25, 0.75)) if own.size else np.full(3, np.nan))
    middle, low, high = (tuple(float(each) for each in side) for side in np.array(found).T)
    return middle, low, high


def _unlike(one: np.ndarray, other: np.ndarray) -> float:
    first, second = (values[np.isfinite(values)] for values in (one, other))
    return float(scipy.stats.ks_2samp(first, second).pvalue) if first.size and second.size else float("nan")


MIN_EXAMPLES = 5  # in common, for a paired test


@dataclass(frozen=True, eq=False)
class ChangeError:
    """Standard error of a change and p, both (layer, head); NaN where there is none."""

    error: np.ndarray
    p: np.ndarray
    test: str


def change_error(a: Column, b: Column, one: xr.Dataset, other: xr.Dataset) -> ChangeError:
    """The standard error of b - a, from the Datasets of the two columns."""
    found = _hits(a, one, other) if a.hits else _examples(a, one, other)
    return found or _intervals(a, b)


def _examples(column: Column, one: xr.Dataset, other: xr.Dataset) -> ChangeError | None:
    """Where the column is a mean over named examples that both Datasets have."""
    pair = [example_values(column, dataset) for dataset in (one, other)]
    if pair[0] is None or pair[1] is None:
        return None
    first, second = xr.align(pair[0], pair[1], join="inner")
    difference = (second - first).transpose(EXAMPLE, LAYER, HEAD).values.astype(float)
    seen = np.isfinite(difference).sum(0)
    if first.sizes[EXAMPLE] < MIN_EXAMPLES or (seen[seen > 0] < MIN_EXAMPLES).any() or not seen.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(difference, 0) / np.where(seen > 0, seen, np.nan)
        error = np.sqrt(np.nansum((difference - mean) ** 2, 0) / (seen - 1) / seen)
        p = 2 * scipy.special.stdtr(seen - 1, -np.abs(mean) / error)
    p = np.where(error > 0, p, np.where(np.abs(mean) > 0, 0.0, 1.0))
    return ChangeError(error, np.where(np.isfinite(mean), p, np.nan), f"paired over {int(seen.max())} texts")


def example_values(column: Column, dataset: xr.Dataset) -> xr.DataArray | None:
    """(example, layer, head) of a column that is the variable "value", or None."""
    if "per_example" not in dataset or "value" not in dataset or column.values.size == 0:
        return None
    chosen = dataset["per_example"].reset_coords(drop=True)
    if CONDITION in chosen.dims:
        chosen = chosen.sel({CONDITION: "model"}).drop_vars(CONDITION)
    (key_dim,) = [str(dim) for dim in chosen.dims if dim not in (EXAMPLE, LAYER, HEAD)] or [""]
    key = column.name.rsplit(".", 1)[-1]
    labels = chosen[key_dim].values.astype(str).tolist() if key_dim else []
    return chosen.isel({key_dim: labels.index(key)}).drop_vars(key_dim) if key in labels else None


def _hits(column: Column, one: xr.Dataset, other: xr.Dataset) -> ChangeError | None:
    """Where both asked the same pairs of the column's entry, such as its relation."""
    sides = []
    for dataset in (one, other):
        own = dataset[column.hits_of].values.astype(str) == column.entry
        sides.append(dataset[column.hits].isel({EXAMPLE: own}).transpose(EXAMPLE, LAYER, HEAD))
    if sides[0].sizes[EXAMPLE] == 0 or sides[0][EXAMPLE].values.tolist() != sides[1][EXAMPLE].values.tolist():
        return None
    first, second = (side.values.astype(bool) for side in sides)
    gained, lost = (~first & second).sum(0), (first & ~second).sum(0)
    pairs, moved = len(first), gained + lost
    p = np.where(moved > 0, np.minimum(1, 2 * scipy.stats.binom.cdf(np.minimum(gained, lost), moved, 0.5)), 1.0)
    mean = (gained - lost) / pairs
    error = np.sqrt(np.maximum(moved / pairs - mean**2, 0) / max(pairs - 1, 1))
    measured = np.isfinite(column.values)
    return ChangeError(_on_grid(error, measured), _on_grid(p, measured), f"paired over {pairs} pairs")


def _on_grid(values: np.ndarray, measured: np.ndarray) -> np.ndarray:
    grid = np.full(measured.shape, np.nan)
    grid[: values.shape[0], : values.shape[1]] = values
    return np.where(measured, grid, np.nan)


def _intervals(a: Column, b: Column) -> ChangeError:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        nothing = np.full(a.values.shape, np.nan)
        return ChangeError(nothing, nothing, "")
    error = np.hypot((a.high - a.low) / (2 * HALF_WIDTH), (b.high - b.low) / (2 * HALF_WIDTH))
    with np.errstate(invalid="ignore", divide="ignore"):
        p = 2 * scipy.special.ndtr(-np.abs(b.values - a.values) / error)
    p = np.where(error > 0, p, np.where(b.values == a.values, 1.0, 0.0))
    return ChangeError(
        error, np.where(np.isfinite(error) & np.isfinite(b.values - a.values), p, np.nan), "from both intervals"
    )
