"""The figure of the detection study: how well do detectors separate wrong answers from correct ones?

Eight panels; those without numbers are omitted: AUROC of every detector with its confidence interval, the rows that see the
question alone on top; the same among answers to similar questions only; what rows with the question gain over the question; ROC
curves of the best fitted detector, the best score and the answer's length; AUROC by k, by layer, by size of the training set;
and fitted on one topic, tested on another. Everything is out of fold; only the corners of the ROC curves are computed here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, LAYER, RANK, SIZE, TOPIC, TRAINED_ON
from headwise.figures.figure import Figure
from headwise.figures.matrices import letter_note, short_names
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Heatmap, Intervals, Mark, Panel
from headwise.figures.scale import Scale, scale_around
from headwise.stats.auroc import CHANCE

FITTED = ("#376180", "#30a073", "#8a50a5", "#c2902b")  # the best four fitted detectors, in every panel with curves
COMBINED, DARK, GREY = "#b5500b", "#3d3d3d", "#8c8c8c"
QUESTION = "#a33a5c"
KINDS = {  # kind: label, colour
    "question": ("question", QUESTION),
    "with question": ("with question", "#d98a9c"),
    "combined": ("combined", COMBINED),
    "supervised": ("fitted", "#376180"),
    "probe": ("fitted without labels", "#30a073"),
    "score": ("score", "#7a7a7a"),
}
SWEEPS = {  # variable: dim, title, name of the axis, and whether it is logarithmic
    "by_k": (RANK, "Eigenvalues used", "k", True),
    "by_layer": (LAYER, "One layer alone", "Layer", False),
    "by_size": (SIZE, "Training set", "Answers fitted on", True),
}
# of variables that are no AUROC, nor differences of two
AXES = {"prr": "PRR", "auprc": "AUPRC", "ece": "ECE", "aurc": "AURC"}
MIN_RANGE = 0.25  # the colour scale reaches at least this AUROC, and as far above chance


def figure(dataset: xr.Dataset) -> Figure:
    """All panels that the table has numbers for."""
    panels: list[Panel] = [_detectors(dataset), *_alike(dataset), *_gains(dataset), *_roc(dataset)]
    panels += [panel for name in SWEEPS for panel in _sweep(dataset, name)]
    transfer = _transfer(dataset)
    scales: dict[str, Scale] = {}
    if transfer is not None:
        panels.insert(
            min(4 if "auroc_within" in dataset else 3, len(panels)), transfer
        )  # below the names of the detectors: both need room at their left
        wide = np.append(transfer.values, MIN_RANGE)  # so that noise does not look like more
        scales["auroc"] = scale_around(wide, "AUROC", centre=CHANCE)
    title = dataset.attrs.get("title") or "How well wrong answers are separated from correct ones"
    return Figure(
        title=title,
        panels=tuple(panels),
        columns=min(2 if "auroc_within" in dataset else 3, len(panels)),
        scales=scales,
        notes=_notes(dataset),
    )


def length_row(dataset: xr.Dataset) -> str | None:
    """The detector that uses only the answer's length, if the table has one."""
    rows = zip(dataset[DETECTOR].values, _kinds(dataset), strict=True)
    names = (str(name) for name, kind in rows if "question" not in kind)
    return next((name for name in names if "length" in f"{name} {_label(dataset, name)}".lower()), None)


def _detectors(dataset: xr.Dataset) -> Intervals:
    """Sorted by kind, and within it by AUROC."""
    return interval_rows(dataset, "auroc", "AUROC, 95 % interval", ordered_rows(dataset), Guide("x", CHANCE))


def _alike(dataset: xr.Dataset) -> list[Panel]:
    """The AUROC within strata, in the same order."""
    if "auroc_within" not in dataset:
        return []
    strata = str(dataset.attrs.get("strata", ""))
    panel = interval_rows(dataset, "auroc_within", "Among similar questions", ordered_rows(dataset), Guide("x", CHANCE))
    unnamed = tuple(replace(each, label="") for each in panel.categories)  # the first panel names the colours
    return [replace(panel, subtitle=f"within {strata}" if strata else "", categories=unnamed)]


def _gains(dataset: xr.Dataset) -> list[Panel]:
    """What the rows with the question gain over the strongest question-only row."""
    kinds, reference = _kinds(dataset), str(dataset.attrs.get("reference", ""))
    rows = [row for row in ordered_rows(dataset) if kinds[row] == "with question"]
    if "gain" not in dataset or not rows:
        return []
    panel = interval_rows(dataset, "gain", "Gain over the question", rows, Guide("x", 0.0))
    return [replace(panel, subtitle=f"AUROC minus that of {_label(dataset, reference)}")]


