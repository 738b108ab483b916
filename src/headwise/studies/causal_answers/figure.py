"""The figure of the study: one panel per measure; what changes without each head, next to what changes without its controls.

Rows are the heads that the loss needs most and those that the detector weighs most, then all of a kind together. Orange is the
change without the head, grey the mean change without the heads that it is compared with; lines are 95 % intervals. Whether the
two differ is in the words and on hover, as `excess`: intervals of paired changes may overlap although they do.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, HEAD_SET, LAYER, MEASURE, head_name
from headwise.core.errors import StudyError
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Category, Guide, Intervals
from headwise.studies.causal_answers.spec import AUROCS, SHARES

OWN, MATCHED = "#b5500b", "#8c8c8c"
KINDS = {"all": (*SHARES, *AUROCS), "answers": SHARES, "detectors": AUROCS}
SET_LABELS = {"needed": "all needed", "detector": "all of the detector"}


def figure(dataset: xr.Dataset, *, kind: str = "all") -> Figure:
    """Changes without single heads and without sets: of answers, of detectors, or of all that was measured."""
    known = [name for name in KINDS[kind] if int(dataset["n"].sel({MEASURE: name}))]
    if not known:
        raise StudyError(f"No question was answered again ({dataset.attrs['not_asked']}); see the kind detectors.")
    panels = tuple(_panel(dataset.sel({MEASURE: name}).transpose(LAYER, HEAD, ...), name) for name in known)
    return Figure(
        title=str(dataset.attrs.get("title", "")),
        panels=panels,
        columns=min(4, len(panels)),
        notes=_notes(dataset),
    )


def chosen_heads(dataset: xr.Dataset) -> list[tuple[int, int]]:
    """The heads that were chosen, those that are needed first; controls are left out."""
    role = dataset["role"].transpose(LAYER, HEAD).values.astype(str)
    order = ("both", "needed", "detector")
    cells = [(int(layer), int(head)) for layer, head in np.argwhere(np.isin(role, order))]
    return sorted(cells, key=lambda cell: (order.index(role[cell]), cell))


def _panel(one: xr.Dataset, name: str) -> Intervals:
    role = one["role"].values.astype(str)
    rows: list[tuple[str, float, float, float, int]] = []
    for cell in chosen_heads(one):
        rows.append((f"{head_name(*cell)} ({role[cell]})", *_ends(one, "change", cell), 0))
        rows.append(("matched heads", *_ends(one, "matched", cell), 1))
    for index, reason in enumerate(one[HEAD_SET].values.astype(str)):
        if one["heads"].values[index]:
            rows.append((SET_LABELS.get(reason, reason), *_ends(one, "set_change", (index,)), 0))
            rows.append(("matched sets", *_ends(one, "set_matched", (index,)), 1))
    rows = [row for row in rows if np.isfinite(row[1])]
    labels, value, low, high, group = zip(*rows, strict=True)
    unit, counted = ("share", "questions") if name in SHARES else ("AUROC", "answers")
    intact = f"intact: {float(one['intact']):.2f} ({float(one['intact_low']):.2f} to {float(one['intact_high']):.2f})"
    label = str(one["label"].values)
    return Intervals(
        key=name,
        title=label[:1].upper() + label[1:],
        subtitle=f"{intact}\n{int(one['n'])} {counted}",
        values=np.array(value),
        low=np.array(low),
        high=np.array(high),
        x=Axis(f"Change of the {unit}"),
        y=Axis("", tuple(labels)),
        groups=tuple(group),
        categories=(Category("own", "without it", OWN), Category("matched", "without matched heads", MATCHED)),
        guides=(Guide("x", 0.0),),
    )


def _ends(one: xr.Dataset, name: str, cell: tuple[int, ...]) -> tuple[float, float, float]:
    value, low, high = (float(one[f"{name}{end}"].values[cell]) for end in ("", "_low", "_high"))
    return value, low, high


def _notes(dataset: xr.Dataset) -> tuple[str, ...]:
    text = (
        "Heads are replaced by their mean output. Lines: 95 % intervals, paired by question and by answer. Matched heads: of "
        "the same layers, similar norm. Half of the answers are wrong, within strata of similar questions: "
        f"{dataset.attrs['strata']}."
    )
    return (
        f"{text} Questions were not answered again: {dataset.attrs['not_asked']}."
        if dataset.attrs["not_asked"]
        else text,
    )
