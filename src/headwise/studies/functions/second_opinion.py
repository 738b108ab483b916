"""Each head alone: how well does its own z tell a function from the others? A simpler importance, to hold the first against.

For every head one-step logistic probes (a ridge regression, `probes.cell_maps`) on its z, standardised, in folds of whole
questions over all steps. Kept: the AUROC of each function against the others, mean over folds, with p and q against
labels shuffled within the folds; and the accuracy of naming the function whose probe says most.

The joint probe shares a function among all heads that know it; here every head is asked by itself. Two maps that agree
are better evidence than either. Cost: one inverse a head, steps x steps; 270 heads x 400 steps: a few seconds.
This module does not know the joint probe.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from headwise.probes.cell_maps import OneStepProbes, device_auroc
from headwise.stats import benjamini_hochberg, pooled_null_p, wilson_interval
from headwise.stats.permutation import permuted_rows

__all__ = ["Alone", "each_alone"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FOLDS, BLOCK = 5, 32  # heads at a time


class Alone(NamedTuple):
    """Every head by itself."""

    auroc: Floats
    p: Floats
    q: Floats
    """(function, head)"""
    accuracy: Floats
    low: Floats
    high: Floats
    """(head,): all functions told apart"""


def each_alone(z: Any, labels: Ints, groups: Any, classes: int, *, shuffles: int = 10, seed: int = 0) -> Alone:
    """`z` (row, head, width), `labels` (row,) from 0, `groups` (row,): rows of one question stay in one fold."""
    fold_of = folds_of(labels, groups, seed)
    own = np.eye(classes, dtype=bool)[labels]  # (row, function)
    orders = [permuted_rows(fold_of, np.random.default_rng([seed + number, 3])) for number in range(shuffles)]
    sets = np.concatenate([own, *(own[order] for order in orders)], axis=1)
    rows, heads = z.shape[:2]
    areas, right = np.empty((heads, sets.shape[1])), np.empty(heads)
    told, labelled = torch.from_numpy(sets), torch.from_numpy(own)
    for start in range(0, heads, BLOCK):
        some = torch.as_tensor(z[:, start : start + BLOCK]).transpose(0, 1)  # (head, row, width)
        step = OneStepProbes(some.contiguous(), fold_of)
        scores = step.out_of_fold(told)  # (head, row, set)
        areas[start : start + len(some)] = device_auroc(scores, told, step.fold_of).numpy()
        prior = labelled.float().mean(dim=0)  # a score is the label's distance from its mean
        named = (scores[:, :, :classes] + prior).argmax(dim=2)
        right[start : start + len(some)] = (named == torch.from_numpy(labels)).double().mean(dim=1).numpy()
    real, null = areas[:, :classes].T, areas[:, classes:]  # (function, head), (head, set)
    p = pooled_null_p(real, null) if shuffles else np.full(real.shape, np.nan)
    return Alone(real, p, np.array([benjamini_hochberg(row) for row in p]), right, *wilson_interval(right, rows))


def folds_of(labels: Ints, groups: Any, seed: int) -> Ints:
    """The fold of every row: functions in their shares, whole questions."""
    names = np.unique(np.asarray(groups), return_inverse=True)[1]
    folds = np.empty(len(labels), dtype=np.int64)
    cut = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    for fold, (_, rows) in enumerate(cut.split(np.zeros(len(labels)), labels, names)):
        folds[rows] = fold
    return folds
