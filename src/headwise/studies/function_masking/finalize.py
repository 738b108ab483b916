"""From answers under every change to the Dataset of the masking study: curves, ranks, matrices, gains. Pure functions.

**Rank.** The own set among its matched control sets, by the accuracy that is left on the same steps,

    p = (1 + #{controls with at most the accuracy of the own set}) / (1 + controls)

for every number of heads, and for the mean over them (`mean_rank_p`); q over functions is Benjamini-Hochberg. p needs no
variance: if a function's heads matter no more than their matches, each rank is as likely as any other.

**Intervals** (95 %): Wilson's over steps for an accuracy, Student's over draws for a mean over control sets. A difference to
the controls is on the same steps, and one of the two is a mean over draws:

    value = mean over steps and draws of (control - own)
    SE²   = (variance over steps) / steps + (variance over draws) / draws

with Student's t and Satterthwaite's degrees of freedom, cut at -1 and 1; where nothing varies, or there is one step, the
interval has Wilson's worst-case width. Over all functions, each has its own draws around its own mean, so that F functions
with D draws have F (D - 1) degrees of freedom for them. An interval covers other steps and other control sets; it does not
cover another ranking of the heads, which other training steps would give. `mean_effect` averages over all numbers of heads per
step, so that a step that is answered several times counts once. In the cross-masking matrix the control of a column is its own
control sets, which are outside the column's heads but may contain some of the row's.

Hierarchy: `chain` (masked, function) is the accuracy on every function's steps in whole questions; `chain_effect` the accuracy
on all high-order steps with matched heads masked minus that with this function's. NaN for functions that were not masked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import AMOUNT, DRAW, FUNCTION, MASKED, REMOVED, head_name
from headwise.core.schema import with_interval
from headwise.stats import benjamini_hochberg, rank_p, sum_of_means_half_width, t_half_width, wilson_interval
from headwise.studies.functions.finalize import MIN_ANSWERS_PER_CLASS

__all__ = ["finalize", "gap", "mean_over", "over_draws", "share"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Interval = tuple[float, float, float]  # value, low, high
UNKNOWN: Interval = (np.nan, np.nan, np.nan)
COUNTS = ("held_out_steps", "solved_steps", "masked_steps", "failed_steps", "augmented_steps")


def finalize(
    shards: Sequence[xr.Dataset],
    maps: xr.Dataset,
    heads: Mapping[str, Sequence[tuple[int, int]]],
    norm_ratios: Mapping[str, Sequence[float]],
    options: Any,
    orders: Mapping[str, str],
    chain_reason: str,
) -> xr.Dataset:
    """The Dataset. `shards`: one per function, then the hierarchy.

    `heads`: each function's most important heads, ranked; `norm_ratios`: for each number of heads, the norm of what the control
    sets write over that of the own set.
    """
    names = list(heads)
    outcomes = [StepOutcomes(table, options.min_solved_steps) for table in shards[:-1]]
    parts = [
        _curves(outcomes, options),
        _matrix(outcomes, [set(heads[name][: options.size]) for name in names], options.size),
        _augmented(outcomes, options),
        _intact(outcomes, options.size),
        _chains(shards[-1], names, orders),
        _reasons(maps, outcomes, options),
    ]
    named = [[", ".join(head_name(*head) for head in heads[name][:count]) for count in options.heads] for name in names]
    whole = xr.merge(parts, compat="override", join="override").assign_coords(
        {
            FUNCTION: np.array(names, dtype=object),
            MASKED: np.array(names, dtype=object),
            REMOVED: np.array(options.heads, dtype=np.int64),
            AMOUNT: np.array((0.0, *options.amounts), dtype=np.float32),
            "order": (FUNCTION, np.array([orders[name] for name in names], dtype=object)),
        }
        | {name: (FUNCTION, np.array([one.counts[name] for one in outcomes], dtype=np.int64)) for name in COUNTS}
        | {name: (FUNCTION, maps[name].values.astype(np.int64)) for name in ("train_right", "train_wrong")}
    )
    whole["heads"] = ((FUNCTION, REMOVED), np.array(named, dtype=object))
    whole["norm_ratio"] = ((FUNCTION, REMOVED), np.array([norm_ratios[name] for name in names], dtype=np.float64))
    floats = {name: array.astype(np.float32) for name, array in whole.data_vars.items() if array.dtype == np.float64}
    return whole.assign(floats).assign_attrs(
        title="What the model still answers without a function's heads",
        record=json.dumps([]),
        size=options.size,
        factor=options.factor,
        positions=options.where,
        chains=int(shards[-1]["chains"]),
        chain_reason=chain_reason,
    )


class StepOutcomes:
    """Which steps of a function are right under which change; with fewer than `minimum` solved steps, these are ignored."""

    def __init__(self, table: xr.Dataset, minimum: int):
        self.kind, self.count, self.which = (table[name].values for name in ("kind", "count", "which"))
        self.solved, self.right = table["solved"].values, table["right"].values
        self.counts = {name: int(table[name]) for name in COUNTS}
        self.enough = self.counts["masked_steps"] >= minimum

    def of(self, kind: str, count: int, *, solved: bool | None = True) -> Bools:
        """(draw, step) under one kind of change; (0, 0) where it was not tried. `solved` None: all steps."""
        rows = (self.kind == kind) & (self.count == count)
        if solved is not None:
            rows &= self.solved == solved
        if solved and not self.enough:
            rows &= False
        draws = np.unique(self.which[rows])
        if not len(draws):
            return np.zeros((0, 0), dtype=bool)
        return np.stack([self.right[rows & (self.which == draw)] for draw in draws])

    def one(self, kind: str, count: int, *, solved: bool | None = True) -> Bools:
        """(step,) under a change without draws."""
        found = self.of(kind, count, solved=solved)
        return found[0] if len(found) else np.zeros(0, dtype=bool)

    def cross(self, count: int, other: int) -> Bools:
        """(step,) with the heads of another function masked."""
        rows = (self.kind == "cross") & (self.count == count) & (self.which == other) & self.enough
        return np.asarray(self.right[rows])


# ---- intervals ------------------------------------------------------------------------------------------------------


def share(right: NDArray) -> Interval:
    """Of (step,), with Wilson's interval; NaN where there is no step."""
    if not len(right):
        return UNKNOWN
    value = float(np.mean(right))
    low, high = wilson_interval(value, len(right))
    return value, float(low), float(high)


