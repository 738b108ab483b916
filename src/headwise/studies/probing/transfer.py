"""Does a probe detect errors, or the errors of one topic? Fitted on one group of topics, tested on the others.

    raw[a, b]    AUROC on group b of the probe fitted on group a; a = b: cross-validated inside the group
    raw[others, b]   fitted on all groups but b
    gain[a, b]   raw[a, b] minus the AUROC of the log-probability (mean over the exact answer's tokens) on group b

The probe reads the last token of the exact answer; its layer is chosen inside the rows it is fitted on, by one-step
probes. Most of what transfers is also in the log-probability (Orgad et al., arXiv 2410.02707): `gain` shows what
is left. Topics with too few answers are merged first (`probes.generalisation`). Intervals are DeLong's in the tested group.

In two steps, so that one layer at a time is enough: `TransferPlan.areas` judges some layers for every set of training rows;
`transfer` fits each set at its best layer, all sets that chose one layer together.

Cost: a choice among the layers and one fit per group and one for all but it, six for each cell of the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import EXAMPLE, OTHERS, TOPIC, TRAINED_ON
from headwise.probes.batched_logistic.problems import make_points, make_problems
from headwise.probes.batched_logistic.solver import minimise
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.generalisation import group_topics
from headwise.probes.one_step import OneStepProbes, device_auroc
from headwise.stats import auroc, auroc_by_fold

FOLDS = 5
MIN_PER_CLASS_IN_GROUP = 10  # answers, for a group to be fitted or tested on

Labels = NDArray[np.bool_]
Floats = NDArray[np.float64]


class _TransferFit(NamedTuple):
    """One probe: fitted on some rows, to score others."""

    name: tuple[str, str, int]  # trained on, tested on, fold: of the diagonal, else -1
    train: Labels
    test: Labels


class TransferPlan(NamedTuple):
    """Which probes are fitted on which rows. Made by `TransferPlan.of`."""

    wrong: Labels
    group_of: NDArray[np.str_]
    names: list[str]
    fits: list[_TransferFit]
    fold_of: list[NDArray[np.int64]]
    """(training row,): the folds inside each set of training rows, in the order of `trains`"""

    @classmethod
    def of(
        cls, topics: NDArray[np.str_], question: Callable[[], Floats], wrong: Labels, seed: int
    ) -> TransferPlan | None:
        """None where there are not two groups; ``question``: vectors (row, width), by which small topics are merged."""
        if len(set(topics.tolist())) < 2:
            return None
        group_of = np.array(group_topics(topics, question(), wrong))
        names = sorted(set(group_of.tolist()))
        if len(names) < 2:
            return None
        fits = []
        for name in names:
            test = group_of == name
            if _rarer_class(wrong, test) < MIN_PER_CLASS_IN_GROUP:
                continue
            for other in [*names, OTHERS]:
                train = ~test if other == OTHERS else group_of == other
                if other == name:
                    fits += _inside(name, wrong, test, seed)
                elif _rarer_class(wrong, train) >= MIN_PER_CLASS_IN_GROUP:
                    fits.append(_TransferFit((other, name, -1), train, test))
        inside = [_folds_inside(wrong, train, seed) for train in _trains(fits)]
        return cls(wrong, group_of, names, fits, inside)

    @property
    def trains(self) -> list[Labels]:
        """The different sets of training rows."""
        return _trains(self.fits)

    def areas(self, layers: Tensor) -> Floats:
        """(training rows, layer): AUROC of one-step probes inside them, at layers (layer, row, width); -inf: not measured."""
        trains = self.trains
        found = np.full((len(trains), len(layers)), -np.inf)
        measured = torch.stack([torch.stack(one.aminmax()).isfinite().all() for one in layers])
        if not bool(measured.any()):
            return found
        some = layers[measured]
        for index, (train, fold_of) in enumerate(zip(trains, self.fold_of, strict=True)):
            own = torch.as_tensor(np.flatnonzero(train), device=layers.device)
            labels = torch.as_tensor(self.wrong[train], device=layers.device)[:, None]
            step = OneStepProbes(some[:, own], fold_of)
            area = device_auroc(step.out_of_fold(labels), labels, step.fold_of)[:, 0]
            found[index, measured.cpu().numpy()] = area.cpu().numpy()
        return found


def transfer(
    plan: TransferPlan, areas: Floats, layer: Callable[[int], Tensor], logprob: Floats
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and coordinates of the Dataset.

    ``areas``: those of all layers; ``layer``: reads one, (row, width); ``logprob`` (row,): larger is more likely wrong.
    """
    names, wrong = plan.names, plan.wrong
    scores = _scores(plan, areas.argmax(axis=1), layer)
    found = np.full((3, len(names) + 1, len(names)), np.nan)
    baseline = np.full(len(names), np.nan)
    rows = {name: row for row, name in enumerate([*names, OTHERS])}
    for column, name in enumerate(names):
        test = plan.group_of == name
        inside = [
            (one.test, score) for one, score in zip(plan.fits, scores, strict=True) if one.name[:2] == (name, name)
        ]
        if not inside:
            continue
        baseline[column] = float(auroc(logprob[test], wrong[test]).value)
        fold_of, held_out = np.zeros(len(wrong), dtype=np.int64), np.zeros(len(wrong))
        for fold, (own, score) in enumerate(inside):
            fold_of[own], held_out[own] = fold, score[own]
        area = auroc_by_fold(held_out[test], wrong[test], fold_of[test])[0]
        found[:, rows[name], column] = area.value, area.low, area.high
    for one, score in zip(plan.fits, scores, strict=True):
        trained_on, tested_on, _ = one.name
        if trained_on != tested_on:
            area = auroc(score[one.test], wrong[one.test])
            found[:, rows[trained_on], rows[tested_on]] = area.value, area.low, area.high
    dims = (TRAINED_ON, TOPIC)
    sides = dict(zip(("transfer", "transfer_low", "transfer_high"), found, strict=True))
    variables: dict[str, Any] = {name: (dims, values.astype(np.float32)) for name, values in sides.items()}
    variables["transfer_gain"] = (dims, (found[0] - baseline).astype(np.float32))
    variables["transfer_logprob"] = ((TOPIC,), baseline.astype(np.float32))
    variables["transfer_size"] = ((TOPIC,), np.array([int((plan.group_of == name).sum()) for name in names]))
    variables["group"] = ((EXAMPLE,), plan.group_of.astype(object))
    return variables, {TRAINED_ON: np.array([*names, OTHERS], dtype=object), TOPIC: np.array(names, dtype=object)}


