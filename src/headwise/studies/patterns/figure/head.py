"""One head, large: its attention map of the shown prompt with every token on both axes, the subjects side by side.

Equal tokens keep rows of their own: a row is a position, its label is the token's text.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, STATISTIC, SUBJECT, head_name
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Heatmap
from headwise.figures.provenance import provenance_caption, provenance_of, with_model
from headwise.figures.scale import Scale
from headwise.studies.patterns.figure.subjects import chosen_heads, names_of, prompts_of, token_labels

TOLD = ("diagonal", "first", "peak", "active")  # numbers written over a map


def head_figure(dataset: xr.Dataset, name: str) -> Figure:
    """One head of every subject."""
    (head, *_) = chosen_heads(dataset, name)
    labels = token_labels(dataset)
    maps = dataset["shown"].isel({LAYER: head[0], HEAD: head[1]}).values.astype(np.float32)
    panels = tuple(
        Heatmap(
            key=str(dataset[SUBJECT].values[place]),
            title=subject,
            subtitle=_numbers(dataset, place, head),
            values=maps[place],
            x=Axis("Token looked at", labels),
            y=Axis("Token that looks", labels),
            scale="weight",
            missing="hidden by the mask",
        )
        for place, subject in enumerate(names_of(dataset))
    )
    origin = provenance_of(dataset)
    return Figure(
        title=with_model(f"Attention of {head_name(*head)}", origin),
        panels=panels,
        columns=len(panels),
        scales={"weight": Scale("Attention weight", 0.0, 1.0, "Blues")},
        notes=(_note(dataset, head, len(labels)),),
        provenance=provenance_caption(origin),
    )


def _numbers(dataset: xr.Dataset, place: int, head: tuple[int, int]) -> str:
    one = dataset["value"].isel({SUBJECT: place, LAYER: head[0], HEAD: head[1]})
    return ", ".join(f"{key} {float(one.sel({STATISTIC: key})):.2g}" for key in TOLD)


def _note(dataset: xr.Dataset, head: tuple[int, int], rows: int) -> str:
    tokens = dataset.sizes["token"]
    pooled = f", {tokens} tokens in {rows} rows by the largest weight in each" if tokens > rows else ""
    text = f"Map of the shown prompt{pooled}; numbers above are means over {prompts_of(dataset)}. Strokes: hidden by the mask."
    if "similarity" in dataset:
        at = {LAYER: head[0], HEAD: head[1]}
        alike, other = (float(dataset[name].isel(at)) for name in ("similarity", "other"))
        text += f" Similarity of the two maps (1 − Jensen-Shannon, over the prompts): {alike:.2f}"
        text += f"; with the next head of the layer: {other:.2f}" if np.isfinite(other) else ""
        text += f"; with the first token counted as nowhere: {float(dataset['elsewhere'].isel(at)):.2f}."
    return text
