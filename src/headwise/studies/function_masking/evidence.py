"""From answers under every change to the Dataset of the masking study: curves, matrices, gains. Pure functions, no model.

Intervals are of 95 %: of an accuracy Wilson's, over steps; of a mean over random draws Student's, over draws; of a
difference see `gaps`. In the cross-masking matrix the control of a column are its own random sets, which lie outside
the column's heads but may hold some of the row's. `mean_effect` is over all numbers of heads at once, step by step, so
that steps that are asked five times count once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import AMOUNT, DRAW, FUNCTION, MASKED, REMOVED
from headwise.studies.function_masking.chains import to_chains
from headwise.studies.function_masking.gaps import NOTHING, Interval, gap, mean_over, over_draws, share
from headwise.studies.function_masking.sets import Sets, names_of

__all__ = ["to_dataset"]

Floats = NDArray[np.float64]
ENDS = ("", "_low", "_high")


def to_dataset(
    shards: Sequence[xr.Dataset],
    maps: xr.Dataset,
    sets: Sets,
    options: Any,
    orders: Mapping[str, str],
    chain_reason: str,
) -> xr.Dataset:
    """The whole study; `shards`: one a function, then the hierarchy."""
    names = sets.functions
    outcomes = [Outcomes(table, options.least) for table in shards[:-1]]
    parts = [
        _curves(outcomes, options),
        _matrix(outcomes, sets, options),
        _augmented(outcomes, options),
        _whole(outcomes, options),
        to_chains(shards[-1], names, orders),
        _told(maps, outcomes, sets, options),
    ]
    amounts = np.array((0.0, *options.amounts), dtype=np.float32)
    whole = xr.merge(parts, compat="override", join="override").assign_coords(
        {
            FUNCTION: np.array(names, dtype=object),
            MASKED: np.array(names, dtype=object),
            REMOVED: np.array(options.heads, dtype=np.int64),
            AMOUNT: amounts,
            "order": (FUNCTION, np.array([orders[name] for name in names], dtype=object)),
        }
    )
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


class Outcomes:
    """Which steps of a function are right under which change. With fewer than `least` done steps these say nothing."""

    def __init__(self, table: xr.Dataset, least: int):
        self.kind, self.count, self.which = (table[name].values for name in ("kind", "count", "which"))
        self.step, self.done, self.right = (table[name].values for name in ("step", "done", "right"))
        names = ("tried", "solved", "asked", "wrong_asked", "augment_asked")
        self.counts = {name: int(table[name]) for name in names}
        self.enough = self.counts["asked"] >= least

    def of(self, kind: str, count: int, *, done: bool | None = True) -> NDArray[np.bool_]:
        """(draw, step) under one kind of change; (0, 0) where it was not tried. `done` None: all steps."""
        rows = (self.kind == kind) & (self.count == count)
        if done is not None:
            rows &= self.done == done
        if done and not self.enough:
            rows &= False
        draws = np.unique(self.which[rows])
        if not len(draws):
            return np.zeros((0, 0), dtype=bool)
        return np.stack([self.right[rows & (self.which == draw)] for draw in draws])

    def own(self, count: int, *, done: bool = True) -> NDArray[np.bool_]:
        """(step,) with the function's own heads masked."""
        found = self.of("own", count, done=done)
        return found[0] if len(found) else np.zeros(0, dtype=bool)

    def cross(self, count: int, other: int) -> NDArray[np.bool_]:
        """(step,) with the heads of another function masked."""
        rows = (self.kind == "cross") & (self.count == count) & (self.which == other) & self.enough
        return np.asarray(self.right[rows])


def _with_ends(name: str, dims: Any, values: Sequence[Any]) -> dict[str, Any]:
    """A variable and the ends of its interval, from (..., 3)."""
    table = np.asarray(values, dtype=np.float64)
    return {f"{name}{end}": (dims, table[..., place]) for place, end in enumerate(ENDS)}


# ---- masking --------------------------------------------------------------------------------------------------------


