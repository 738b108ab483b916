"""Does a probe detect errors, or the errors of one topic? Fitted on one group of topics, tested on the others.

    raw[a, b]    AUROC on group b of the probe fitted on group a; a = b: cross-validated inside the group
    raw[others, b]   fitted on all groups but b
    gain[a, b]   raw[a, b] minus the AUROC of the log-probability (mean over the exact answer's tokens) on group b

The probe reads the last token of the exact answer; its layer is chosen inside the rows it is fitted on, by one-step
probes. Most of what transfers is also in the log-probability (Orgad et al., arXiv 2410.02707): `gain` shows what
is left. Topics with too few answers are merged first (`probes.generalisation`). Intervals are DeLong's in the tested group.

Cost: a choice among the layers and one fit per group, six for each cell of the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import EXAMPLE, TOPIC, TRAINED_ON
from headwise.probes.batched_logistic.probe import LogisticProbe
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.generalisation import group_topics
from headwise.probes.one_step import OneStepProbes, device_auroc
from headwise.stats import auroc, auroc_by_fold
from headwise.stats.blas import single_threaded_blas
from headwise.studies.probing.positions import LAST, POSITIONS

OTHERS = "others"
FOLDS = 5
MIN_PER_CLASS_IN_GROUP = 10  # answers, for a group to be fitted or tested on

Labels = NDArray[np.bool_]
Floats = NDArray[np.float64]


@single_threaded_blas
def transfer(
    shards: Sequence[xr.Dataset],
    topics: NDArray[np.str_],
    wrong: Labels,
    logprob: Floats,
    seed: int,
    device: torch.device,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and coordinates of the Dataset; nothing where there are not two groups.

    `logprob` (row,) is larger for answers more likely wrong.
    """
    if len(set(topics.tolist())) < 2:
        return {}, {}
    token = POSITIONS.index(LAST)
    exact = np.concatenate([shard["activation"].values[:, 0, :, token] for shard in shards])  # (row, layer, width)
    question = np.concatenate([shard["activation"].values[:, 0, exact.shape[1] // 2, 0] for shard in shards])
    measured = np.isfinite(exact).all(axis=(0, 2))
    layers = torch.from_numpy(exact[:, measured].astype(np.float32)).transpose(0, 1).contiguous().to(device)
    group_of = np.array(group_topics(topics, question.astype(np.float64), wrong))
    names = sorted(set(group_of.tolist()))
    if len(names) < 2:
        return {}, {}
    found = np.full((3, len(names) + 1, len(names)), np.nan)
    baseline = np.full(len(names), np.nan)
    for column, name in enumerate(names):
        test = group_of == name
        if _rarer_class(wrong, test) < MIN_PER_CLASS_IN_GROUP:
            continue
        baseline[column] = float(auroc(logprob[test], wrong[test]).value)
        for row, other in enumerate([*names, OTHERS]):
            train = ~test if other == OTHERS else group_of == other
            if other == name:
                found[:, row, column] = _inside(layers, wrong, test, seed)
            elif _rarer_class(wrong, train) >= MIN_PER_CLASS_IN_GROUP:
                one = auroc(_fit(layers, wrong, train, seed)(test), wrong[test])
                found[:, row, column] = one.value, one.low, one.high
    dims = (TRAINED_ON, TOPIC)
    sides = dict(zip(("transfer", "transfer_low", "transfer_high"), found, strict=True))
    variables: dict[str, Any] = {name: (dims, values.astype(np.float32)) for name, values in sides.items()}
    variables["transfer_gain"] = (dims, (found[0] - baseline).astype(np.float32))
    variables["transfer_logprob"] = ((TOPIC,), baseline.astype(np.float32))
    variables["transfer_size"] = ((TOPIC,), np.array([int((group_of == name).sum()) for name in names]))
    variables["group"] = ((EXAMPLE,), group_of.astype(object))
    return variables, {TRAINED_ON: np.array([*names, OTHERS], dtype=object), TOPIC: np.array(names, dtype=object)}


def _rarer_class(wrong: Labels, rows: Labels) -> int:
    """Answers of the rarer class among these rows."""
    return int(min((wrong & rows).sum(), (~wrong & rows).sum()))


def _inside(layers: Tensor, wrong: Labels, rows: Labels, seed: int) -> tuple[float, float, float]:
    """Cross-validated inside a group; the layer is chosen in the training folds."""
    indices = np.flatnonzero(rows)
    fold_of = assign_folds(wrong[indices], folds=min(FOLDS, _rarer_class(wrong, rows)), seed=seed)
    score = np.empty(len(indices))
    for fold in np.unique(fold_of):
        train, test = np.zeros(len(wrong), dtype=bool), np.zeros(len(wrong), dtype=bool)
        train[indices[fold_of != fold]], test[indices[fold_of == fold]] = True, True
        score[fold_of == fold] = _fit(layers, wrong, train, seed)(test)
    one, _ = auroc_by_fold(score, wrong[indices], fold_of)
    return float(one.value), float(one.low), float(one.high)


def _fit(layers: Tensor, wrong: Labels, train: Labels, seed: int) -> Callable[[Labels], Floats]:
    """A probe on these rows, at the layer that does best inside them: rows -> scores."""
    own = torch.as_tensor(train, device=layers.device)
    fold_of = assign_folds(wrong[train], folds=min(FOLDS, _rarer_class(wrong, train)), seed=seed)
    labels = torch.as_tensor(wrong[train], device=layers.device)[:, None]
    step = OneStepProbes(layers[:, own], fold_of)
    layer = int(device_auroc(step.out_of_fold(labels), labels, step.fold_of)[:, 0].argmax())
    values = layers[layer].cpu().numpy()
    probe = LogisticProbe().fit(values[train], wrong[train])
    return lambda rows: probe.decision_function(values[rows])
