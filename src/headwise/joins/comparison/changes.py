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

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import ks_2samp

from headwise.core.dims import HEAD, LAYER
from headwise.describe.maps import spearman
from headwise.joins.agreement.evidence import benjamini_hochberg
from headwise.joins.columns import Column, Columns
from headwise.joins.comparison.pairing import noise_of
from headwise.joins.comparison.result import ColumnChange, DepthChange

__all__ = ["changes", "depths", "ranked_heads"]

Floats = tuple[float, ...]
BANDS = 10
NAMED = 3
HALF_NORMAL = float(np.sqrt(2 / np.pi))


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
