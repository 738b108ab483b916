"""The figure of the study `uncertainty`: every score with its interval, against cheaper knowledge.

Four panels, one row per score: its AUROC; the same among answers to similar questions; what it gains over the smallest
log-probability of a token; what it adds to the question alone. ``curves`` instead draws what a user of a score gets: the share
of wrong answers among those that the score lets through (the best score of each cost), AUROC against time, the
prediction-rejection ratio, and the area under the precision-recall curve.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr

from headwise.core.dims import COST_CLASS, COVERAGE, DETECTOR
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Intervals, Legend, Panel, Scatter
from headwise.stats.auroc import CHANCE
from headwise.studies.spectral.detection_figure import KINDS, interval_rows, ordered_rows

LOGPROB_MIN, LENGTH = "Log-probability, min", "Length"
COST_COLOURS = {
    "answer": "#3d3d3d",
    "pass": "#376180",
    "p(True)": "#8a50a5",
    "contrast pair": "#b8860b",
    "samples": "#30a073",
    "question": "#a33a5c",
}
COST_LABELS = {
    "answer": "free with the answer",
    "pass": "one pass",
    "p(True)": "one question more",
    "contrast pair": "both replies to one question more",
    "samples": "sampled answers",
    "question": "the question alone",
}


def figure(dataset: xr.Dataset, *, curves: bool = False) -> Figure:
    """The table of AUROCs, or risk and cost."""
    panels = _risk_and_cost(dataset) if curves else _aurocs(dataset)
    title = str(dataset.attrs.get("title", "Scores of wrong answers"))
    return Figure(
        title=title + (": risk and cost" if curves else ""),
        panels=tuple(panels),
        columns=2,
        notes=_notes(dataset, curves),
    )


def best_by_cost(dataset: xr.Dataset) -> dict[str, str]:
    """The score with the highest AUROC of each cost; the length of the answer is not one."""
    found: dict[str, str] = {}
    for row in np.argsort(-np.nan_to_num(dataset["auroc"].values, nan=-1), kind="stable"):
        name, cost = (str(dataset[coord].values[row]) for coord in (DETECTOR, "cost"))
        if name != LENGTH:
            found.setdefault(cost, name)
    return {cost: found[cost] for cost in COST_LABELS if cost in found}


def relative_seconds(dataset: xr.Dataset) -> dict[str, float]:
    """By cost: the time of an answer with such a score, as a multiple of the answer alone; empty where it was not timed."""
    seconds = dict(zip(dataset[COST_CLASS].values.astype(str), dataset["seconds"].values.tolist(), strict=True))
    plain = seconds.get("answer", np.nan)
    if not plain > 0:
        return {}
    extra = {cost: 0.0 if cost == "answer" else value for cost, value in seconds.items()}
    return {cost: (plain + value) / plain for cost, value in extra.items() if np.isfinite(value)}


def _aurocs(dataset: xr.Dataset) -> list[Panel]:
    order = ordered_rows(dataset)
    asked = [row for row in order if str(dataset["kind"].values[row]) != "question"]
    panels = [
        interval_rows(dataset, "auroc", "AUROC, 95 % interval", order, Guide("x", CHANCE)),
        interval_rows(dataset, "auroc_within", "Among similar questions", order, Guide("x", CHANCE)),
        interval_rows(dataset, "gain_logprob", "Gain over the log-probability", asked, Guide("x", 0.0)),
        interval_rows(dataset, "added", "Added to the question", asked, Guide("x", 0.0)),
    ]
    subtitles = (
        "", "", f"AUROC minus that of {LOGPROB_MIN}",
        f"stacked, minus {dataset.attrs.get('reference', '')}",
    )  # fmt: skip
    return [  # panels next to each other both have a legend, or neither, so that their rows are level
        replace(panel, subtitle=subtitle, categories=panel.categories if place < 2 else _unnamed(panel))
        for place, (panel, subtitle) in enumerate(zip(panels, subtitles, strict=True))
        if np.isfinite(panel.values).any()
    ]


def _unnamed(panel: Intervals) -> tuple[Category, ...]:
    """Colours without a name: another panel names them."""
    return tuple(replace(each, label="") for each in panel.categories)


def _risk_and_cost(dataset: xr.Dataset) -> list[Panel]:
    order = [row for row in ordered_rows(dataset) if np.isfinite(dataset["auroc"].values[row])]
    prr = interval_rows(dataset, "prr", "Prediction-rejection ratio", order, Guide("x", 0.0))
    auprc = interval_rows(
        dataset, "auprc", "Precision-recall", order, Guide("x", float(dataset["wrong"].values.mean()))
    )
    rows = [replace(panel, categories=_unnamed(panel)) for panel in (prr, auprc)]
    return [_risk(dataset), _legend(dataset, prr), *rows, *_times(dataset)]


def _legend(dataset: xr.Dataset, rows: Intervals) -> Legend:
    """The lines of the risk-coverage curves, and the kinds of scores."""
    lines = [
        Category(name, f"{name} ({COST_LABELS[cost]})", COST_COLOURS[cost], "dashed" if cost == "question" else "line")
        for cost, name in best_by_cost(dataset).items()
    ]
    return Legend("legend", (*lines, *(replace(kind, sign="dot") for kind in rows.categories)), "Lines and dots")


def _risk(dataset: xr.Dataset) -> Curves:
    """Of the best score of each cost, with a band for the cheapest."""
    curves = []
    x = 100 * dataset[COVERAGE].values.astype(float)
    for cost, name in best_by_cost(dataset).items():
        one = dataset.sel({DETECTOR: name})
        ends = {"low": one["risk_low"].values, "high": one["risk_high"].values} if cost == "answer" else {}
        style = "dashed" if cost == "question" else "line"
        curves.append(Curve(name, "", x, one["risk"].values, colour=COST_COLOURS[cost], style=style, **ends))
    top = float(np.nanmax([np.nanmax(curve.y if curve.high is None else curve.high) for curve in curves]))
    base = float(dataset["wrong"].values.mean())
    return Curves(
        "risk", "Risk among the answers given", tuple(curves), Axis("Answers given (%)", low=0.0, high=100.0),
        Axis("Share that is wrong", low=0.0, high=min(1.0, 1.1 * max(top, base))), guides=(Guide("y", base),),
    )  # fmt: skip


def _times(dataset: xr.Dataset) -> list[Panel]:
    """AUROC against time, where it was measured."""
    times = relative_seconds(dataset)
    kinds, costs = ([str(value) for value in dataset[coord].values] for coord in ("kind", "cost"))
    rows = [row for row, cost in enumerate(costs) if cost in times and np.isfinite(dataset["auroc"].values[row])]
    if not rows:
        return []
    names = tuple(str(dataset[DETECTOR].values[row]) for row in rows)
    used = [kind for kind in KINDS if kind in {kinds[row] for row in rows}]
    return [
        Scatter(
            "times", "AUROC and time", np.array([times[costs[row]] for row in rows]), dataset["auroc"].values[rows],
            Axis("Time of an answer with its score, over the answer alone", log=True), Axis("AUROC"), names=names,
            groups=tuple(used.index(kinds[row]) for row in rows),
            categories=tuple(Category(kind, "", KINDS[kind][1]) for kind in used),
            shown=tuple(names.index(name) for name in best_by_cost(dataset).values() if name in names),
            guides=(Guide("y", CHANCE),),
        )
    ]  # fmt: skip


def _notes(dataset: xr.Dataset, curves: bool) -> tuple[str, ...]:
    attrs = dataset.attrs
    text = f"{attrs['n_wrong']} wrong and {attrs['n_right']} correct answers"
    if attrs.get("samples"):
        text += f"; {attrs['samples']} samples per question"
    text += f". AUROC: mean over {attrs['folds']} folds. Lines: 95 % confidence interval; thin dashes: chance"
    if curves:
        return (
            f"{text}, or for risk and precision-recall the share of wrong answers. The best score of each cost is shown.",
        )
    return (f"{text}. Similar questions: {attrs['strata']}. What is not fitted can be below 0.5.",)