def over_draws(right: NDArray) -> Interval:
    """The mean of (draw, step), with Student's interval over draws."""
    if not right.size:
        return UNKNOWN
    means = right.mean(axis=1, dtype=np.float64)
    value, half = float(means.mean()), float(t_half_width(means))
    return (value, max(0.0, value - half), min(1.0, value + half)) if len(means) > 1 else (value, np.nan, np.nan)


def gap(own: NDArray, random: NDArray) -> Interval:
    """Random - own, from own (step,) and random (draw, step)."""
    if not len(own) or not random.size:
        return UNKNOWN
    return _mean_of_gaps(random.astype(np.float64) - own.astype(np.float64))


def _mean_of_gaps(gaps: Floats | None) -> Interval:
    """Of (draw, step)."""
    return UNKNOWN if gaps is None else mean_over(float(gaps.mean()), [gaps.mean(axis=0), gaps.mean(axis=1)])


def mean_over(value: float, samples: Sequence[Floats]) -> Interval:
    """A value whose error is the sum of the errors of several means."""
    samples = [sample for sample in samples if len(sample) > 1]
    half = sum_of_means_half_width(samples)
    if half == 0:  # nothing varied: this many steps could still have missed a rarer difference
        size = max((len(sample) for sample in samples), default=1)
        half = float(wilson_interval(0.0, size)[1])
    return value, max(-1.0, value - half), min(1.0, value + half)


