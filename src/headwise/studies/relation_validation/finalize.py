"""From readings to the Dataset of the relation validation: correlations, curves, effects. Pure functions.

Confidence intervals (95 %). Of an accuracy: Wilson's, over prompts. Of the mean accuracy without random heads: Student's t over
the draws, for these prompts. Of an effect: Student's t with

    SE^2 = (variance over prompts) / prompts + (variance over draws) / draws

and Satterthwaite's degrees of freedom; it covers other prompts and other draws, not another ranking of the heads. The
relation's heads are also ranked among the draws (`stats.rank_p`), by the accuracy that is left, mean over all numbers of
heads. Of a spill: the same interval over the prompts of every control task. The accuracy of the whole model is 1, because only
prompts that it solves are used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import CONTROL, DRAW, EXAMPLE, HEAD, LAYER, RELATION, REMOVED, TASK
from headwise.core.schema import with_interval
from headwise.stats import (
    benjamini_hochberg,
    correlation,
    correlation_table,
    rank_p,
    sum_of_means_half_width,
    t_half_width,
    wilson_interval,
)

Floats = NDArray[np.float64]


def finalize(readings: xr.Dataset, maps: xr.Dataset, *, least_solved: int, seed: int) -> xr.Dataset:
    """The whole validation. `maps` is the Dataset of the study `relations`, whose relations are those of the readings."""
    outputs = _correlated(readings, maps, seed)
    tasks = readings.isel({RELATION: np.flatnonzero(readings["is_task"].values)})
    solved = tasks["right"].values >= least_solved
    removal = _removal(tasks.isel({RELATION: np.flatnonzero(solved)}))
    left_out = tasks.isel({RELATION: np.flatnonzero(~solved)})
    unsolved = {
        str(name): [int(right), int(tried)]
        for name, right, tried in zip(
            left_out[RELATION].values, left_out["right"].values, left_out["tried"].values, strict=True
        )
    }
    return xr.merge([outputs, removal]).assign_attrs(
        title="Heads in texts against their weights, and tasks without them",
        record=json.dumps([]),
        unsolved=json.dumps(unsolved, ensure_ascii=False),
        least_solved=least_solved,
    )


# ---- outputs against weights ----------------------------------------------------------------------------------------


def _correlated(readings: xr.Dataset, maps: xr.Dataset, seed: int) -> xr.Dataset:
    score = maps["score"].transpose(RELATION, LAYER, HEAD)
    flat = score.values.reshape(len(score), -1)
    found: dict[str, Any] = {"score": score.drop_vars(set(score.coords) - {RELATION, LAYER, HEAD})}
    for kind in ("natural", "forced"):
        reading = readings[kind].transpose(RELATION, LAYER, HEAD)
        rows = reading.values.reshape(len(reading), -1)
        each = [correlation(a, b, seed=seed) for a, b in zip(rows, flat, strict=True)]
        found |= {
            kind: reading,
            **with_interval(f"pearson_{kind}", *np.array(each, dtype=np.float64).T, dims=RELATION),
            f"other_{kind}": (RELATION, _mean_of_others(correlation_table(rows, flat))),
        }
    dataset = xr.Dataset(found).astype(np.float32)
    return dataset.assign_coords(
        category_of=(RELATION, maps["category_of"].values), prompts=(RELATION, readings["prompts"].values)
    )


def _mean_of_others(table: Floats) -> Floats:
    """The mean of each row without its own relation; NaN where all others are NaN."""
    others = np.where(np.eye(len(table), dtype=bool), np.nan, table)
    count = np.isfinite(others).sum(axis=1)
    return np.where(count > 0, np.nansum(others, axis=1) / np.maximum(count, 1), np.nan)


# ---- removal --------------------------------------------------------------------------------------------------------

CURVES = ("own", "own_low", "own_high", "random", "random_low", "random_high")


def _removal(tasks: xr.Dataset) -> xr.Dataset:
    """Curves and effects of the tasks that the model solves."""
    names = np.array([str(name) for name in tasks[RELATION].values], dtype=object)
    tasks = tasks.transpose(RELATION, DRAW, CONTROL, EXAMPLE, REMOVED, ...)
    outcomes = [_TaskOutcomes(tasks.isel({RELATION: row})) for row in range(len(names))]
    steps, draws = tasks.sizes[REMOVED], tasks.sizes[DRAW]
    curves = np.array([one.curves() for one in outcomes]).reshape(len(names), len(CURVES), steps)
    effects = np.array([one.effect() for one in outcomes]).reshape(len(names), 3)
    ranks = np.array([one.rank() for one in outcomes], dtype=np.float64)
    spills = np.array([_spill(str(name), outcomes) for name in names]).reshape(len(names), 3)
    across = np.array([[other.without(str(name)).mean(0) for other in outcomes] for name in names])
    found: dict[str, Any] = {name: ((TASK, REMOVED), curves[:, index]) for index, name in enumerate(CURVES)}
    found |= with_interval("effect", *effects.T, dims=TASK) | with_interval("spill", *spills.T, dims=TASK)
    found |= {"rank_p": (TASK, ranks), "rank_q": (TASK, benjamini_hochberg(ranks) if len(ranks) else ranks)}
    found["others"] = ((TASK, CONTROL, REMOVED), across.reshape(len(names), len(names), steps))
    drawn = np.array([one.random.mean(1) for one in outcomes]).reshape(len(names), draws, steps)
    found["random_draws"] = ((TASK, DRAW, REMOVED), drawn)
    dataset = xr.Dataset(found).astype(np.float32)
    return dataset.assign_coords(
        {
            TASK: names,
            CONTROL: names,
            REMOVED: tasks[REMOVED].values,
            "tried": (TASK, tasks["tried"].values),
            "right": (TASK, tasks["right"].values),
            "asked": (TASK, np.array([len(one.own) for one in outcomes], dtype=np.int64)),
        }
    )


class _TaskOutcomes:
    """The outcomes of one task: 1 or 0 per prompt, NaN at steps with too few heads."""

    def __init__(self, task: xr.Dataset) -> None:
        self.name = str(task[RELATION].values)
        count = int(task["asked"])
        self.own = task["own"].values[:count].astype(np.float64)  # (prompt, removed)
        self.random = task["random"].values[:, :count].astype(np.float64)  # (draw, prompt, removed)
        self._control = dict(zip(map(str, task[CONTROL].values), task["others"].values[:, :count], strict=True))

    def without(self, heads_of: str) -> Floats:
        """The outcomes without another relation's heads, (prompt, removed); NaN for its own."""
        return self._control[heads_of].astype(np.float64)

    def curves(self) -> list[Floats]:
        """Accuracy without its own heads, and without random ones, each with its interval; (removed,) each."""
        share, draws = self.own.mean(0), self.random.mean(1)
        half = t_half_width(draws)
        mean = draws.mean(0)
        return [
            share,
            *wilson_interval(share, len(self.own)),
            mean,
            np.clip(mean - half, 0, 1),
            np.clip(mean + half, 0, 1),
        ]

    def rank(self) -> float:
        """The relation's heads among the draws; NaN where no head could be ablated."""
        known = np.isfinite(self.own).all(0)
        if not known.any():
            return float("nan")
        return rank_p(float(self.own[:, known].mean()), self.random[:, :, known].mean(axis=(1, 2)))

    def effect(self) -> tuple[float, float, float]:
        """Accuracy lost without its own heads beyond that lost without random ones."""
        known = np.isfinite(self.own).all(0)
        if not known.any():
            return np.nan, np.nan, np.nan
        gaps = (self.random - self.own)[:, :, known].mean(2)  # (draw, prompt)
        return _mean_interval(gaps.mean(), [gaps.mean(0), gaps.mean(1)])


def _spill(heads_of: str, outcomes: Sequence[_TaskOutcomes]) -> tuple[float, float, float]:
    """Accuracy that the other tasks lose without these heads beyond random ones; every task has the same weight."""
    falls = []
    for other in outcomes:
        gaps = other.random.mean(0) - other.without(heads_of)  # (prompt, removed)
        known = np.isfinite(gaps).all(0)
        if other.name != heads_of and known.any():
            falls.append(gaps[:, known].mean(1))
    if not falls:
        return np.nan, np.nan, np.nan
    value = float(np.mean([fall.mean() for fall in falls]))
    return _mean_interval(value, [fall / len(falls) for fall in falls])


def _mean_interval(value: float, samples: Sequence[Floats]) -> tuple[float, float, float]:
    """A value whose error is the sum of the errors of several means: Student's t, Satterthwaite's degrees of freedom."""
    half = sum_of_means_half_width(samples)
    return float(value), float(value) - half, float(value) + half
