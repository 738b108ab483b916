"""The figure of the streaming study: how early can one tell that an answer is wrong, and do the probabilities hold?

Three panels: the AUROC of every score as the answer grows, with the level that the question alone reaches (``within``: among
answers to similar questions); what each score gains over the smallest log-probability on whole answers; and the reliability of
the probabilities of held-out answers. ``heads`` instead draws layer x head maps: the AUROC of each statistic of one head, after
the first token and of the whole answer. Only the points of the reliability curve are computed here.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, HEAD, LAYER, PREFIX, SHARE, STATISTIC
from headwise.core.errors import DataError
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Heatmap, Intervals, Legend, Panel
from headwise.figures.provenance import cell_names
from headwise.figures.scale import scale_around
from headwise.stats.reliability import reliability

COLOURS = ("#b5500b", "#376180", "#3d3d3d", "#30a073", "#8a50a5", "#8c8c8c")  # of the scores, in their order
QUESTION, CHANCE, ALPHA = "#a33a5c", 0.5, 0.05
EXTRAS = ("effect", "effect_low", "effect_high", "p", "q", "effect_within", "q_within")


def figure(dataset: xr.Dataset, *, heads: bool = False, within: bool = False) -> Figure:
    """Curves, or maps of single heads."""
    suffix = "_within" if within else ""
    if heads:
        return _head_maps(dataset, suffix)
    panels: list[Panel] = [_growth(dataset, suffix), _gains(dataset)]
    reliable = _reliability(dataset)
    return Figure(
        title=str(dataset.attrs.get("title", "")) + (", among similar questions" if within else ""),
        panels=(*panels, *([reliable] if reliable is not None else []), _legend(dataset)),
        columns=2,
        scales={},
        notes=_notes(dataset, within),
    )


def _growth(dataset: xr.Dataset, suffix: str) -> Curves:
    x = 100 * dataset[SHARE].values.astype(float)
    curves = []
    for row, name in enumerate(dataset[DETECTOR].values.astype(str)):
        one = dataset.isel({DETECTOR: row})
        y = one[f"auroc{suffix}"].values
        if not np.isfinite(y).any():
            continue
        shown = row in (0, _row(dataset, str(dataset.attrs["default"])))  # bands of all would hide each other
        curves.append(
            Curve(
                name, "", x, y,
                low=one[f"auroc{suffix}_low"].values if shown else None,
                high=one[f"auroc{suffix}_high"].values if shown else None,
                **_style(dataset, row),
            )
        )  # fmt: skip
    y_axis = Axis("AUROC", low=_floor(curves), high=1.0)
    title = "Among similar questions" if suffix else "As the answer grows"
    x_axis = Axis("Share of the answer written (%)", low=0.0, high=100.0)
    return Curves("growth", title, tuple(curves), x_axis, y_axis, guides=(Guide("y", CHANCE),))


def _style(dataset: xr.Dataset, row: int) -> dict[str, str]:
    """Colour and line of a score; dashed: the same at every share."""
    question = str(dataset["kind"].values[row]) == "question"
    flat = question or str(dataset[DETECTOR].values[row]) == "Length"
    return {"colour": QUESTION if question else COLOURS[row % len(COLOURS)], "style": "dashed" if flat else "line"}


def _legend(dataset: xr.Dataset) -> Legend:
    entries = []
    for row, name in enumerate(dataset[DETECTOR].values.astype(str)):
        style = _style(dataset, row)
        entries.append(Category(name, name, style["colour"], sign=style["style"]))
    return Legend("legend", tuple(entries))


def _floor(curves: list[Curve]) -> float:
    sides = [side for curve in curves for side in (curve.y, curve.low) if side is not None]
    smallest = float(np.nanmin(np.concatenate(sides)))
    return max(0.0, min(0.4, np.floor(10 * smallest - 1e-6) / 10))


def _row(dataset: xr.Dataset, name: str) -> int:
    return dataset[DETECTOR].values.astype(str).tolist().index(name)


def _gains(dataset: xr.Dataset) -> Intervals:
    """Over the smallest log-probability, on whole answers."""
    end = dataset.isel({SHARE: -1})
    rows = [row for row, name in enumerate(end[DETECTOR].values.astype(str)) if name != "Log-probability, min"]
    kinds = end["kind"].values.astype(str)
    used = [kind for kind in ("fitted", "score", "question") if kind in kinds[rows]]
    colours = {"fitted": COLOURS[0], "score": COLOURS[2], "question": QUESTION}
    return Intervals(
        key="gain",
        title="Gain over min log-probability",
        subtitle="whole answers, paired",
        values=end["gain"].values[rows],
        low=end["gain_low"].values[rows],
        high=end["gain_high"].values[rows],
        x=Axis("AUROC difference"),
        y=Axis("", tuple(str(end[DETECTOR].values[row]) for row in rows)),
        groups=tuple(used.index(kinds[row]) for row in rows),
        categories=tuple(Category(kind, kind, colours[kind]) for kind in used),
        guides=(Guide("x", 0.0),),
    )


def _reliability(dataset: xr.Dataset) -> Curves | None:
    """Of the score that is watched by default, and the fitted one."""
    curves = []
    for name in dict.fromkeys([str(dataset.attrs["default"]), str(dataset[DETECTOR].values[0])]):
        p = dataset["probability"].sel({DETECTOR: name}).values
        known = np.isfinite(p)
        try:
            found = reliability(p[known], dataset["wrong"].values[known], draws=1)
        except DataError:  # too few answers
            continue
        curves.append(
            Curve(
                name, "", found.predicted, found.observed, found.low, found.high, **_style(dataset, _row(dataset, name)),
            )
        )  # fmt: skip
    if not curves:
        return None
    axes = Axis("Probability of being wrong", low=0.0, high=1.0), Axis("Share that is wrong", low=0.0, high=1.0)
    return Curves("reliability", "Reliability, held-out answers", tuple(curves), *axes, guides=(Guide("diagonal"),))


def _head_maps(dataset: xr.Dataset, suffix: str) -> Figure:
    prefixes, statistics = (dataset[dim].values.astype(str) for dim in (PREFIX, STATISTIC))
    panels: list[Panel] = []
    for prefix in prefixes:
        for statistic in statistics:
            one = dataset.sel({PREFIX: prefix, STATISTIC: statistic}).transpose(LAYER, HEAD, ...)
            values = one[f"effect{suffix}"].values
            if not np.isfinite(values).any() or (values == CHANCE).all():
                continue  # the first row has no answer to look back from
            q = one[f"q{suffix}"].values
            count, measured = int((q < ALPHA).sum()), int(np.isfinite(q).sum())
            panels.append(
                Heatmap(
                    key=f"{prefix} {statistic}",
                    title=f"{one['label'].item()}, {prefix}",
                    subtitle=f"q < {ALPHA}: {count} of {measured} heads",
                    values=values,
                    x=Axis("Head", cell_names(one, HEAD)),
                    y=Axis("Layer", cell_names(one, LAYER)),
                    scale="effect",
                    extras={name: one[name].values for name in EXTRAS},
                )
            )
    strata = f" Similar questions: {dataset.attrs.get('strata')}." if suffix else ""
    return Figure(
        title="Single heads in the rows that emit wrong answers" + (", among similar questions" if suffix else ""),
        panels=tuple(panels),
        columns=min(3, len(panels)),
        scales={"effect": scale_around(dataset[f"effect{suffix}"].values, "AUROC", centre=CHANCE)},
        notes=(
            f"{dataset.attrs['n_wrong']} wrong and {dataset.attrs['n_right']} correct answers. AUROC above 0.5: larger in "
            f"wrong answers. q: Benjamini-Hochberg over the heads of a map.{strata}",
        ),
    )  # fmt: skip


def _notes(dataset: xr.Dataset, within: bool) -> tuple[str, ...]:
    attrs = dataset.attrs
    text = (
        f"{attrs['n_wrong']} wrong and {attrs['n_right']} correct answers; out of fold. Bands and lines: 95 % confidence "
        f"interval; 0 %: the first token alone. Watched by default: {attrs['default']}. Reliability: the "
        f"{int(dataset['held_out'].sum())} answers that no part was fitted on."
    )
    if within:
        text += f" Similar questions: {attrs.get('strata')}; fitted rows saw none of the stratum."
    return (text,)