def _rarer_class(wrong: Labels, rows: Labels) -> int:
    """Answers of the rarer class among these rows."""
    return int(min((wrong & rows).sum(), (~wrong & rows).sum()))


def _trains(fits: list[_TransferFit]) -> list[Labels]:
    return list({one.train.tobytes(): one.train for one in fits}.values())


def _folds_inside(wrong: Labels, rows: Labels, seed: int) -> NDArray[np.int64]:
    """The fold of each of these rows."""
    return assign_folds(wrong[rows], folds=min(FOLDS, _rarer_class(wrong, rows)), seed=seed)


def _inside(name: str, wrong: Labels, rows: Labels, seed: int) -> list[_TransferFit]:
    """The folds inside a group."""
    indices, fold_of = np.flatnonzero(rows), _folds_inside(wrong, rows, seed)
    found = []
    for fold in np.unique(fold_of).tolist():
        train, test = np.zeros(len(wrong), dtype=bool), np.zeros(len(wrong), dtype=bool)
        train[indices[fold_of != fold]], test[indices[fold_of == fold]] = True, True
        found.append(_TransferFit((name, name, fold), train, test))
    return found


def _scores(plan: TransferPlan, chosen: NDArray[np.int64], layer: Callable[[int], Tensor]) -> list[Floats]:
    """(row,) of every fit, all rows scored; ``chosen``: the layer of each set of training rows."""
    trains = np.array(plan.trains)
    found = np.empty(trains.shape)
    for number in np.unique(chosen).tolist():
        own = np.flatnonzero(chosen == number)
        features = layer(number)[None].float()
        points = make_points(features, torch.as_tensor(trains[own], device=features.device), standardise=True)
        optimum = minimise(points, make_problems(plan.wrong[None], trains[own], None, features.device))
        margins = optimum.weights[0] @ points.x[0].T + optimum.intercepts[0, :, None]
        found[own] = margins.double().cpu().numpy()
    place = {train.tobytes(): index for index, train in enumerate(trains)}
    return [found[place[one.train.tobytes()]] for one in plan.fits]