def ordered_rows(dataset: xr.Dataset) -> list[int]:
    """Detectors by kind, and within it by AUROC, the best first."""
    auroc, kinds = dataset["auroc"].values, _kinds(dataset)
    rank = {kind: index for index, kind in enumerate(KINDS)}
    return sorted(range(len(auroc)), key=lambda row: (rank[kinds[row]], -np.nan_to_num(auroc[row], nan=-1)))


def interval_rows(dataset: xr.Dataset, variable: str, title: str, order: list[int], guide: Guide) -> Intervals:
    """One line per detector: a variable with its interval; AUROCs from their floor to 1, differences and others as they are."""
    values, kinds = dataset[variable].values, _kinds(dataset)
    names = [str(dataset[DETECTOR].values[row]) for row in order]
    used = [kind for kind in KINDS if kind in {kinds[row] for row in order}]
    low, high = _ends(dataset, variable)
    x = Axis("AUROC", low=_floor(low[order], values[order]), high=1.0)
    return Intervals(
        key=variable,
        title=title,
        values=values[order],
        low=low[order],
        high=high[order],
        x=x if variable.startswith("auroc") else Axis(AXES.get(variable, "AUROC difference")),
        y=Axis("", tuple(_label(dataset, name) for name in names)),
        groups=tuple(used.index(kinds[row]) for row in order),
        categories=tuple(Category(kind, *KINDS[kind]) for kind in used),
        guides=(guide,),
    )


def _roc(dataset: xr.Dataset) -> list[Panel]:
    if not {"score", "wrong"} <= set(dataset.variables):
        return []
    length, wrong = length_row(dataset), dataset["wrong"].values.astype(bool)
    scores = [name for name in _ranked(dataset, "score") if name != length]
    best = _ranked(dataset, "combined", "supervised")[:1]
    styles = [(name, _colour(dataset, name), "line") for name in best] + [(name, DARK, "line") for name in scores[:1]]
    styles += [(length, GREY, "dashed")] if length else []
    curves = []
    for name, colour, style in styles:
        score = dataset["score"].sel({DETECTOR: name}).values
        if np.isfinite(score).all() and wrong.any() and not wrong.all():
            curves.append(Curve(name, _label(dataset, name), *_corners(score, wrong), colour=colour, style=style))
    axes = Axis("Correct answers flagged", low=0.0, high=1.0), Axis("Wrong answers found", low=0.0, high=1.0)
    return (
        [Curves("roc", "ROC, all folds together", tuple(curves), *axes, guides=(Guide("diagonal"),))] if curves else []
    )


