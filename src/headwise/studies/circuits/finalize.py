"""From readings to the Dataset of circuits: shares, sizes that explain enough, ratios, all with intervals. Pure functions.

    share of a circuit     (mean score - mean corrupt score) / (mean clean score - mean corrupt score), over prompts
    size needed            the smallest measured size from which on the share stays at the goal (0.9)
    ratio                  size needed by the model / size needed by the reference model

Confidence intervals (95 %). Of shares, sizes and ratios: a bootstrap over prompts, the same resamples everywhere, so that
comparisons are paired by prompt. Of a head's effect: Student's t over prompts. Of an accuracy: Wilson's.
Effects are shares of the mean clean-corrupt difference of the prompts that they were measured on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import CIRCUIT_SIZE, CONDITION, HEAD, LAYER, RANK, TASK, UNIT
from headwise.core.errors import StudyError
from headwise.core.schema import with_interval
from headwise.stats import spearman, t_half_width, wilson_interval

UNITS = ("heads", "edges")
RESAMPLES = 1000
Floats = NDArray[np.float64]


def finalize(
    shards: Sequence[xr.Dataset],
    names: Sequence[str],
    *,
    goal: float,
    seed: int,
    unusable: Mapping[str, str] | None = None,
) -> xr.Dataset:
    """All tasks that the model solves. `names`: of the models; `unusable`: tasks left out beforehand, with the reason."""
    by_condition: dict[str, dict[str, xr.Dataset]] = {}
    for shard in shards:
        by_condition.setdefault(str(shard.attrs[CONDITION]), {})[str(shard.attrs[TASK])] = shard
    conditions = list(by_condition)
    first = by_condition[conditions[0]]
    refused = dict(unusable or {}) | {
        name: str(one.attrs["reason"]) for name, one in first.items() if one.attrs["reason"]
    }
    tasks = [name for name in first if name not in refused]
    if not tasks:
        raise StudyError(
            "the model solves none of the tasks: " + "; ".join(f"{n}: {why}" for n, why in refused.items())
        )
    found = [[_TaskResult(by_condition[condition][task], goal, seed) for task in tasks] for condition in conditions]
    also = {task: one.reason for task, one in zip(tasks, found[-1], strict=True) if one.reason}
    data = _stacked(found) | _maps(found)
    if len(conditions) > 1:
        data |= _ratios(found)
    edge = data.pop("edge")
    dataset = xr.Dataset(data).astype(np.float32).assign(edge=edge)
    return dataset.assign_coords(_coords([first[task] for task in tasks], conditions, names)).assign_attrs(
        title="Circuits of small tasks",
        record=json.dumps(["effect"]),
        goal=goal,
        refused=json.dumps(refused, ensure_ascii=False),
        refused_by_reference=json.dumps(also, ensure_ascii=False),
        no_edges=next((why for shard in shards if (why := str(shard.attrs.get("no_edges", "")))), ""),
        prompts=json.dumps({"ranking": len(found[0][0].effects), "measuring": len(found[0][0].clean)}),
    )


def _coords(tasks: Sequence[xr.Dataset], conditions: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Coordinates: the names of models, tasks and units."""

    def texts(found: Sequence[Any]) -> np.ndarray:
        return np.array([str(one) for one in found], dtype=object)

    return {
        CONDITION: texts(conditions),
        "name": (CONDITION, texts(names)),
        TASK: texts([one.attrs[TASK] for one in tasks]),
        "label": (TASK, texts([one["label"].values for one in tasks])),
        "shown": (TASK, texts([one.attrs["shown"] for one in tasks])),
        "expected": (TASK, texts([one.attrs["expected"] for one in tasks])),
        UNIT: texts(UNITS),
        LAYER: tasks[0][LAYER].values,
        HEAD: tasks[0][HEAD].values,
        RANK: np.arange(tasks[0].sizes[RANK]),
    }


