"""All probes of the study, layer by layer: a layer of all answers is read, everything about it is fitted, and it is gone.

On a CPU each worker has a layer of its own; on a GPU as many layers are fitted together as its memory holds, and shards are
decompressed by several threads. Only scores and areas stay.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from torch import Tensor

from headwise.core.dims import EXAMPLE, LAYER, SITE
from headwise.core.progress import StepCount
from headwise.probes.batched_logistic.parallel_map import parallel_map
from headwise.probes.cell_maps import CellMap, concatenate, probe_cells
from headwise.stats.blas import single_threaded_blas
from headwise.studies.probing.positions import EXACT_COLUMNS, LAST_COLUMN, POSITIONS
from headwise.studies.probing.table import Judged
from headwise.studies.probing.transfer import TransferPlan

_GROUP_BYTES = 2**30  # of activations that are on a GPU together, in float32
_READERS = 8  # threads that decompress shards for a GPU

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]


@dataclass(frozen=True)
class FittedProbes:
    """All probes that were fitted. Cells are in the order layer, then token or head."""

    sites: Mapping[str, CellMap]
    heads: CellMap
    published: CellMap  # layer, then the four exact-answer tokens
    paper: Floats | None  # (layer, token)
    transfer: Floats  # (training rows, layer): what `TransferPlan.areas` gives

    @property
    def first_site(self) -> CellMap:
        """The site of the table and of the published spans."""
        return next(iter(self.sites.values()))


@dataclass(frozen=True)
class ShardReader:
    """Reads a layer of all shards, or several, and nothing else of them."""

    shards: Sequence[xr.Dataset]
    device: torch.device

    def read(self, name: str, *index: int | slice) -> Tensor:
        """(cell, row, width) as it is stored, on the device, from (row, ..., cell, width) of every shard; layers in order."""
        arrays = [shard[name].variable[(slice(None), *index)] for shard in self.shards]
        width, ends = arrays[0].shape[-1], np.cumsum([0, *(len(array) for array in arrays)]).tolist()
        cells = arrays[0][0].size // width
        found = np.empty((cells, ends[-1], width), np.result_type(*(array.dtype for array in arrays)).newbyteorder("="))

        def copy(number: int) -> None:
            values = arrays[number].values.reshape(len(arrays[number]), cells, width)
            found[:, ends[number] : ends[number + 1]] = values.transpose(1, 0, 2)

        if self.device.type == "cpu":  # one of several workers
            for number in range(len(arrays)):
                copy(number)
        else:
            with ThreadPoolExecutor(_READERS) as pool:
                list(pool.map(copy, range(len(arrays))))
        return torch.from_numpy(found).to(self.device)

    def groups(self, name: str) -> list[slice]:
        """Layers that are worked on together: one per worker on a CPU, as many as its memory holds on a GPU."""
        variable = self.shards[0][name].variable
        layers = variable.shape[variable.dims.index(LAYER)]
        size = 1
        if self.device.type != "cpu":
            rows = sum(shard.sizes[EXAMPLE] for shard in self.shards)
            per_layer = 4 * rows * math.prod(variable.shape[variable.dims.index(LAYER) + 1 :])
            size = max(1, _GROUP_BYTES // per_layer)
        return [slice(start, min(start + size, layers)) for start in range(0, layers, size)]


class _Work(NamedTuple):
    """Some layers of a site, or of the heads."""

    name: str
    site: int  # -1: none
    layers: slice


class _Done(NamedTuple):
    cells: CellMap
    published: CellMap | None = None
    paper: Floats | None = None
    transfer: Floats | None = None


def fit_probes(
    reader: ShardReader, judged: Judged, permuted: Labels, differs: Labels, plan: TransferPlan | None, *, paper: bool
) -> FittedProbes:
    """`differs` (answer, exact-answer token): where the published span is not the label-blind one."""
    wrong, fold_of = judged.wrong, judged.fold_of
    sites = [str(site) for site in reader.shards[0][SITE].values]
    on_cpu = reader.device.type == "cpu"
    other_on_host = torch.from_numpy(differs.T.copy())[..., None]
    other = other_on_host.to(reader.device)

    def work(one: _Work) -> _Done:
        count = one.layers.stop - one.layers.start
        features = reader.read(one.name, *([] if one.site < 0 else [one.site]), one.layers)
        cells = probe_cells(features, wrong, fold_of, permuted, judged.strata, parts=count)
        if one.site != 0:
            return _Done(cells)
        by_layer = features.view(count, len(POSITIONS), *features.shape[1:])
        areas = None if plan is None else plan.areas(by_layer[:, LAST_COLUMN])
        exact = by_layer[:, EXACT_COLUMNS]
        exact = torch.where(other, reader.read("published", one.layers).view_as(exact), exact)
        published = probe_cells(exact.flatten(0, 1), wrong, fold_of)
        by_layer[:, EXACT_COLUMNS] = exact
        found = np.concatenate([_paper_protocol(own, wrong) for own in by_layer.numpy()]) if paper and on_cpu else None
        return _Done(cells, published, found, areas)

    def paper_alone(layer: int) -> Floats:
        """In a forked process, which cannot use the GPU."""
        own = on_host.read("activation", 0, layer)
        exact = own[EXACT_COLUMNS]
        own[EXACT_COLUMNS] = torch.where(other_on_host, on_host.read("published", layer), exact)
        return _paper_protocol(own.numpy(), wrong)

    works = [_Work("activation", site, part) for site in range(len(sites)) for part in reader.groups("activation")]
    works += [_Work("z", -1, part) for part in reader.groups("z")]
    layers = range(reader.shards[0].sizes[LAYER])
    done = parallel_map(work, works, reader.device, StepCount("probes", len(works)))
    first = [found for one, found in zip(works, done, strict=True) if one.site == 0]
    scored = [found.paper for found in first if found.paper is not None]
    if paper and not on_cpu:
        on_host = ShardReader(reader.shards, torch.device("cpu"))
        scored = parallel_map(paper_alone, layers, on_host.device, StepCount("paper's protocol", len(layers)))

    def joined(site: int) -> CellMap:
        return concatenate([found.cells for one, found in zip(works, done, strict=True) if one.site == site])

    return FittedProbes(
        {name: joined(site) for site, name in enumerate(sites)},
        joined(-1),
        concatenate([found.published for found in first if found.published is not None]),
        np.concatenate(scored).reshape(-1, len(POSITIONS)) if paper else None,
        np.concatenate([np.empty((0, 0)) if one.transfer is None else one.transfer for one in first], axis=1),
    )


@single_threaded_blas
def _paper_protocol(layer: NDArray[Any], wrong: Labels) -> Floats:
    """(token,) AUROC on the held-out fifth, from (token, row, width); one token at a time in float32."""
    train, test = train_test_split(np.arange(len(wrong)), test_size=0.2, random_state=0)
    found = np.full(len(layer), np.nan)
    if len(set(wrong[train])) < 2 or len(set(wrong[test])) < 2:
        return found  # no AUROC with one class
    for token, values in enumerate(layer):
        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            probe = LogisticRegression().fit(values[train], wrong[train])
        found[token] = roc_auc_score(wrong[test], probe.decision_function(values[test]))
    return found
