"""From labels and scores under every ablation to changes with intervals, tests and controls. Pure functions.

Shares (correct, refused) are compared question by question (`stats.paired_shares`), AUROCs answer by answer: their mean over
folds, DeLong's paired interval and test, inflated for the training rows that the folds' detectors share (`stats.auroc`). That
holds for applied detectors, too: what is in the test answers of one fold has shaped the detectors of the others, and without
the inflation two equally good readings differ with p < 0.05 in 11 % of simulated draws (benchmarks/calibration_draws.py). A
head's excess is its change minus the mean change of its controls, in one test, not two. q-values are over the heads that were
chosen, measure by measure; over sets and measures for the sets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import HEAD, HEAD_SET, LAYER, MEASURE, head_name
from headwise.stats import (
    Auroc,
    auroc_by_fold,
    benjamini_hochberg,
    delong_test,
    minimum_detectable_gain,
    share_change,
    wilson_interval,
)
from headwise.stats.intervals import HALF_WIDTH
from headwise.studies.causal_answers.spec import AUROCS, REASONS, SHARES
from headwise.studies.matched_heads import Head

INTACT, CONTROL, BOTH = "intact", "control", "both"
MEASURES = {  # measure -> label, definition
    "correct": ("correct answers", "share of the questions that the model answers correctly"),
    "refused": ("refusals", "share of the questions that the model does not answer"),
    "detector": ("the detector", "AUROC of a detector on attention, fitted on the intact model"),
    "detector_reading": (
        "the detector without its reading",
        "the same; the head stays in the model and is only not read",
    ),
    "detector_refitted": ("the detector, refitted", "AUROC of a detector on attention, fitted without the head"),
    "probe": ("the probe", "AUROC of a probe on the hidden state, fitted on the intact model"),
    "probe_refitted": ("the probe, refitted", "AUROC of a probe on the hidden state, fitted without the head"),
}
PARTS, ENDS = ("change", "matched", "excess"), ("", "_low", "_high", "_p")
Floats = NDArray[np.float64]


class Ablated(NamedTuple):
    """Heads that are ablated together."""

    heads: tuple[Head, ...]
    role: str  # why: one of `REASONS` or BOTH; CONTROL; INTACT: nothing is ablated
    controls: tuple[int, ...] = ()  # indices of what it is compared with


class _Change(NamedTuple):
    value: float
    low: float
    high: float
    p: float


UNKNOWN = _Change(*[float("nan")] * 4)


class _Measure:
    """One measure under every ablation."""

    def __init__(self, name: str, readings: xr.Dataset, wrong: NDArray[np.bool_], fold_of: NDArray[np.int64]):
        self.share = name in SHARES
        if self.share:
            self.hits = readings["label"].values == name  # (ablation, question)
            self.n = self.hits.shape[1]
        else:
            self.areas = [auroc_by_fold(score, wrong, fold_of)[0] for score in readings[name].values]
            self.n = len(wrong)

    def intact(self) -> tuple[float, float, float]:
        """The value of the unchanged model, with its interval."""
        if not self.n:
            return UNKNOWN[:3]
        if self.share:
            low, high = wilson_interval(self.hits[0].mean(), self.n)
            return float(self.hits[0].mean()), float(low), float(high)
        one = self.areas[0]
        return float(one.value), float(one.low), float(one.high)

    def change(self, ablated: Sequence[int], before: Sequence[int]) -> _Change:
        """The mean under these ablations minus the mean under others; one of the two sides is a single ablation."""
        if not self.n or not len(ablated) or not len(before):
            return UNKNOWN
        if not self.share:
            found = delong_test(self._mean(ablated), self._mean(before))
            return _Change(found.value, found.low, found.high, found.p)
        if len(ablated) == 1:
            return _Change(*share_change(self.hits[ablated[0]], self.hits[list(before)].T))
        value, low, high, p = share_change(self.hits[before[0]], self.hits[list(ablated)].T)
        return _Change(-value, -high, -low, p)

    def _mean(self, ablated: Sequence[int]) -> Auroc:
        some = [self.areas[index] for index in ablated]
        value, influence = (np.mean([getattr(one, part) for one in some], axis=0) for part in ("value", "influence"))
        return Auroc(value, np.array(np.nan), np.array(np.nan), influence, some[0].inflation)


def finalize(
    readings: xr.Dataset,
    ablated: Sequence[Ablated],
    wrong: NDArray[np.bool_],
    fold_of: NDArray[np.int64],
    weight: Floats,
) -> xr.Dataset:
    """The Dataset.

    Args:
        readings: labels (ablation, question) and scores (ablation, answer), in the order of ``ablated``.
        ablated: what was ablated; first, nothing.
        wrong: (answer,).
        fold_of: (answer,).
        weight: (layer, head), in the detector.
    """
    shape = weight.shape
    names = (*SHARES, *AUROCS)
    singles = [index for index, one in enumerate(ablated) if len(one.heads) == 1 and one.role != CONTROL]
    sets = [
        next((i for i, one in enumerate(ablated) if len(one.heads) > 1 and one.role in (reason, BOTH)), None)
        for reason in REASONS
    ]
    maps = {f"{part}{end}": np.full((len(names), *shape), np.nan) for part in PARTS for end in ENDS}
    of_sets = {f"set_{part}{end}": np.full((len(names), len(sets)), np.nan) for part in PARTS for end in ENDS}
    measures = [_Measure(name, readings, wrong, fold_of) for name in names]
    detectable = np.full(len(names), np.nan)
    for row, measure in enumerate(measures):
        for index, one in enumerate(ablated):
            if len(one.heads) == 1:
                cell = (row, *one.heads[0])
                _put(maps, "", cell, _compared(measure, index, one.controls))
        for column, place in enumerate(sets):
            if place is not None:
                _put(of_sets, "set_", (row, column), _compared(measure, place, ablated[place].controls))
        widths = maps["change_high"][row] - maps["change_low"][row]
        halves = [widths[ablated[index].heads[0]] for index in singles]
        error = float(np.median(halves)) / (2 * HALF_WIDTH) if halves else np.nan
        detectable[row] = minimum_detectable_gain(error, tests=max(1, len(singles)))
    chosen = np.zeros(shape, dtype=bool)
    for index in singles:
        chosen[ablated[index].heads[0]] = True
    for part in ("change", "excess"):
        own = np.where(chosen, maps[f"{part}_p"], np.nan)
        maps[f"{part}_q"] = np.stack([benjamini_hochberg(one) for one in own])
    of_sets["set_excess_q"] = benjamini_hochberg(of_sets["set_excess_p"])
    intact = np.array([measure.intact() for measure in measures])
    labels, definitions = zip(*(MEASURES[name] for name in names), strict=True)
    data: dict[str, Any] = {
        _NAMES.get(name, name): ((MEASURE, LAYER, HEAD), values) for name, values in maps.items() if name not in _UNUSED
    }
    data |= {
        _NAMES.get(name, name): ((MEASURE, HEAD_SET), values) for name, values in of_sets.items() if name not in _UNUSED
    }
    data |= {
        name: ((MEASURE,), values)
        for name, values in zip(("intact", "intact_low", "intact_high"), intact.T, strict=True)
    }
    return (
        xr.Dataset({**data, "detectable": ((MEASURE,), detectable), "weight": ((LAYER, HEAD), weight)})
        .astype(np.float32)
        .assign(
            role=((LAYER, HEAD), _roles(ablated, shape)),
            controls=((LAYER, HEAD), _controls(ablated, shape)),
            n=((MEASURE,), np.array([measure.n for measure in measures], dtype=np.int64)),
        )
        .assign_coords(
            {
                MEASURE: np.array(names, dtype=object),
                "label": (MEASURE, np.array(labels, dtype=object)),
                "definition": (MEASURE, np.array(definitions, dtype=object)),
                HEAD_SET: np.array(REASONS, dtype=object),
                "heads": (HEAD_SET, np.array([_named(ablated, place) for place in sets], dtype=object)),
                LAYER: np.arange(shape[0]),
                HEAD: np.arange(shape[1]),
            }
        )
        .assign_attrs(title="What answers and detectors lose without a head", record=json.dumps(["change", "excess"]))
    )


_NAMES = {"change_p": "p", "change_q": "q", "set_change_p": "set_p"}
_UNUSED = ("matched_p", "set_matched_p")


def _compared(measure: _Measure, index: int, controls: Sequence[int]) -> dict[str, _Change]:
    return {
        "change": measure.change([index], [0]),
        "matched": measure.change(controls, [0]),
        "excess": measure.change([index], controls),
    }


def _put(maps: dict[str, Floats], prefix: str, cell: tuple[int, ...], found: dict[str, _Change]) -> None:
    for part, change in found.items():
        for end, value in zip(ENDS, change, strict=True):
            maps[f"{prefix}{part}{end}"][cell] = value


def _named(ablated: Sequence[Ablated], place: int | None) -> str:
    return "" if place is None else " ".join(head_name(*head) for head in ablated[place].heads)


def _roles(ablated: Sequence[Ablated], shape: tuple[int, ...]) -> NDArray[np.object_]:
    """Why each head was ablated alone."""
    found = np.full(shape, "", dtype=object)
    for one in ablated:
        if len(one.heads) == 1:
            found[one.heads[0]] = one.role
    return found


def _controls(ablated: Sequence[Ablated], shape: tuple[int, ...]) -> NDArray[np.object_]:
    found = np.full(shape, "", dtype=object)
    for one in ablated:
        if len(one.heads) == 1:
            found[one.heads[0]] = " ".join(head_name(*ablated[index].heads[0]) for index in one.controls)
    return found