class _TaskResult:
    """One task on one model."""

    def __init__(self, one: xr.Dataset, goal: float, seed: int) -> None:
        self.reason, self.goal = str(one.attrs["reason"]), goal
        ranked = int(one.attrs["ranked"])
        self.all_clean, self.all_corrupt = one["clean"].values, one["corrupt"].values  # (prompt,)
        self.clean, self.corrupt = self.all_clean[ranked:], self.all_corrupt[ranked:]
        self.effects = one["effect"].values[:ranked]  # (prompt, layer, head)
        self.gap = float((self.all_clean[:ranked] - self.all_corrupt[:ranked]).mean())
        self.size, self.score = one["size"].values, one["score"].values[:, :, ranked:]
        self.random_size, self.random_score = one["random_size"].values, one["random_score"].values[:, :, ranked:]
        self.edge, self.edge_effect = one["edge"].values, one["edge_effect"].values / self.gap
        self.exact = one["exact"].values
        count = len(self.clean)
        drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
        self.weights = np.stack([np.bincount(row, minlength=count) for row in drawn]) / count  # (resample, prompt)

    def shares(self, scores: Floats) -> Floats:
        """(1 + resample, size): of all prompts, then of each bootstrap resample; NaN for sizes that were not measured."""
        weights = np.concatenate([np.full((1, len(self.clean)), 1 / len(self.clean)), self.weights])
        clean, corrupt = weights @ self.clean, weights @ self.corrupt
        return (weights @ scores.T - corrupt[:, None]) / (clean - corrupt)[:, None]

    def needed(self, unit: int) -> Floats:
        """(1 + resample,): the size that explains enough; NaN where nothing was measured."""
        known = np.isfinite(self.size[unit])
        if not known.any():
            return np.full(1 + RESAMPLES, np.nan)
        sizes = self.size[unit][known].astype(int).tolist()
        return np.array([needed(sizes, row, self.goal) for row in self.shares(self.score[unit][known])], dtype=float)

    def effect(self) -> list[Floats]:
        """(layer, head): mean and ends of its interval."""
        mean = self.effects.mean(0) / self.gap
        half = t_half_width(self.effects) / abs(self.gap)
        return [mean, mean - half, mean + half]

    def agreement(self) -> float:
        """Spearman's correlation of effects by gradient and by patching."""
        return spearman(*self.exact)

    def numbers(self) -> dict[str, float]:
        """The scalars of a task."""
        right = (self.all_clean > 0).mean()
        low, high = wilson_interval(right, len(self.all_clean))
        gaps = self.all_clean - self.all_corrupt
        half = float(t_half_width(gaps))
        return {
            **with_interval("accuracy", right, float(low), float(high)),
            "clean": self.all_clean.mean(), "corrupt": self.all_corrupt.mean(),
            **with_interval("gap", gaps.mean(), gaps.mean() - half, gaps.mean() + half),
            "agreement": self.agreement(), "checked": float(np.isfinite(self.exact[0]).sum()),
        }  # fmt: skip


def _stacked(found: Sequence[Sequence[_TaskResult]]) -> dict[str, Any]:
    """The variables with the dims condition and task."""
    numbers = [[one.numbers() for one in row] for row in found]
    data: dict[str, Any] = {
        name: ((CONDITION, TASK), [[one[name] for one in row] for row in numbers]) for name in numbers[0][0]
    }
    for name, sizes, scores in (("share", "size", "score"), ("random", "random_size", "random_score")):
        dims = (CONDITION, TASK, UNIT, CIRCUIT_SIZE)
        data[sizes] = (dims, np.array([[getattr(one, sizes) for one in row] for row in found]))
        curves = [
            [[_interval(one.shares(unit)) for unit in getattr(one, scores)] for one in row] for row in found
        ]  # (condition, task, unit, 3, size)
        data |= with_interval(name, *np.moveaxis(np.array(curves), 3, 0), dims=dims)
    sizes_needed = np.array([[[one.needed(unit) for unit in range(len(UNITS))] for one in row] for row in found])
    data |= with_interval("needed", *np.moveaxis(_interval(sizes_needed, axis=-1), -1, 0), dims=(CONDITION, TASK, UNIT))
    data["edge"] = ((CONDITION, TASK, RANK), np.array([[one.edge for one in row] for row in found], dtype=object))
    data["edge_effect"] = ((CONDITION, TASK, RANK), np.array([[one.edge_effect for one in row] for row in found]))
    return data


def _maps(found: Sequence[Sequence[_TaskResult]]) -> dict[str, Any]:
    """Effects of heads: of the model, and of the reference model."""
    data: dict[str, Any] = {}
    for name, row in zip(("effect", "reference_effect"), found, strict=False):
        maps = np.array([one.effect() for one in row])  # (task, 3, layer, head)
        data |= with_interval(name, *np.moveaxis(maps, 1, 0), dims=(TASK, LAYER, HEAD))
    return data


def _ratios(found: Sequence[Sequence[_TaskResult]]) -> dict[str, Any]:
    """Ratio of the sizes needed, model over reference model, paired by resample."""
    rows = [
        [_interval(one.needed(unit) / other.needed(unit), axis=-1) for unit in range(len(UNITS))]
        for one, other in zip(*found, strict=True)
    ]
    return with_interval("ratio", *np.moveaxis(np.array(rows), 2, 0), dims=(TASK, UNIT))


def _interval(values: Floats, axis: int = 0) -> Floats:
    """The value of all prompts (the first along the axis), and the ends of the interval over resamples, on the same axis."""
    values = np.moveaxis(np.asarray(values, dtype=float), axis, 0)
    ends = np.full((2, *values.shape[1:]), np.nan)
    known = np.isfinite(values).all(0)
    ends[:, known] = np.quantile(values[1:][:, known], [0.025, 0.975], axis=0)
    return np.moveaxis(np.concatenate([values[:1], ends]), 0, axis)


def needed(sizes: Sequence[int], shares: Floats, goal: float) -> int:
    """The smallest size from which on the share stays at or above the goal; sizes in order, the last is all.

    >>> needed([1, 2, 4, 8], np.array([0.95, 0.3, 0.92, 1.0]), 0.9)
    4
    """
    below = np.flatnonzero(np.asarray(shares) < goal)
    return int(sizes[min(below[-1] + 1, len(sizes) - 1)] if below.size else sizes[0])
