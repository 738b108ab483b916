"""The figure of the sampling study: which of many answers to take, and how the model errs.

Three panels: how often each strategy's answer is correct, of all questions; the same of the questions of each type of
error, for the strategies that could be used; and how well a probe separates each type from the rest. Types without questions
are left out. Nothing is computed here.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import DRAW, ERROR_TYPE, EXAMPLE, STRATEGY
from headwise.core.schema import INTERVAL_ENDS
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Category, Guide, Intervals, Panel

LABELS = {
    "greedy": "Greedy",
    "random": "Random sample",
    "majority": "Majority of samples",
    "probe": "Lowest error probability by probe",
    "trust": "Vote weighted by probe",
    "any": "Any correct sample (bound)",
}
KINDS = {  # label, colour and strategies of each kind
    "plain": ("no probe", "#3d3d3d", ("greedy", "random", "majority")),
    "probe": ("probe", "#31688e", ("probe", "trust")),
    "bound": ("bound", "#a8a8a8", ("any",)),
}
BY_TYPE = {
    "greedy": ("Greedy", "#3d3d3d"),
    "majority": ("Majority", "#c2902b"),
    "probe": ("Probe", "#31688e"),
    "trust": ("Weighted vote", "#5fb0c9"),
}
TYPE_COLOUR, CHANCE = "#8a4fa3", 0.5
MIN_QUESTIONS = 5  # for an interval to be drawn


def figure(dataset: xr.Dataset) -> Figure:
    """Strategies, strategies by type of error, and the probes of types."""
    types_present = [str(name) for name in dataset[ERROR_TYPE].values if _size(dataset, str(name))]
    panels: list[Panel] = [_overall(dataset)]
    many = [name for name in types_present if _size(dataset, name) >= MIN_QUESTIONS]
    if many:
        panels.append(_by_type(dataset, many))
    known = [name for name in types_present if np.isfinite(dataset["type_auroc"].sel({ERROR_TYPE: name}))]
    if known:
        panels.append(_probes(dataset, known))
    return Figure(
        title=dataset.attrs.get("title") or "Asked many times",
        panels=tuple(panels),
        columns=min(2, len(panels)),
        notes=_notes(dataset),
    )


def _overall(dataset: xr.Dataset) -> Intervals:
    names = [str(name) for name in dataset[STRATEGY].values]
    return Intervals(
        key="accuracy",
        title="Correct answers, 95 % interval",
        values=dataset["accuracy"].values,
        low=dataset["accuracy_low"].values,
        high=dataset["accuracy_high"].values,
        x=Axis("Share of questions", low=0.0, high=1.0),
        y=Axis("", tuple(LABELS[name] for name in names)),
        groups=tuple(next(index for index, kind in enumerate(KINDS.values()) if name in kind[2]) for name in names),
        categories=tuple(Category(key, *kind[:2]) for key, kind in KINDS.items()),
        guides=(Guide("x", float(dataset["accuracy"].sel({STRATEGY: "greedy"}))),),
    )


def _by_type(dataset: xr.Dataset, types: list[str]) -> Intervals:
    shown = {name: look for name, look in BY_TYPE.items() if name in dataset[STRATEGY].values}
    rows = [(name, strategy) for name in types for strategy in shown]
    values, low, high = (np.array([_at(dataset, f"type_accuracy{end}", *row) for row in rows]) for end in INTERVAL_ENDS)
    labels = [
        f"{_label(dataset, name)}, {_size(dataset, name)}" if strategy == "greedy" else "" for name, strategy in rows
    ]
    return Intervals(
        key="by_type",
        title="Correct answers by type of error",
        values=values,
        low=low,
        high=high,
        x=Axis("Share of questions of the type", low=0.0, high=1.0),
        y=Axis("", tuple(labels)),
        groups=tuple(list(shown).index(strategy) for _, strategy in rows),
        categories=tuple(Category(name, *look) for name, look in shown.items()),
    )


def _probes(dataset: xr.Dataset, types: list[str]) -> Intervals:
    one = dataset.sel({ERROR_TYPE: types})
    floor = min(0.4, float(np.floor(10 * np.nanmin(one["type_low"].values)) / 10))
    return Intervals(
        key="type_auroc",
        title="Type against the rest, AUROC of a probe",
        values=one["type_auroc"].values,
        low=one["type_low"].values,
        high=one["type_high"].values,
        x=Axis("AUROC", low=max(0.0, floor), high=1.0),
        y=Axis("", tuple(_label(dataset, name) for name in types)),
        groups=(0,) * len(types),
        categories=(Category("type", "probe at the greedy answer", TYPE_COLOUR),),
        guides=(Guide("x", CHANCE),),
    )


def _notes(dataset: xr.Dataset) -> tuple[str, ...]:
    asked, draws = dataset.sizes[EXAMPLE], dataset.sizes[DRAW]
    text = (
        f"{asked} questions, {draws} samples each at temperature {dataset.attrs.get('temperature', 'unknown')}. The probe "
        f"reads {dataset.attrs['site']} of layer {dataset.attrs['layer']} at the last token of the exact answer and was "
        f"fitted on {_fitted(dataset)}. A question can be of several types. Thin dashes: greedy"
    )
    text += "; chance." if np.isfinite(dataset["type_auroc"].values).any() else "."
    few = [
        f"{name} ({size})"
        for name in map(str, dataset[ERROR_TYPE].values)
        if 0 < (size := _size(dataset, name)) < MIN_QUESTIONS
    ]
    if few:
        text += f" Types of fewer than {MIN_QUESTIONS} questions are not drawn: {', '.join(few)}."
    left = [
        str(name)
        for name in dataset[ERROR_TYPE].values
        if _size(dataset, str(name)) and not np.isfinite(dataset["type_auroc"].sel({ERROR_TYPE: name}))
    ]
    if left:
        text += f" Too few questions, of the type or of the rest, to probe for {', '.join(left)}."
    return (text,)


def _fitted(dataset: xr.Dataset) -> str:
    if "fit_questions" not in dataset:
        return "samples of other questions"
    count, total = int(dataset["fit_answers"]), int(dataset["fit_questions"])
    return f"{count:,} answers to {total:,} questions, always others"


def _label(dataset: xr.Dataset, name: str) -> str:
    return f"{name}: {dataset['type_name'].sel({ERROR_TYPE: name}).item()}"


def _size(dataset: xr.Dataset, name: str) -> int:
    return int(dataset["is_type"].sel({ERROR_TYPE: name}).sum())


def _at(dataset: xr.Dataset, variable: str, name: str, strategy: str) -> float:
    return float(dataset[variable].sel({ERROR_TYPE: name, STRATEGY: strategy}))