def _interval_of(name: str, dims: Any, values: Sequence[Any]) -> dict[str, Any]:
    """A variable and the ends of its interval, from (..., 3)."""
    return with_interval(name, *np.moveaxis(np.asarray(values, dtype=np.float64), -1, 0), dims=dims)


# ---- masking --------------------------------------------------------------------------------------------------------


def _curves(outcomes: Sequence[StepOutcomes], options: Any) -> xr.Dataset:
    dims, heads = (FUNCTION, REMOVED), options.heads
    own = [[one.one("own", n) for n in heads] for one in outcomes]
    random = [[one.of("random", n) for n in heads] for one in outcomes]
    pairs = [list(zip(*both, strict=True)) for both in zip(own, random, strict=True)]
    mean_p = np.array([rank_p(*_means(row)) for row in pairs])
    found: dict[str, Any] = {
        "control_sets": (dims, np.array([[len(cell) for cell in row] for row in random], dtype=np.int64)),
        "rank_p": (dims, np.array([[rank_p(*_means([cell])) for cell in row] for row in pairs])),
        "mean_rank_p": (FUNCTION, mean_p),
        "mean_rank_q": (FUNCTION, benjamini_hochberg(mean_p)),
        "pooled_rank_p": _pooled_rank_p(pairs),
    }
    found |= _interval_of("own", dims, [[share(cell) for cell in row] for row in own])
    found |= _interval_of("random", dims, [[over_draws(cell) for cell in row] for row in random])
    found |= _interval_of("effect", dims, [[gap(*cell) for cell in row] for row in pairs])
    found |= _interval_of("mean_effect", FUNCTION, [_mean_of_gaps(_gaps(row)) for row in pairs])
    drawn = np.full((len(outcomes), options.draws, len(heads)), np.nan)
    for row, cells in enumerate(random):
        for column, each in enumerate(cells):
            if each.size:
                drawn[row, : len(each), column] = each.mean(axis=1)
    found["random_draws"] = ((FUNCTION, DRAW, REMOVED), drawn)
    pooled = [_pooled([row[column : column + 1] for row in pairs]) for column in range(len(heads))]
    found |= _interval_of("pooled_effect", REMOVED, pooled)
    return xr.Dataset(found | _interval_of("pooled_mean_effect", (), _pooled(pairs)))


def _means(pairs: Sequence[tuple[Bools, Bools]]) -> tuple[float, Floats]:
    """Accuracy of the own sets and of the control sets (draw,), mean over several numbers of heads."""
    pairs = _of_equal_draws(pairs)
    if not pairs:
        return float("nan"), np.zeros(0)
    return float(np.mean([own.mean() for own, _ in pairs])), np.mean([each.mean(axis=1) for _, each in pairs], axis=0)


def _of_equal_draws(pairs: Sequence[tuple[Bools, Bools]]) -> list[tuple[Bools, Bools]]:
    """With as many control sets at every number of heads; empty where there is nothing to compare."""
    if any(not len(own) or not random.size for own, random in pairs):
        return []
    fewest = min((len(random) for _, random in pairs), default=0)
    return [(own, random[:fewest]) for own, random in pairs]


def _pooled_rank_p(functions: Sequence[Sequence[tuple[Bools, Bools]]]) -> float:
    """All functions together: the mean of their own sets among the means of their first, second, ... control sets."""
    every = [(own, controls) for own, controls in map(_means, functions) if len(controls)]
    if not every:
        return float("nan")
    fewest = min(len(controls) for _, controls in every)
    return rank_p(float(np.mean([own for own, _ in every])), np.mean([each[:fewest] for _, each in every], axis=0))


def _gaps(pairs: Sequence[tuple[Bools, Bools]]) -> Floats | None:
    """(draw, step): control - own, mean over several numbers of heads; None where there is nothing to compare."""
    pairs = _of_equal_draws(pairs)
    return np.mean([random.astype(float) - own.astype(float) for own, random in pairs], axis=0) if pairs else None