def _corners(score: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rate at every threshold, from none flagged to all."""
    order = np.argsort(-score, kind="stable")
    score, wrong = score[order], wrong[order]
    last = np.r_[np.flatnonzero(np.diff(score)), len(score) - 1]  # equal scores are flagged together
    return np.r_[0, np.cumsum(~wrong)[last] / (~wrong).sum()], np.r_[0, np.cumsum(wrong)[last] / wrong.sum()]


def _sweep(dataset: xr.Dataset, name: str) -> list[Panel]:
    dim, title, axis, log = SWEEPS[name]
    if name not in dataset or not dataset.sizes[dim]:
        return []
    low, high = (side.reshape(-1, dataset.sizes[dim]) for side in _ends(dataset.transpose(DETECTOR, ...), name))
    x, detectors = dataset[dim].values.astype(float), [str(each) for each in dataset[DETECTOR].values]
    curves, values = [], dataset[name].transpose(DETECTOR, dim).values
    for each in _ranked(dataset, "supervised")[: len(FITTED)]:
        row = detectors.index(each)
        known = np.isfinite(values[row])
        if known.any():
            sides = (x[known], values[row][known], low[row][known], high[row][known])
            curves.append(Curve(each, _label(dataset, each), *sides, colour=_colour(dataset, each)))
    if not curves:
        return []
    floor = _floor(*(side for curve in curves for side in (curve.low, curve.y) if side is not None))
    ends = np.array([min(curve.x.min() for curve in curves), max(curve.x.max() for curve in curves)])
    curves += _level_of_length(dataset, ends)
    y = Axis("AUROC", low=floor, high=1.0)
    return [Curves(name, title, tuple(curves), Axis(axis, log=log), y, guides=(Guide("y", CHANCE),))]


def _transfer(dataset: xr.Dataset) -> Heatmap | None:
    """Of the best detector that was fitted on single topics."""
    if "transfer" not in dataset:
        return None
    for name in _ranked(dataset, "supervised"):
        one = dataset["transfer"].sel({DETECTOR: name}).transpose(TRAINED_ON, TOPIC)
        if not np.isfinite(one.values).any():
            continue
        rows, columns = ([str(each) for each in one[dim].values] for dim in (TRAINED_ON, TOPIC))
        own = [(rows.index(topic), column) for column, topic in enumerate(columns) if topic in rows]
        own = [cell for cell in own if np.isfinite(one.values[cell])]
        written = short_names(columns)
        return Heatmap(
            key="transfer",
            title=f"{_label(dataset, name)}, AUROC across topics",
            subtitle="rings: cross-validated inside the topic",
            values=one.values,
            x=Axis("Tested on", tuple(written[column] for column in columns)),
            y=Axis("Fitted on", tuple(written.get(row, "all others") for row in rows)),
            scale="auroc",
            marks=tuple(Mark(row, column) for row, column in own),
            missing="too few answers",
        )
    return None


def _level_of_length(dataset: xr.Dataset, ends: np.ndarray) -> list[Curve]:
    length = length_row(dataset)
    if length is None or not np.isfinite(level := float(dataset["auroc"].sel({DETECTOR: length}))):
        return []
    return [Curve(length, _label(dataset, length), ends, np.full(2, level), colour=GREY, style="dashed")]


def _notes(dataset: xr.Dataset) -> tuple[str, ...]:
    attrs, notes = dataset.attrs, []
    if {"n_wrong", "n_right"} <= set(attrs):
        notes.append(f"{attrs['n_wrong']} wrong and {attrs['n_right']} correct answers.")
    folds = f"{attrs['folds']} folds" if "folds" in attrs else "the test folds"
    notes.append(f"AUROC is the mean over {folds}; k, layer and weights are chosen inside the training folds.")
    notes.append(
        "Bands and lines: 95 % confidence interval; thin dashes: chance. Scores are not fitted and can be below 0.5."
    )
    if "auroc_within" in dataset and attrs.get("strata"):
        notes.append(
            f"Similar questions: {attrs['n_strata']} strata of {attrs['strata']}; fitted rows saw none of the stratum."
        )
    heads = str(attrs.get("heads", ""))
    if "gain_detectable" in dataset and heads in dataset[DETECTOR].values:
        gain = float(dataset["gain_detectable"].sel({DETECTOR: heads}))
        notes.append(
            f"{_label(dataset, heads)}: a gain of {gain:.3f} over the question would be found with 80 % power."
        )
    if length_row(dataset) is None:
        notes.append("The answer's length, a confounder, is not in this table.")
    if TOPIC in dataset.coords:
        notes.append(letter_note(short_names([str(topic) for topic in dataset[TOPIC].values])))
    return (" ".join(note for note in notes if note),)


def _ranked(dataset: xr.Dataset, *kinds: str) -> list[str]:
    """The detectors of these kinds, best first."""
    rows = zip(dataset[DETECTOR].values, dataset["auroc"].values, _kinds(dataset), strict=True)
    found = [(str(name), float(value)) for name, value, kind in rows if kind in kinds and np.isfinite(value)]
    return [name for name, _ in sorted(found, key=lambda row: -row[1])]


def _colour(dataset: xr.Dataset, name: str) -> str:
    """The same in every panel with curves."""
    fitted = _ranked(dataset, "supervised")
    return FITTED[fitted.index(name)] if name in fitted else COMBINED


def _kinds(dataset: xr.Dataset) -> list[str]:
    if "kind" not in dataset.coords:
        return ["supervised"] * dataset.sizes[DETECTOR]
    return [str(kind) if str(kind) in KINDS else "score" for kind in dataset["kind"].values]


def _label(dataset: xr.Dataset, name: str) -> str:
    if "label" not in dataset.coords:
        return name
    return str(dataset.variables["label"].values[dataset.get_index(DETECTOR).get_loc(name)])


def _ends(dataset: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the intervals; the values themselves where there are none."""
    low, high = (
        dataset[f"{name}_{end}"].values if f"{name}_{end}" in dataset else dataset[name].values
        for end in ("low", "high")
    )
    return low, high


def _floor(*values: np.ndarray) -> float:
    """The tenth below the smallest value, and never above 0.4, so that chance is visible."""
    finite = np.concatenate([value[np.isfinite(value)] for value in values])
    smallest = float(finite.min()) if finite.size else CHANCE
    return max(0.0, min(0.4, np.floor(10 * smallest - 1e-6) / 10))
