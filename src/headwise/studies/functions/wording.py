"""What would a label that is no function look like? From single heads, layer by layer: how is a step worded?

Every head that sees the words of a step beats permuted labels, because functions are asked in different words. The null that
means something is a label that is no function. Here: whether a step begins with the word that most steps of its function begin
with, *within* the function, so that it says nothing about the function. Next to it, the function itself on the same footing:

    wording     steps of the function that begin with its most frequent first word, against its other steps
    function    as many steps of the function, against as many steps of the others

Each is read by one-step logistic probes on single heads (`probe_quality`), cross-validated with whole questions in one fold; a
layer's value is the mean AUROC of its heads. Functions with fewer than `MIN_PER_FORM` steps of either wording are left out
(NaN). Both labels have the same numbers of steps, so that neither is decoded better because it has more.

Cost: two probes per head and function on some tens of steps: below a second on the default model.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import FUNCTION, LAYER
from headwise.probes.cell_maps import OneStepProbes, device_auroc
from headwise.studies.functions.probe_quality import ProbeData, question_folds

__all__ = ["MIN_PER_FORM", "depth_of_wording", "first_word"]

MIN_PER_FORM = 10  # steps of either wording
Flags = NDArray[np.bool_]


def first_word(subquestion: str) -> str:
    """The first word, without the signs around it.

    >>> first_word("The colour is ..."), first_word('"Nancy sings" means ...'), first_word(" ")
    ('the', 'nancy', '')
    """
    return (subquestion.split() or [""])[0].strip("\"'“”‘’.,:;?!()").casefold()


def depth_of_wording(data: ProbeData, seed: int) -> xr.Dataset:
    """AUROC per function and layer: of the function, and of how its steps are worded."""
    words = np.array([first_word(str(text)) for text in data.readings["subquestion"].values])
    shape = (len(data.functions), data.shape[0])
    found = {name: np.full(shape, np.nan) for name in ("function_by_layer", "wording_by_layer")}
    named, counts = np.full(shape[0], "", dtype=object), np.zeros((shape[0], 2), dtype=np.int64)
    for label in range(len(data.functions)):
        own = np.flatnonzero(data.labels == label)
        ((most, _),) = Counter(words[own].tolist()).most_common(1)
        common = words[own] == most
        counts[label], named[label] = (common.sum(), (~common).sum()), most
        if counts[label].min() < MIN_PER_FORM:
            continue
        generator = np.random.default_rng([seed, label, 5])
        others = generator.permutation(np.flatnonzero(data.labels != label))[: counts[label, 1]]
        some = generator.permutation(own)[: counts[label, 0]]
        rows, positive = np.concatenate([some, others]), np.arange(len(own)) < len(some)
        if len(others) == counts[label, 1]:
            found["function_by_layer"][label] = _by_layer(data, rows, positive, seed)
        found["wording_by_layer"][label] = _by_layer(data, own, common, seed)
    variables: dict[str, Any] = {name: ((FUNCTION, LAYER), values) for name, values in found.items()}
    variables |= {
        "first_word": (FUNCTION, named),
        "with_first_word": (FUNCTION, counts[:, 0]),
        "without_first_word": (FUNCTION, counts[:, 1]),
    }
    return xr.Dataset(variables)


def _by_layer(data: ProbeData, rows: NDArray[np.int64], positive: Flags, seed: int) -> NDArray[np.float64]:
    """(layer,): mean over its heads of the cross-validated AUROC."""
    fold_of = question_folds(positive.astype(np.int64), data.groups[rows], seed)
    z = torch.from_numpy(data.z[rows][:, data.there]).transpose(0, 1).contiguous()  # (head, row, width)
    probes, target = OneStepProbes(z, fold_of), torch.from_numpy(positive)[:, None]
    both = [fold for fold in range(probes.folds) if 0 < positive[fold_of == fold].sum() < (fold_of == fold).sum()]
    areas = device_auroc(probes.out_of_fold(target), target, probes.fold_of, both)[:, 0].numpy()
    on_map = data.on_map(areas.astype(np.float64))
    there = np.isfinite(on_map).any(axis=1)
    return np.where(there, np.nansum(on_map, axis=1) / np.maximum(np.isfinite(on_map).sum(axis=1), 1), np.nan)
