"""What changed between the same columns of two atlases, per head or by depth, and which heads changed most?

    change of a head = mean over studies of  mean over columns of |b - a| / spread
    noise of a head  = the same with the expected |b - a| of re-running the same model: √(2/π) x standard error

where the spread of a column is the standard deviation over the heads of both atlases. Every reported change is shown next to
the change expected from re-running the same model. Columns without a confidence interval enter the change, not the ratio.

The standard error of a change comes from paired examples where both atlases have the same ones, else from the intervals:

| column | standard error and test |
|---|---|
| mean over examples that both have (profile, patterns) | of the mean difference per example; paired t-test |
| share of pairs that both asked (relations) | of the mean difference per pair; exact McNemar test |
| anything else with a confidence interval in both | se² = se_a² + se_b², se = width / (2 x 1.96); normal |
| no confidence interval | none: the change is shown, not tested |

The third treats the two as independent, which is conservative where both were asked the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
import xarray as xr

from headwise.analysis.columns import Column, Columns
from headwise.core.dims import COLUMN, CONDITION, DEPTH, EXAMPLE, HEAD, LAYER, head_name
from headwise.core.errors import AtlasError
from headwise.core.schema import INTERVAL_ENDS, Schema, Variable, annotate
from headwise.stats import benjamini_hochberg, spearman
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.paired_shares import sign_test

__all__ = ["change_error", "changes", "depths", "example_values", "ranked_heads", "spreads"]

DEPTH_BANDS = 10
NAMED_COLUMNS = 3  # per head
MIN_EXAMPLES = 5  # in common, for a paired test
HALF_NORMAL = float(np.sqrt(2 / np.pi))
CELLS = (LAYER, HEAD)
MAPS, BANDS = (COLUMN, *CELLS), (COLUMN, DEPTH)
CHANGES = Schema(
    "changes",
    1,
    (
        Variable("a", MAPS, "value in A"),
        Variable("b", MAPS, "value in B"),
        Variable("change", MAPS, "B - A"),
        Variable("noise", MAPS, "standard error of the change; NaN where the studies have no confidence interval"),
        Variable(
            "q", MAPS, "of no change, Benjamini-Hochberg over the heads; NaN where there is no confidence interval"
        ),
        Variable("test", (COLUMN,), 'test of no change: "paired over 84 texts", "from both intervals", or none'),
        Variable("mean_change", (COLUMN,), "mean of B - A over heads"),
        Variable("correlation", (COLUMN,), "Spearman of A with B over heads"),
        Variable("changed", (COLUMN,), "heads with q < 0.05"),
        Variable("tested", (COLUMN,), "heads whose change was tested"),
        Variable("beyond", (COLUMN,), "heads whose two 95 % confidence intervals do not overlap"),
    ),
)
DEPTHS = Schema(
    "depths",
    1,
    (
        *(
            Variable(f"{side.lower()}{end}", BANDS, f"{words} over the heads of the band in {side}")
            for side in "AB"
            for end, words in (("", "median"), ("_low", "lower quartile"), ("_high", "upper quartile"))
        ),
        Variable("p", (COLUMN,), "Kolmogorov-Smirnov, all heads of A against all heads of B"),
        Variable("q", (COLUMN,), "the same after Benjamini and Hochberg, over the columns"),
    ),
)


def changes(a: Columns, b: Columns, one: Mapping[str, xr.Dataset], other: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Of every column that both have, as `CHANGES` says; both must have the same layers and heads."""
    pairs = _shared(a, b)
    data = _dataset(pairs).assign_coords({LAYER: np.arange(a.layers), HEAD: np.arange(a.heads)})
    errors = [change_error(*sides, one[sides[0].study], other[sides[0].study]) for sides in pairs]
    for name, side in (("a", 0), ("b", 1)):
        data[name] = MAPS, np.stack([sides[side].values for sides in pairs])
    data["noise"] = MAPS, np.stack([each.error for each in errors])
    data["q"] = MAPS, np.stack([benjamini_hochberg(each.p) for each in errors])
    data["test"] = COLUMN, [each.test for each in errors]
    data["change"] = data["b"] - data["a"]
    data["mean_change"] = data["change"].mean(CELLS)
    data["correlation"] = COLUMN, [spearman(here.values.ravel(), there.values.ravel()) for here, there in pairs]
    data["changed"] = (data["q"] < 0.05).sum(CELLS)
    data["tested"] = data["q"].notnull().sum(CELLS)
    data["beyond"] = COLUMN, [_apart(*sides) for sides in pairs]
    return annotate(data, CHANGES)


def _shared(a: Columns, b: Columns) -> list[tuple[Column, Column]]:
    others = {column.name: column for column in b.columns}
    return [(column, others[column.name]) for column in a.columns if column.name in others]


def _dataset(pairs: Sequence[tuple[Column, Column]]) -> xr.Dataset:
    """No variable yet; every column has its study and label."""
    if not pairs:
        raise AtlasError("The atlases have no measured column in common; build the same studies for both.")
    return xr.Dataset(
        coords={COLUMN: [one.name for one, _ in pairs]}
        | {name: (COLUMN, [getattr(one, name) for one, _ in pairs]) for name in ("study", "label")}
    )


def _apart(a: Column, b: Column) -> int:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return 0
    return int(((a.low > b.high) | (b.low > a.high)).sum())


def spreads(data: xr.Dataset) -> xr.DataArray:
    """Standard deviation of every column over the heads of both; NaN where all are equal."""
    found = xr.concat([data["a"], data["b"]], "side").std(("side", *CELLS))
    return found.where(found > 0)


