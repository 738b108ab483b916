"""The figures of the functions study: which heads carry which cognitive function?

- ``kind="maps"``: one layer x head map a function, layer 0 at the top, all on one colour scale that ends at a round cap; the
  last tick has a plus where heads lie beyond it. The eight published functions stand in two rows of four. A function that
  the probe does not tell from the others has no map, and its panel says so. ``value``: "magnitude" (the absolute
  importance), "importance" (with its sign), or "alone" (AUROC of a probe on the head alone: the second opinion).
- ``kind="sorted"``, ``"layers"``, ``"similarity"``, ``"probe"``, ``"confusion"``: see `companions`.

Source: Ma et al., arXiv 2512.10978. Nothing is computed here beyond scales, counts and correlations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import xarray as xr

from headwise.core.dims import FUNCTION, HEAD, LAYER, SEED
from headwise.core.errors import StudyError, did_you_mean
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Heatmap
from headwise.figures.provenance import cell_names, provenance_caption, provenance_of, with_model
from headwise.figures.scale import Scale, scale_around, scale_over
from headwise.studies.functions.figure.companions import COMPANIONS, TITLES
from headwise.studies.functions.figure.grid import columns_for, shown_functions

KINDS = ("maps", *COMPANIONS)
VALUES = {"magnitude": "Head importance", "importance": "Head importance, signed", "alone": "AUROC of the head alone"}
EXTRAS = ("importance", "importance_low", "importance_high", "importance_sd", "null_high", "q", "alone", "alone_q")
CLIP = 0.99  # the cap is the round number over this share of all heads' values
CHANCE = 0.5


def figure(
    dataset: xr.Dataset,
    *,
    kind: str = "maps",
    value: str = "magnitude",
    functions: Iterable[str] | str | None = None,
    cap: float | None = None,
) -> Figure:
    """Maps of all functions (or of those named), or one of the companions; ``cap``: where the colour scale ends."""
    if kind not in KINDS:
        raise StudyError(f"The functions figure has no kind {kind!r}. {did_you_mean(kind, KINDS)}")
    if value not in VALUES:
        raise StudyError(f"The functions figure cannot show {value!r}. {did_you_mean(value, VALUES)}")
    if cap is not None and not (math.isfinite(cap) and cap > 0):
        raise StudyError(f"The cap of the colour scale is {cap}; give a number above 0, such as 0.004.")
    chosen = dataset.sel({FUNCTION: shown_functions(dataset, functions, "The functions study")})
    origin = provenance_of(dataset)
    title = with_model(TITLES.get(kind) or dataset.attrs.get("title") or "Functions of heads", origin)
    if kind != "maps":
        parts = COMPANIONS[kind](chosen)
        return Figure(
            title, parts.panels, parts.columns, parts.scales, notes=parts.notes, provenance=provenance_caption(origin)
        )
    panels = tuple(_map(chosen.sel({FUNCTION: name}), str(name), value) for name in chosen[FUNCTION].values)
    scales = {value: scale_of(chosen, value, cap)}
    notes = (_meaning(dataset, value), _probe(dataset))
    return Figure(title, panels, columns_for(len(panels)), scales, notes=notes, provenance=provenance_caption(origin))


def scale_of(dataset: xr.Dataset, value: str = "magnitude", cap: float | None = None) -> Scale:
    """The colour scale that all maps share."""
    values = dataset[value].values
    if value == "alone":
        finite = values[np.isfinite(values)]
        return Scale(VALUES[value], CHANCE, 1.0, "viridis", under=bool((finite < CHANCE).any()))
    if value == "importance":
        found = scale_around(values, VALUES[value], clip=CLIP)
    else:
        found = scale_over(values, VALUES[value], clip=CLIP)
    if cap is not None:
        beyond = values[np.isfinite(values)]
        low = -cap if value == "importance" else 0.0
        over, under = bool((beyond > cap).any()), bool((beyond < low).any())
        found = Scale(VALUES[value], low, cap, found.colours, over, under)
    return replace(found, decimals=_decimals(found))


def _decimals(scale: Scale) -> int:
    """So many that the cap is written with two digits, 0.004 as 0.0040, and no tick is rounded."""
    least = max(0, 1 - math.floor(math.log10(scale.high) + 1e-9))
    ticks = [place for place, _ in scale.ticks()]
    exact = (count for count in range(least, least + 4) if all(math.isclose(round(t, count), t) for t in ticks))
    return next(exact, least)


def _map(one: xr.Dataset, name: str, value: str) -> Heatmap:
    one = one.transpose(LAYER, HEAD, ...)
    refused = bool(one["refused"]) and value != "alone"
    extras = {key: one[key].values for key in EXTRAS if key != value}
    return Heatmap(
        key=name,
        title=name,
        subtitle=_subtitle(one, value),
        values=one[value].values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale=value,
        extras=extras,
        missing=f"No map: {one['reason'].item()}" if refused else "not measured",
    )


def _subtitle(one: xr.Dataset, value: str) -> str:
    if value == "alone":
        q = one["alone_q"].values
        return f"q < 0.05: {int((q < 0.05).sum())} of {int(np.isfinite(q).sum())} heads"
    said = f"AUROC {float(one['auroc']):.2f}"
    if bool(one["refused"]):
        return said
    count = int(one["elbow"])
    return f"{said}\n{count} {'head' if count == 1 else 'heads'} to the elbow"


def _meaning(dataset: xr.Dataset, value: str) -> str:
    if value == "alone":
        return (
            "Each cell: AUROC of a linear probe that sees this head alone and tells the function from the others, "
            "cross-validated. q: Benjamini-Hochberg over the heads, against shuffled labels."
        )
    sign = "absolute value of the " if value == "magnitude" else ""
    return (
        f"Each cell: {sign}gradient x activation of the function's logit over the head's features, mean over held-out "
        f"steps of the function and over {dataset.sizes[SEED]} seeds of a probe that sees all heads. AUROC: of that probe, "
        "the function against the others."
    )


def _probe(dataset: xr.Dataset) -> str:
    low, high = float(dataset["probe_accuracy_low"]), float(dataset["probe_accuracy_high"])
    return (
        f"{int(dataset['train'].sum())} steps to learn from, {int(dataset['held_out'].sum())} held out: the probe names the "
        f"function of {float(dataset['probe_accuracy']):.2f} of these ({low:.2f} to {high:.2f}); the most frequent function "
        f"would get {float(dataset['majority']):.2f}, shuffled labels get {float(dataset['permuted']):.2f}, the answer's "
        f"length and kind of first token alone {float(dataset['confound_accuracy']):.2f}."
    )