def _pooled(functions: Sequence[Sequence[tuple[Bools, Bools]]]) -> Interval:
    """Over the steps of all functions; every function has its own draws, which vary around the function's mean."""
    every = [gaps for pairs in functions if (gaps := _gaps(pairs)) is not None]
    if not every:
        return UNKNOWN
    steps = np.concatenate([gaps.mean(axis=0) for gaps in every])
    draws = [gaps.mean(axis=1) * gaps.shape[1] / len(steps) for gaps in every]  # each function's share of the mean
    return mean_over(float(steps.mean()), [steps, *draws])


def _matrix(outcomes: Sequence[StepOutcomes], own: Sequence[set[tuple[int, int]]], size: int) -> xr.Dataset:
    """Rows: whose heads are masked; columns: whose steps are answered."""
    right = [
        [one.one("own", size) if row == column else one.cross(size, row) for column, one in enumerate(outcomes)]
        for row in range(len(own))
    ]
    control = [one.of("random", size) for one in outcomes]
    effects = [[gap(cell, random) for cell, random in zip(row, control, strict=True)] for row in right]
    dims = (MASKED, FUNCTION)
    found = _interval_of("cross", dims, [[share(cell) for cell in row] for row in right])
    found |= _interval_of("cross_effect", dims, effects)
    found |= _interval_of("spill", FUNCTION, [_spill(row, index, control) for index, row in enumerate(right)])
    found["cross_random"] = (FUNCTION, [_mean(random) for random in control])
    found["overlap"] = (dims, np.array([[len(a & b) / len(a) if a and b else np.nan for b in own] for a in own]))
    return xr.Dataset(found)


def _spill(row: Sequence[NDArray], own: int, control: Sequence[NDArray]) -> Interval:
    """What the other functions' steps lose by these heads beyond random ones; every function has the same weight."""
    losses = [
        random.mean(axis=0) - cell.astype(float)
        for column, (cell, random) in enumerate(zip(row, control, strict=True))
        if column != own and len(cell) and random.size
    ]
    if not losses:
        return UNKNOWN
    return mean_over(float(np.mean([loss.mean() for loss in losses])), [loss / len(losses) for loss in losses])


def _intact(outcomes: Sequence[StepOutcomes], size: int) -> xr.Dataset:
    """The intact model on all held-out steps, and what masking leaves of that."""
    intact = [share(np.arange(one.counts["held_out_steps"]) < one.counts["solved_steps"]) for one in outcomes]
    found, part = _interval_of("intact", FUNCTION, intact), np.array([value for value, *_ in intact])
    for name in ("own", "random"):
        solved = np.array([_mean(one.of(name, size)) for one in outcomes])
        failed = np.array([_mean(one.of(name, size, solved=False)) for one in outcomes])
        found[f"recovered_{name}"] = (FUNCTION, failed)
        mixed = np.where(part == 1, solved, np.where(part == 0, failed, part * solved + (1 - part) * failed))
        found[f"all_{name}"] = (FUNCTION, mixed)
    return xr.Dataset(found)


def _mean(right: NDArray) -> float:
    return float(right.mean()) if right.size else float("nan")


# ---- augmenting, hierarchy, reasons ---------------------------------------------------------------------------------


def _augmented(outcomes: Sequence[StepOutcomes], options: Any) -> xr.Dataset:
    amounts = range(len(options.amounts) + 1)
    own = [[one.one("augment", index, solved=None) for index in amounts] for one in outcomes]
    random = [[one.of("random direction", index, solved=None) for index in amounts] for one in outcomes]
    dims = (FUNCTION, AMOUNT)
    found = _interval_of("augmented", dims, [[share(cell) for cell in row] for row in own])
    found |= _interval_of("augmented_random", dims, [[over_draws(cell) for cell in row] for row in random])
    found |= _interval_of("gain", dims, [[_paired(cell, row[0]) for cell in row] for row in own])
    over = [[gap(*cell) for cell in zip(*row, strict=True)] for row in zip(own, random, strict=True)]
    own_less_random = [[(-value, -high, -low) for value, low, high in row] for row in over]
    return xr.Dataset(found | _interval_of("gain_over_random", dims, own_less_random))