def _curves(outcomes: Sequence[Outcomes], options: Any) -> xr.Dataset:
    dims, heads = (FUNCTION, REMOVED), options.heads
    found = _with_ends("own", dims, [[share(one.own(n)) for n in heads] for one in outcomes])
    found |= _with_ends("random", dims, [[over_draws(one.of("random", n)) for n in heads] for one in outcomes])
    found |= _with_ends("effect", dims, [[gap(one.own(n), one.of("random", n)) for n in heads] for one in outcomes])
    found |= _with_ends("mean_effect", FUNCTION, [_mean_effect(one, heads) for one in outcomes])
    drawn = np.full((len(outcomes), options.draws, len(heads)), np.nan)
    for row, one in enumerate(outcomes):
        for column, n in enumerate(heads):
            each = one.of("random", n)
            if each.size:
                drawn[row, :, column] = each.mean(axis=1)
    found["random_draws"] = ((FUNCTION, DRAW, REMOVED), drawn)
    pooled = [_pooled(outcomes, [n]) for n in heads]
    found |= _with_ends("pooled_effect", REMOVED, pooled)
    return xr.Dataset(found | _with_ends("pooled_mean_effect", (), _pooled(outcomes, heads)))


def _gaps(one: Outcomes, heads: Sequence[int]) -> Floats | None:
    """(draw, step): random - own, mean over these numbers of heads; None where there is nothing to compare."""
    both = [(one.own(n), one.of("random", n)) for n in heads]
    if any(not len(own) or not random.size for own, random in both):
        return None
    return np.mean([random.astype(float) - own.astype(float) for own, random in both], axis=0)


def _mean_effect(one: Outcomes, heads: Sequence[int]) -> Interval:
    gaps = _gaps(one, heads)
    return NOTHING if gaps is None else mean_over(float(gaps.mean()), [gaps.mean(axis=0), gaps.mean(axis=1)])


def _pooled(outcomes: Sequence[Outcomes], heads: Sequence[int]) -> Interval:
    """Over the steps of all functions together; every function's draws are its own, so draws count a function each."""
    every = [gaps for one in outcomes if (gaps := _gaps(one, heads)) is not None]
    if not every:
        return NOTHING
    steps = np.concatenate([gaps.mean(axis=0) for gaps in every])
    draws = np.concatenate([gaps.mean(axis=1) - gaps.mean() for gaps in every])
    return mean_over(float(steps.mean()), [steps, draws])


def _matrix(outcomes: Sequence[Outcomes], sets: Sets, options: Any) -> xr.Dataset:
    """Rows: whose heads are masked; columns: whose steps are asked."""
    names, size = sets.functions, options.size
    right = [
        [one.own(size) if row == column else one.cross(size, row) for column, one in enumerate(outcomes)]
        for row in range(len(names))
    ]
    control = [one.of("random", size) for one in outcomes]
    dims = (MASKED, FUNCTION)
    found = _with_ends("cross", dims, [[share(cell) for cell in row] for row in right])
    found |= _with_ends(
        "cross_effect", dims, [[gap(cell, random) for cell, random in zip(row, control, strict=True)] for row in right]
    )
    found["cross_random"] = (FUNCTION, [float(random.mean()) if random.size else np.nan for random in control])
    found |= _with_ends("spill", FUNCTION, [_spill(row, place, control) for place, row in enumerate(right)])
    own = [set(sets.own(name, size)) for name in names]
    shared = [[len(a & b) / len(a) if a and b else np.nan for b in own] for a in own]
    found["overlap"] = (dims, np.array(shared))
    return xr.Dataset(found)


def _spill(row: Sequence[NDArray], place: int, control: Sequence[NDArray]) -> Interval:
    """What the other functions' steps lose by these heads, beyond what they lose by random ones; each weighs the same."""
    falls = [
        random.mean(axis=0) - cell.astype(float)
        for column, (cell, random) in enumerate(zip(row, control, strict=True))
        if column != place and len(cell) and random.size
    ]
    if not falls:
        return NOTHING
    value = float(np.mean([fall.mean() for fall in falls]))
    return mean_over(value, [fall / len(falls) for fall in falls])


