"""The figure of the transfer study: one matrix per fitted detector, then what needs no fitting.

Rows: the question set a detector was fitted on, and all sets but the tested one. Columns: the set it is tested on. Framed: the
same set, cross-validated. In brackets at the axis: wrong and correct answers. The last panel has the scores that are not
fitted, per tested set. Nothing is computed here.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, TESTED_ON, TRAINED_ON
from headwise.figures.figure import Figure
from headwise.figures.matrices import letter_note, short_names, written_matrix
from headwise.figures.panels import Axis, Category, Guide, Heatmap, Intervals, Panel
from headwise.figures.provenance import provenance_caption, provenance_of, with_model
from headwise.figures.scale import scale_around

CHANCE, MIN_RANGE, COLUMNS = 0.5, 0.25, 4  # the colour scale reaches at least so far from chance
KINDS = {"heads": "", "question": "question alone"}  # of fitted detectors; subtitle
SCORE_COLOURS = ("#31688e", "#1f9e77", "#7a7a7a", "#c2902b", "#8a4fa3")


def figure(dataset: xr.Dataset) -> Figure:
    """All detectors."""
    kinds = [str(kind) for kind in dataset["kind"].values]
    fitted = [str(name) for name, kind in zip(dataset[DETECTOR].values, kinds, strict=True) if kind in KINDS]
    panels: list[Panel] = [_matrix(dataset, name) for name in fitted]
    values = dataset["auroc"].sel({DETECTOR: fitted}).values
    scores = _scores(dataset)
    panels += [scores] if scores is not None else []
    origin = provenance_of(dataset)
    return Figure(
        title=with_model(dataset.attrs.get("title") or "Detectors on other question sets", origin),
        panels=tuple(panels),
        columns=min(COLUMNS, len(panels)),
        scales={"auroc": scale_around(np.append(values, MIN_RANGE), "AUROC", centre=CHANCE)},
        notes=_notes(dataset),
        provenance=provenance_caption(origin),
    )


def _matrix(dataset: xr.Dataset, name: str) -> Heatmap:
    one = dataset.sel({DETECTOR: name})
    rows, columns = ([str(each) for each in one[dim].values] for dim in (TRAINED_ON, TESTED_ON))
    written = short_names(columns)
    return written_matrix(
        name.lower().replace(" ", "_").replace(":", "").replace(",", ""),
        name,
        one["auroc"].transpose(TRAINED_ON, TESTED_ON).values.astype(float),
        Axis("Tested on", tuple(written[column] for column in columns)),
        Axis("Fitted on", tuple(written.get(row, "all others") for row in rows)),
        "auroc",
        framed=np.array([[row == column for column in columns] for row in rows]),
        subtitle=KINDS[str(one["kind"].item())],
        missing="too few answers",
    )


def _scores(dataset: xr.Dataset) -> Intervals | None:
    names = [
        str(name)
        for name, kind in zip(dataset[DETECTOR].values, dataset["kind"].values, strict=True)
        if kind == "score"
    ]
    sets = [str(name) for name in dataset[TESTED_ON].values]
    if not names:
        return None
    cells = [(set_, name) for set_ in sets for name in names]
    first = dataset.isel({TRAINED_ON: 0})
    values, low, high = (
        np.array([float(first[f"auroc{end}"].sel({DETECTOR: name, TESTED_ON: one})) for one, name in cells])
        for end in ("", "_low", "_high")
    )
    written = short_names(sets)
    return Intervals(
        key="scores",
        title="Not fitted: AUROC, 95 % interval",
        values=values,
        low=low,
        high=high,
        x=Axis("AUROC", low=min(0.4, float(np.floor(10 * np.nanmin(low)) / 10)), high=1.0),
        y=Axis("", tuple(written[one] if name == names[0] else "" for one, name in cells)),
        groups=tuple(names.index(name) for _, name in cells),
        categories=tuple(
            Category(name, name, SCORE_COLOURS[index % len(SCORE_COLOURS)]) for index, name in enumerate(names)
        ),
        guides=(Guide("x", CHANCE),),
    )


def _notes(dataset: xr.Dataset) -> tuple[str, ...]:
    sets = [str(name) for name in dataset[TESTED_ON].values]
    counts = (
        f"{name}: {int(wrong)} wrong and {int(right)} correct answers"
        for name, wrong, right in zip(sets, dataset["n_wrong"].values, dataset["n_right"].values, strict=True)
    )
    text = (
        f"{'; '.join(counts)}. Framed: cross-validated inside the set; elsewhere fitted on one set (all others) and tested on "
        "another. A detector of the question alone sees no number of the model but the answer's length."
    )
    return (" ".join(part for part in (text, letter_note(short_names(sets))) if part),)
