"""The figures of the relation validation: are the scores from weights confirmed in texts, and by ablation?

- ``kind="outputs"``: for every relation, the correlation over heads between the shares found in heads' outputs and the scores
  from weights, with forced and natural attention; each with its interval, sorted by the forced one.
- ``kind="scatter"``: one panel per relation, one point per head: score from weights against the share found in texts.
- ``kind="removal"``: one panel per task: accuracy without the relation's heads, without random ones (with the interval over
  draws), and of the other tasks without the relation's heads; then the effects and spills with their intervals.

The only number computed here is the mean of the control tasks' curves.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import CONTROL, HEAD, LAYER, RELATION, REMOVED, TASK, head_name
from headwise.core.errors import StudyError
from headwise.core.parsing import parse_attribute
from headwise.core.schema import INTERVAL_ENDS
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Intervals, Panel, Scatter
from headwise.figures.provenance import provenance_of
from headwise.studies.relations.figure import COLOURS

KINDS = {  # kind: title
    "outputs": "Heads in texts against their weights",
    "scatter": "Heads in texts against their weights",
    "removal": "Tasks without a relation's heads",
}
READINGS = {"forced": "All attention on the source (forced)", "natural": "Attention as it is (natural)"}
OTHER = "#444444"  # categories of a user's own
FORCED, NATURAL = "#31688e", "#c2902b"
OWN, RANDOM, CONTROLS = "#b5500b", "#8c8c8c", "#31688e"
MAX_COLUMNS = 4


def figure(dataset: xr.Dataset, *, kind: str = "outputs", relations: Iterable[str] | str | None = None) -> Figure:
    """Correlations of all relations; with another ``kind``, one panel per relation (None: all) or task."""
    if kind == "outputs":
        panels: list[Panel] = [_correlations(dataset, reading) for reading in READINGS]
        return _figure(dataset, kind, panels, 2, _output_notes(dataset))
    if kind == "scatter":
        panels = [
            _scatter(dataset, name)
            for name in chosen_keys(dataset, RELATION, relations, "The relation_validation study")
        ]
        return _figure(dataset, kind, panels, min(MAX_COLUMNS, len(panels)), _output_notes(dataset))
    if not dataset.sizes[TASK]:
        raise StudyError(f"No task was solved often enough to remove heads from it ({_unsolved(dataset)}).")
    panels = [_curves(dataset, str(name)) for name in dataset[TASK].values]
    panels += [
        _effects(dataset, "effect", "Lost beyond random heads"),
        _effects(dataset, "spill", "Lost by other tasks"),
    ]
    return _figure(dataset, kind, panels, min(3, len(panels)), _removal_notes(dataset))


def _figure(dataset: xr.Dataset, kind: str, panels: list[Panel], columns: int, notes: tuple[str, ...]) -> Figure:
    return Figure(
        title=KINDS[kind],
        panels=tuple(panels),
        columns=columns,
        notes=notes,
    )


def _correlations(dataset: xr.Dataset, reading: str) -> Intervals:
    order = np.argsort(-np.nan_to_num(dataset["pearson_forced"].values, nan=-2), kind="stable")
    kinds = [str(kind) for kind in dataset["category_of"].values]
    used = list(dict.fromkeys(kinds[row] for row in order))
    used.sort(key=lambda kind: list(COLOURS).index(kind) if kind in COLOURS else len(COLOURS))
    value, low, high = (dataset[f"pearson_{reading}{end}"].values[order] for end in INTERVAL_ENDS)
    floor = min(-0.1, float(np.nanmin(low, initial=0.0)))
    return Intervals(
        key=reading,
        title=READINGS[reading],
        values=value,
        low=low,
        high=high,
        x=Axis("Correlation with weights, over heads", low=floor, high=1.02),
        y=Axis("", tuple(str(dataset[RELATION].values[row]) for row in order)),
        groups=tuple(used.index(kinds[row]) for row in order),
        categories=tuple(Category(kind, kind, COLOURS.get(kind, OTHER)) for kind in used),
        guides=(Guide("x", 0.0),),
    )


def _scatter(dataset: xr.Dataset, name: str) -> Scatter:
    one = dataset.sel({RELATION: name}).transpose(LAYER, HEAD, ...)
    score = one["score"].values.ravel()
    known = np.flatnonzero(np.isfinite(score))
    names = [head_name(*divmod(int(index), one.sizes[HEAD])) for index in known]
    best = int(np.argmax(score[known]))
    top = max(float(np.nanmax(one[each].values)) for each in ("score", "natural", "forced"))
    edge = min(1.0, np.ceil(10 * top + 0.5) / 10)
    return Scatter(
        key=name,
        title=name,
        subtitle=f"r = {_r(one['pearson_forced'])} forced, {_r(one['pearson_natural'])} natural",
        x_values=np.tile(score[known], 2),
        y_values=np.concatenate([one[each].values.ravel()[known] for each in ("natural", "forced")]),
        x=Axis("From weights", low=-0.02, high=edge * 1.03),
        y=Axis("In texts", low=-0.02, high=edge * 1.03),
        names=tuple(names * 2),
        groups=(0,) * len(known) + (1,) * len(known),
        categories=(Category("natural", "natural", NATURAL), Category("forced", "forced", FORCED)),
        shown=(len(known) + best,) if score[known][best] > 0 else (),
        guides=(Guide("diagonal"),),
    )


def _r(value: xr.DataArray) -> str:
    return f"{float(value):.2f}".replace("-0.00", "0.00").replace("-", "−") if np.isfinite(value) else "not known"


def _curves(dataset: xr.Dataset, name: str) -> Curves:
    one = dataset.sel({TASK: name})
    steps = one[REMOVED].values.astype(float)
    others = one["others"].drop_sel({CONTROL: name}).transpose(CONTROL, REMOVED).values
    curves = [_curve(one, "random", "random heads", RANDOM, "dashed"), _curve(one, "own", "its heads", OWN, "line")]
    known = np.isfinite(others).any(0)
    if known.any():
        mean = np.nansum(others, 0)[known] / np.isfinite(others).sum(0)[known]
        curves.insert(0, Curve("others", "other tasks", steps[known], mean, colour=CONTROLS, style="dashed"))
    asked = int(one["asked"])
    axes = Axis("Heads removed", log=True), Axis("Accuracy", low=-0.03, high=1.03)
    return Curves(f"task-{name}", name, tuple(curves), *axes, subtitle=f"{asked} prompts")


def _curve(one: xr.Dataset, key: str, label: str, colour: str, style: str) -> Curve:
    """Accuracy with its interval, as far as heads could be removed."""
    known = np.isfinite(one[key].values)
    steps, value, low, high = (one[name].values[known] for name in (REMOVED, key, f"{key}_low", f"{key}_high"))
    return Curve(key, label, steps.astype(float), value, low, high, colour, style)


def _effects(dataset: xr.Dataset, kind: str, title: str) -> Intervals:
    value, low, high = (dataset[f"{kind}{end}"].values for end in INTERVAL_ENDS)
    floor, top = float(np.nanmin(low, initial=-0.05)), float(np.nanmax(high, initial=0.1))
    return Intervals(
        key=kind,
        title=title,
        values=value,
        low=low,
        high=high,
        x=Axis("Accuracy, mean over steps", low=floor - 0.02, high=min(1.02, top + 0.05)),
        y=Axis("", tuple(str(name) for name in dataset[TASK].values)),
        guides=(Guide("x", 0.0),),
    )


def _output_notes(dataset: xr.Dataset) -> tuple[str, ...]:
    counts = sorted(set(dataset["prompts"].values.tolist()))
    prompts = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    own, other = (
        {reading: _mean(dataset[f"{kind}_{reading}"].values) for reading in READINGS} for kind in ("pearson", "other")
    )
    return (
        f"In texts: share of {prompts} prompts per relation whose target is among the k largest logits of the head's output "
        "at the last token; forced: with all its attention on the source. Lines: 95 % interval over heads.",
        f"Mean correlation: forced {own['forced']}, natural {own['natural']}; with the scores of other relations, "
        f"as a control, {other['forced']} and {other['natural']}.",
    )


def _mean(values: np.ndarray) -> str:
    finite = values[np.isfinite(values)]
    return f"{finite.mean():.2f}" if finite.size else "not known"


def _removal_notes(dataset: xr.Dataset) -> tuple[str, ...]:
    text = (
        "Heads are ablated at the last token, highest score first, on prompts that the whole model solves. "
        f"Bands: 95 % interval over prompts (its heads) and over {dataset.sizes['draw']} draws (random heads). "
        "Other tasks: their mean accuracy without this relation's heads."
        f"{_ranks(dataset)}"
    )
    unsolved = _unsolved(dataset)
    return (text, f"Left out, solved too rarely: {unsolved}.") if unsolved else (text,)


def _ranks(dataset: xr.Dataset) -> str:
    if "rank_p" not in dataset:
        return ""
    ranks = ", ".join(
        f"{name} {float(p):.2f}" for name, p in zip(dataset[TASK].values, dataset["rank_p"].values, strict=True)
    )
    where = "of the same layers" if provenance_of(dataset).get("parameters", {}).get("same_layers") else "of any layer"
    return f" Random heads are {where}; rank of the relation's heads among the draws, p: {ranks}."


def _unsolved(dataset: xr.Dataset) -> str:
    found: dict[str, list[int]] = parse_attribute(dataset.attrs, "unsolved", dict[str, list[int]])
    return ", ".join(f"{name} ({right} of {tried})" for name, (right, tried) in found.items())
