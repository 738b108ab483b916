"""The maps of the probing study: from readings to AUROC at every layer and token, and at every head.

Steps, layer by layer, so that only one layer's activations are at hand at a time:

1. the fifteen tokens of each site: `probes.probe_cells` (AUROC, interval, null, inner folds);
2. every head's z at the exact answer: the same;
3. the first site at the published spans: AUROC alone, for the leak;
4. the paper's way at the first site: no scaling, scikit-learn's defaults (100 iterations, which do not converge), one
   80/20 split with seed 0, published spans.

A pure function of readings and labels. This module does not know a model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from torch import Tensor

from headwise.core.dims import HEAD, LAYER, SITE, TOKEN
from headwise.probes.cell_maps import CellMap, concatenate, nested, probe_cells, significance
from headwise.stats.blas import single_threaded_blas
from headwise.studies.probing.positions import EXACT, POSITIONS

__all__ = ["Probed", "probe_all", "to_maps"]

NEAR = 0.02  # of the best AUROC: the layers that are framed

Floats = NDArray[np.float64]
Layer = Callable[[int], Tensor]  # layer -> (cell, row, width)


@dataclass(frozen=True)
class Probed:
    """All probes that were fitted. Cells are in the order layer, then token or head."""

    sites: dict[str, CellMap]
    heads: CellMap
    published: CellMap  # layer, then the four exact-answer tokens
    paper: Floats | None  # (layer, token)


def probe_all(
    shards: Sequence[xr.Dataset],
    wrong: NDArray[np.bool_],
    fold_of: NDArray[np.int64],
    dealt: NDArray[np.bool_],
    *,
    paper: bool,
    device: torch.device,
) -> Probed:
    """Fit everything, layer by layer."""
    layers, sites = shards[0].sizes[LAYER], [str(site) for site in shards[0][SITE].values]

    def cells(of: Layer, shuffled: NDArray[np.bool_] | None) -> CellMap:
        return concatenate([probe_cells(of(layer), wrong, fold_of, shuffled) for layer in range(layers)])

    def site(place: int) -> Layer:
        return lambda layer: _stacked([shard["activation"][:, place, layer] for shard in shards], device)

    def published(layer: int) -> Tensor:
        return _stacked([shard["published"][:, layer] for shard in shards], device)

    def heads(layer: int) -> Tensor:
        return _stacked([shard["z"][:, layer] for shard in shards], device)

    return Probed(
        {name: cells(site(place), dealt) for place, name in enumerate(sites)},
        cells(heads, dealt),
        cells(published, None),
        _paper(site(0), published, wrong, layers) if paper else None,
    )


def _stacked(parts: Sequence[xr.DataArray], device: torch.device) -> Tensor:
    """(cell, row, width) float32, from (row, cell, width) of every shard."""
    whole = np.concatenate([part.values for part in parts]).astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(whole.transpose(1, 0, 2))).to(device)


@single_threaded_blas
def _paper(of: Layer, published: Layer, wrong: NDArray[np.bool_], layers: int) -> Floats:
    """(layer, token) AUROC on the held-out fifth, the published way."""
    rows = np.arange(len(wrong))
    train, test = train_test_split(rows, test_size=0.2, random_state=0)
    found = np.full((layers, len(POSITIONS)), np.nan)
    if len(set(wrong[train])) < 2 or len(set(wrong[test])) < 2:
        return found  # a split that happens to have one class only has no AUROC
    exact = [POSITIONS.index(name) for name in EXACT]
    for layer in range(layers):
        features = of(layer).cpu().numpy()
        features[exact] = published(layer).cpu().numpy()
        for token, values in enumerate(features):
            if not np.isfinite(values).all():
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                probe = LogisticRegression().fit(values[train], wrong[train])
            found[layer, token] = roc_auc_score(wrong[test], probe.decision_function(values[test]))
    return found


# ---- to a Dataset ---------------------------------------------------------------------------------------------------


def to_maps(
    probed: Probed, wrong: NDArray[np.bool_], fold_of: NDArray[np.int64], layers: int, heads: int
) -> dict[str, Any]:
    """Variables of the Dataset, without those that are an example's or a table's."""
    per_site: dict[str, list[Any]] = {}
    for cells in probed.sites.values():
        for name, values in _site_map(cells, wrong, fold_of, layers).items():
            per_site.setdefault(name, []).append(values)
    found: dict[str, Any] = {}
    for name, several in per_site.items():
        values = np.array(several)
        found[name] = ((SITE, LAYER, TOKEN)[: values.ndim], _small(values))  # a map a site, or a number a site
    against = significance(probed.heads)
    shape = (layers, heads)
    for name, values in {
        "head_auroc": probed.heads.value, "head_low": probed.heads.low, "head_high": probed.heads.high,
        "head_p": against.p, "head_q": against.q, "head_null_high": against.null_high,
    }.items():  # fmt: skip
        found[name] = ((LAYER, HEAD), _small(values.reshape(shape)))
    found["head_best_high"], found["head_best_p"] = ((), against.best_high), ((), against.best_p)
    found["published"] = ((LAYER, TOKEN), _small(_at_exact(probed.published.value, layers)))
    if probed.paper is not None:
        found["paper"] = ((LAYER, TOKEN), _small(probed.paper))
    return found


def _site_map(
    cells: CellMap, wrong: NDArray[np.bool_], fold_of: NDArray[np.int64], layers: int
) -> dict[str, NDArray[Any]]:
    against = significance(cells)
    best, _, chosen = nested(cells, wrong, fold_of)
    shape = (layers, len(POSITIONS))
    maps = {
        "auroc": cells.value, "low": cells.low, "high": cells.high, "p": against.p, "q": against.q,
        "null_high": against.null_high,
    }  # fmt: skip
    numbers = {"best_high": against.best_high, "best_p": against.best_p}
    numbers |= {"nested": float(best.value), "nested_low": float(best.low), "nested_high": float(best.high)}
    numbers |= dict(
        zip(("frame_first", "frame_last"), framed(cells.value.reshape(shape), against.best_high), strict=True)
    )
    times = np.bincount(chosen, minlength=cells.value.size).reshape(shape)  # how often each cell was chosen
    return (
        {name: values.reshape(shape) for name, values in maps.items()}
        | {name: np.array(value) for name, value in numbers.items()}
        | {"chosen": times}
    )


def framed(auroc: Floats, high: float) -> tuple[int, int]:
    """First and last layer that is within 0.02 of the best, at the exact answer; -1 where that is chance."""
    columns = [place for place, name in enumerate(POSITIONS) if name in EXACT]
    best = np.nan_to_num(auroc[:, columns], nan=-1.0).max(axis=1)  # (layer,)
    if not best.max() > high:
        return -1, -1
    near = np.flatnonzero(best >= best.max() - NEAR)
    return int(near[0]), int(near[-1])


def _at_exact(values: Floats, layers: int) -> Floats:
    """(layer, token): NaN at the tokens that do not depend on the exact answer."""
    found = np.full((layers, len(POSITIONS)), np.nan)
    found[:, [POSITIONS.index(name) for name in EXACT]] = values.reshape(layers, len(EXACT))
    return found


def _small(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float32)
