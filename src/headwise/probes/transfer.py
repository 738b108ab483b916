"""Does a detector know errors, or only the errors of one topic? Fitted on one topic, tested on every other.

    transfer[a, b] = AUROC on topic b of the detector fitted on all answers of topic a
    transfer[a, a] = cross-validated inside topic a (never fitted on its test rows)
    transfer["others", b] = fitted on every topic but b

The last row is the one to believe: it has nearly all the data, and none of the topic. A topic with fewer than ``least``
answers of a class is neither fitted on alone nor tested on: NaN. Nothing is chosen here.

Intervals are DeLong's, within the tested topic. Cost: about seven fits a topic. This module does not know what a topic
is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import TOPIC, TRAINED_ON
from headwise.core.errors import DataError
from headwise.probes.classifier import fit_subsets
from headwise.probes.crossvalidation import assign_folds, out_of_fold
from headwise.stats import Auroc, auroc, auroc_by_fold
from headwise.stats.validation import Labels

__all__ = ["OTHERS", "as_topics", "transfer"]

OTHERS = "others"

Ints = NDArray[np.int64]


def as_topics(topics: Any, rows: int) -> NDArray[np.str_]:
    """One topic an answer, at least two of them, or a DataError."""
    found = np.asarray(topics).astype(str)
    if found.shape != (rows,):
        raise DataError(f"There are {rows} answers but {found.size} topics; give one topic per answer.")
    names = sorted(set(found.tolist()))
    if OTHERS in names or len(names) < 2:
        raise DataError(
            f"Transfer needs at least two topics, none of them called {OTHERS!r}; found {', '.join(names)}."
        )
    return found


def transfer(
    points: NDArray[np.float64],
    labels: Labels,
    topics: Any,
    *,
    folds: int = 5,
    seed: int = 0,
    least: int = 10,
    groups: Ints | None = None,
) -> xr.Dataset:
    """``auroc``, ``low``, ``high`` with dims (trained_on, topic), and ``n_wrong``, ``n_right`` of each topic."""
    topic_of = as_topics(topics, len(labels))
    names = sorted(set(topic_of.tolist()))
    rows = {name: topic_of == name for name in names}
    counts = {name: (int(labels[own].sum()), int((~labels[own]).sum())) for name, own in rows.items()}
    enough = [name for name in names if min(counts[name]) >= least]
    found = np.full((3, len(names) + 1, len(names)), np.nan)

    def enter(trained_on: int, name: str, area: Auroc) -> None:
        found[:, trained_on, names.index(name)] = area.value, area.low, area.high

    alone = fit_subsets(points, labels, np.array([rows[name] for name in enough]), components=None)
    without = [name for name in enough if min(labels[~rows[name]].sum(), (~labels[~rows[name]]).sum()) >= least]
    others = fit_subsets(points, labels, np.array([~rows[name] for name in without]), components=None)
    for name, linear in zip(enough, alone, strict=True):
        for other in enough:
            if other != name:
                there = rows[other]
                enter(names.index(name), other, auroc(linear(points[there]), labels[there], groups=_of(groups, there)))
        own = rows[name]
        fold_of = assign_folds(labels[own], folds=min(folds, *counts[name]), seed=seed, groups=_of(groups, own))
        score = out_of_fold(points[own], labels[own], fold_of, components=None)
        enter(names.index(name), name, auroc_by_fold(score, labels[own], fold_of, groups=_of(groups, own))[0])
    for name, linear in zip(without, others, strict=True):
        own = rows[name]
        enter(len(names), name, auroc(linear(points[own]), labels[own], groups=_of(groups, own)))
    return xr.Dataset(
        {key: ((TRAINED_ON, TOPIC), found[place]) for place, key in enumerate(("auroc", "low", "high"))}
        | {key: (TOPIC, [counts[name][place] for name in names]) for place, key in enumerate(("n_wrong", "n_right"))},
        coords={TRAINED_ON: [*names, OTHERS], TOPIC: names},
    )


def _of(groups: Ints | None, rows: NDArray[np.bool_]) -> Ints | None:
    return None if groups is None else np.unique(groups[rows], return_inverse=True)[1]
