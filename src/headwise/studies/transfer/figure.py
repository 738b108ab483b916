"""The figure of the transfer study: one matrix per fitted detector, then what needs no fitting.

Rows: the question set a detector was fitted on, and all sets but the tested one. Columns: the set it is tested on. Framed: the
same set, cross-validated. The last panel has the scores that are not fitted, per tested set. Nothing is computed here.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, TESTED_ON, TRAINED_ON
from headwise.figures.figure import Figure
from headwise.figures.matrices import letter_note, short_names, written_matrix
from headwise.figures.panels import Axis, Heatmap, Panel
from headwise.figures.scale import scale_around
from headwise.stats.auroc import CHANCE

MIN_RANGE, COLUMNS = 0.25, 3  # the colour scale reaches at least so far from chance
KINDS = {"heads": "", "question": "question alone"}  # of fitted detectors; subtitle


def figure(dataset: xr.Dataset) -> Figure:
    """All detectors."""
    kinds = [str(kind) for kind in dataset["kind"].values]
    fitted = [str(name) for name, kind in zip(dataset[DETECTOR].values, kinds, strict=True) if kind in KINDS]
    panels: list[Panel] = [_matrix(dataset, name) for name in fitted]
    values = dataset["auroc"].values
    scores = _scores(dataset)
    panels += [scores] if scores is not None else []
    return Figure(
        title=dataset.attrs.get("title") or "Detectors on other question sets",
        panels=tuple(panels),
        columns=min(COLUMNS, len(panels)),
        scales={"auroc": scale_around(np.append(values, MIN_RANGE), "AUROC", centre=CHANCE)},
        notes=_notes(dataset),
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


def _scores(dataset: xr.Dataset) -> Heatmap | None:
    """Scores that need no fitting, so that they have no row to be fitted on."""
    own = dataset.isel({DETECTOR: np.flatnonzero(dataset["kind"].values == "score"), TRAINED_ON: 0})
    if not own.sizes[DETECTOR]:
        return None
    names, sets = ([str(each) for each in own[dim].values] for dim in (DETECTOR, TESTED_ON))
    written = short_names(sets)
    return written_matrix(
        "scores",
        "Not fitted",
        own["auroc"].transpose(DETECTOR, TESTED_ON).values.astype(float),
        Axis("Tested on", tuple(written[one] for one in sets)),
        Axis("", tuple(names)),
        "auroc",
        missing="too few answers",
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