def _whole(outcomes: Sequence[Outcomes], options: Any) -> xr.Dataset:
    """The whole model on all held-out steps, and what masking leaves of that."""
    size = options.size
    whole = [share(np.arange(one.counts["tried"]) < one.counts["solved"]) for one in outcomes]
    found = _with_ends("whole", FUNCTION, whole)
    for name in ("own", "random"):
        done, failed = [], []
        for one in outcomes:
            done.append(_mean(one.of(name, size)))
            failed.append(_mean(one.of(name, size, done=False)))
        kept, came, part = np.array(done), np.array(failed), np.array([value for value, *_ in whole])
        found[f"recovered_{name}"] = (FUNCTION, came)
        certain = np.where(part == 1, kept, np.where(part == 0, came, part * kept + (1 - part) * came))
        found[f"all_{name}"] = (FUNCTION, certain)
    names = ("tried", "asked", "wrong_asked", "augment_asked")
    coords = {name: (FUNCTION, np.array([one.counts[name] for one in outcomes], dtype=np.int64)) for name in names}
    coords["right"] = (FUNCTION, np.array([one.counts["solved"] for one in outcomes], dtype=np.int64))
    return xr.Dataset(found, coords=coords)


def _mean(right: NDArray) -> float:
    return float(right.mean()) if right.size else float("nan")


# ---- augmenting -----------------------------------------------------------------------------------------------------


def _augmented(outcomes: Sequence[Outcomes], options: Any) -> xr.Dataset:
    places = range(len(options.amounts) + 1)
    own = [[_first(one.of("augment", place, done=None)) for place in places] for one in outcomes]
    other = [[one.of("turned", place, done=None) for place in places] for one in outcomes]
    dims = (FUNCTION, AMOUNT)
    found = _with_ends("augmented", dims, [[share(cell) for cell in row] for row in own])
    found |= _with_ends("augmented_random", dims, [[over_draws(cell) for cell in row] for row in other])
    found |= _with_ends("gain", dims, [[_paired(cell, row[0]) for cell in row] for row in own])
    over = [
        [_less(gap(cell, random)) for cell, random in zip(a, b, strict=True)] for a, b in zip(own, other, strict=True)
    ]
    return xr.Dataset(found | _with_ends("gain_over_random", dims, over))


def _first(right: NDArray) -> NDArray:
    return right[0] if len(right) else np.zeros(0, dtype=bool)


def _paired(now: NDArray, before: NDArray) -> Interval:
    if not len(now) or len(now) != len(before):
        return NOTHING
    change = now.astype(float) - before.astype(float)
    return mean_over(float(change.mean()), [change])


def _less(found: Interval) -> Interval:
    """The other way round: own - random."""
    value, low, high = found
    return -value, -high, -low


# ---- in words -------------------------------------------------------------------------------------------------------


def _told(maps: xr.Dataset, outcomes: Sequence[Outcomes], sets: Sets, options: Any) -> xr.Dataset:
    names, refused = sets.functions, maps["reason"].values
    reasons, augment = [], []
    trained = [
        tuple(int(maps[part].values[place]) for part in ("train_right", "train_wrong")) for place in range(len(names))
    ]
    for place, one in enumerate(outcomes):
        few = (
            ""
            if one.enough
            else f"the whole model does {one.counts['solved']} of its {one.counts['tried']} held-out steps, fewer than "
            f"the {options.least} that masking needs"
        )
        reasons.append(str(refused[place]) or few)
        right, wrong = trained[place]
        unlike = (
            "" if (one.kind == "augment").any() else f"{right} right and {wrong} wrong training steps give no direction"
        )
        augment.append(str(refused[place]) or ("no augmenting was asked for" if not options.mixed else unlike))
    listed = [[names_of(sets.own(name, count)) for count in options.heads] for name in names]
    return xr.Dataset(
        {
            "heads": ((FUNCTION, REMOVED), np.array(listed, dtype=object)),
            "reason": (FUNCTION, np.array(reasons, dtype=object)),
            "augment_reason": (FUNCTION, np.array(augment, dtype=object)),
        },
        coords={
            "train_right": (FUNCTION, np.array([right for right, _ in trained], dtype=np.int64)),
            "train_wrong": (FUNCTION, np.array([wrong for _, wrong in trained], dtype=np.int64)),
        },
    )