def ranked_heads(data: xr.Dataset) -> pd.DataFrame:
    """One row per head, the most changed first."""
    spread = spreads(data)
    change, noise = abs(data["change"]) / spread, HALF_NORMAL * data["noise"] / spread
    over, under = _over_studies(change.where(noise.notnull())), _over_studies(noise)
    layer, head = np.indices(change.shape[1:]).reshape(2, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        times = np.where(over == 0, 0.0, over / under)
    frame = pd.DataFrame(
        {
            LAYER: layer,
            HEAD: head,
            "change": _over_studies(change),
            "noise": under,
            "times": times,
            "changed": (data["q"] < 0.05).sum(COLUMN).values.ravel(),
            "columns": _largest_changes(data, change),
        },
        index=pd.Index(map(head_name, layer, head), name="name"),
    )
    return frame[np.isfinite(frame["change"])].sort_values("change", ascending=False, kind="stable")


def _over_studies(values: xr.DataArray) -> np.ndarray:
    """Per head: mean over studies of the mean over columns; NaN where none has a value."""
    found: np.ndarray = values.groupby("study").mean(COLUMN).mean("study").values.ravel()
    return found


def _largest_changes(data: xr.Dataset, change: xr.DataArray) -> list[str]:
    names, (a, b) = data[COLUMN].values, (data[side].values.reshape(len(change), -1) for side in "ab")
    size = np.nan_to_num(change.values).reshape(a.shape)
    order = np.argsort(-size, axis=0, kind="stable")[:NAMED_COLUMNS]
    return [
        ", ".join(f"{names[row]} {a[row, head]:.3g} → {b[row, head]:.3g}" for row in rows if size[row, head] > 0)
        for head, rows in enumerate(order.T)
    ]


def depths(a: Columns, b: Columns) -> xr.Dataset:
    """Of every column that both have and measured, as `DEPTHS` says: medians and quartiles per band of relative depth."""
    pairs = [sides for sides in _shared(a, b) if all(np.isfinite(side.values).any() for side in sides)]
    count = min(DEPTH_BANDS, a.layers, b.layers)
    data = _dataset(pairs).assign_coords({DEPTH: (np.arange(count) + 0.5) / count})
    for side, name in enumerate("ab"):
        bands = np.stack([_bands(sides[side].values, count) for sides in pairs])
        for index, end in enumerate(INTERVAL_ENDS):
            data[f"{name}{end}"] = BANDS, bands[:, index]
    known = [[side.values[np.isfinite(side.values)] for side in sides] for sides in pairs]
    data["p"] = COLUMN, [float(scipy.stats.ks_2samp(*sides).pvalue) for sides in known]
    data["q"] = COLUMN, benjamini_hochberg(data["p"].values)
    return annotate(data, DEPTHS)


def _bands(values: np.ndarray, count: int) -> np.ndarray:
    """(3, band): median, lower and upper quartile."""
    depth = np.arange(len(values)) / max(len(values) - 1, 1)
    band = np.minimum((depth * count).astype(int), count - 1)
    bands = (values[band == each] for each in range(count))
    known = [own[np.isfinite(own)] for own in bands]
    return np.array([np.quantile(own, (0.5, 0.25, 0.75)) if own.size else np.full(3, np.nan) for own in known]).T


class ChangeError(NamedTuple):
    """Standard error of a change and p, both (layer, head); NaN where there is none."""

    error: np.ndarray
    p: np.ndarray
    test: str


def change_error(a: Column, b: Column, one: xr.Dataset, other: xr.Dataset) -> ChangeError:
    """The standard error of b - a, from the Datasets of the two columns."""
    sides = [_hits(a, dataset) if a.hits else example_values(a, dataset) for dataset in (one, other)]
    return _paired(a, *sides) or _from_intervals(a, b)


def _paired(column: Column, one: xr.DataArray | None, other: xr.DataArray | None) -> ChangeError | None:
    """Where both have values of the same examples: of as many as possible of a mean, of all of a share."""
    if one is None or other is None or (column.hits and one[EXAMPLE].values.tolist() != other[EXAMPLE].values.tolist()):
        return None
    one, other = xr.align(one, other, join="inner")
    grid = {dim: np.arange(size) for dim, size in zip(CELLS, column.values.shape, strict=True)}
    difference = (other - one).reindex(grid).transpose(EXAMPLE, *CELLS).values.astype(float)
    seen = np.isfinite(difference).sum(0)
    least = 1 if column.hits else MIN_EXAMPLES
    if len(difference) < least or (seen[seen > 0] < least).any() or not seen.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(difference, 0) / np.where(seen > 0, seen, np.nan)
        error = np.sqrt(np.nansum((difference - mean) ** 2, 0) / np.maximum(seen - 1, 1) / seen)
        if column.hits:
            p = sign_test((difference > 0).sum(0), (difference < 0).sum(0))
        else:
            p = 2 * scipy.special.stdtr(seen - 1, -np.abs(mean) / error)
            p = np.where(error > 0, p, np.where(np.abs(mean) > 0, 0.0, 1.0))
    known = np.isfinite(mean) & np.isfinite(column.values)
    test = f"paired over {int(seen.max())} {'pairs' if column.hits else 'texts'}"
    return ChangeError(np.where(known, error, np.nan), np.where(known, p, np.nan), test)


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


def _hits(column: Column, dataset: xr.Dataset) -> xr.DataArray:
    """Which pairs of the column's entry, such as its relation, are right."""
    own = dataset[column.hits_of].values.astype(str) == column.entry
    return dataset[column.hits].isel({EXAMPLE: own}).astype(np.int8)


def _from_intervals(a: Column, b: Column) -> ChangeError:
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