def _paired(now: NDArray, before: NDArray) -> Interval:
    if not len(now) or len(now) != len(before):
        return UNKNOWN
    change = now.astype(float) - before.astype(float)
    return mean_over(float(change.mean()), [change])


def _chains(table: xr.Dataset, names: Sequence[str], orders: Mapping[str, str]) -> xr.Dataset:
    """`table`: one row per condition and step; masked_of is "" for the intact model, "random NAME" for control sets."""
    masked, of, right, condition = (table[name].values for name in ("masked_of", "function_of", "right", "condition"))

    def outcomes_of(name: str, functions: Sequence[str]) -> Bools:
        """(condition of this name, step of these functions)."""
        in_cell = (masked == name) & np.isin(of.astype(str), functions)
        each = np.unique(condition[in_cell])
        return np.stack([right[in_cell & (condition == one)] for one in each]) if len(each) else np.zeros((0, 0), bool)

    def accuracy(name: str, functions: Sequence[str]) -> Interval:
        found = outcomes_of(name, functions)
        return share(found[0]) if found.size else UNKNOWN

    high = [name for name in names if orders[name] == "high"]
    random = {name: outcomes_of(f"random {name}", high) for name in names}
    own = {name: outcomes_of(name, high) for name in names}

    def control(functions: Sequence[str]) -> float:
        """Accuracy on the steps of these functions with control sets masked, mean over all of them."""
        every = [each for name in names if (each := outcomes_of(f"random {name}", functions)).size]
        return float(np.mean([each.mean() for each in every])) if every else float("nan")

    high_own = np.array([accuracy(name, high)[0] for name in names])
    found = _interval_of("chain", (MASKED, FUNCTION), [[accuracy(name, [other]) for other in names] for name in names])
    effects = [gap(own[name][0], random[name]) if own[name].size else UNKNOWN for name in names]
    found |= _interval_of("chain_effect", FUNCTION, effects)
    found |= {
        "chain_random": (FUNCTION, np.array([control([name]) for name in names])),
        "chain_intact": (FUNCTION, np.array([accuracy("", [name])[0] for name in names])),
        "chain_high_own": (FUNCTION, high_own),
        "chain_high_random": (FUNCTION, np.array([_mean(random[name]) for name in names])),
    }
    steps = np.array([outcomes_of("", [name]).size for name in names], dtype=np.int64)
    return xr.Dataset(found, coords={"chain_steps": (FUNCTION, steps)})


def _reasons(maps: xr.Dataset, outcomes: Sequence[StepOutcomes], options: Any) -> xr.Dataset:
    """Why a function was not masked, or not augmented."""
    masking, augmenting = [], []
    for index, one in enumerate(outcomes):
        refused = str(maps["reason"].values[index])
        few = (
            f"the intact model solves {one.counts['solved_steps']} of its {one.counts['held_out_steps']} held-out steps, fewer "
            f"than the {options.min_solved_steps} that masking needs"
        )
        masking.append(refused or ("" if one.enough else few))
        right, wrong = (int(maps[part].values[index]) for part in ("train_right", "train_wrong"))
        least = MIN_ANSWERS_PER_CLASS
        without = f"a direction needs {least} correct and {least} wrong training steps, and it has {right} and {wrong}"
        if not options.augmented_steps:
            without = "no augmenting was requested"
        augmenting.append(refused or ("" if (one.kind == "augment").any() else without))
    reasons = {"reason": masking, "augment_reason": augmenting}
    return xr.Dataset({name: (FUNCTION, np.array(texts, dtype=object)) for name, texts in reasons.items()})
