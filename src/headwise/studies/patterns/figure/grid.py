"""The grid: every head's attention map as a small tile labelled L{l}H{h}, one panel a model, one above the other.

White is no weight, dark blue the high end of a scale that both panels share; what the mask hides is a texture. The
whole model stands in a grid of layers by heads, the longer of the two along the page; chosen heads stand in the order
they were given. Maps of many heads are made smaller by their largest weights, so that a panel keeps to about a million
pixels.

Source: the figure of Draye, Lei et al., arXiv 2512.05865.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, SUBJECT, head_name
from headwise.figures.figure import Figure
from headwise.figures.provenance import provenance_caption, provenance_of, with_model
from headwise.figures.scale import Scale
from headwise.figures.ticks import round_up
from headwise.figures.tiles import Tiles, pooled, to_levels
from headwise.studies.patterns.figure.subjects import Head, all_heads, chosen_heads, names_of, prompts_of, ranked_heads

USUAL = 24  # heads, where only the order was asked for
PIXELS = 1_200_000  # of a panel
SMALLEST, LARGEST = 16, 64  # pixels of a tile's side
ENOUGH = 0.995  # of the visible weights lie under the scale's high end
LOWEST_TOP = 0.2


def grid_figure(
    dataset: xr.Dataset, heads: Iterable[str] | str | None, top: int | None, by: str | None, average: bool
) -> Figure:
    """All heads, or those named, or the first ``top`` by a number."""
    everyone = heads is None and top is None and by is None
    chosen, told = _choice(dataset, heads, top, by)
    size = min(max(int(math.sqrt(PIXELS / len(chosen))), SMALLEST), LARGEST)
    maps = dataset["average" if average else "shown"]
    pictures = [_pictures(maps.isel({SUBJECT: place}), chosen, size) for place in range(maps.sizes[SUBJECT])]
    scale = _scale(pictures, average)
    names = names_of(dataset)
    panels = tuple(
        _panel(dataset, name, to_levels(picture, scale.low, scale.high), chosen, everyone, place)
        for place, (name, picture) in enumerate(zip(names, pictures, strict=True))
    )
    origin = provenance_of(dataset)
    return Figure(
        title=with_model(str(dataset.attrs.get("title") or "What the attention maps look like"), origin),
        panels=panels,
        columns=1,
        scales={"weight": scale},
        subtitle=told[:1].upper() + told[1:],
        notes=(_note(dataset, average, pictures[0].shape[-1]) + (f" Shown: {told}." if told else ""),),
        provenance=provenance_caption(origin),
    )


def _choice(
    dataset: xr.Dataset, heads: Iterable[str] | str | None, top: int | None, by: str | None
) -> tuple[list[Head], str]:
    """The heads to show, and in words which they are; nothing to say of all."""
    everyone = all_heads(dataset)
    if heads is not None:
        chosen = chosen_heads(dataset, heads)
        return chosen, f"{len(chosen)} of {len(everyone)} heads, as asked for"
    if top is None and by is None:
        return everyone, ""
    return ranked_heads(dataset, by, USUAL if top is None else top)


def _pictures(maps: xr.DataArray, heads: list[Head], size: int) -> np.ndarray:
    """(head, row, column), NaN where the mask hides."""
    values = maps.transpose(LAYER, HEAD, ...).values
    return np.stack([pooled(values[layer, head].astype(np.float32), size) for layer, head in heads])


def _scale(pictures: list[np.ndarray], average: bool) -> Scale:
    """From 0 to where nearly all weights lie: a row of one's own, the first, is always 1."""
    seen = np.concatenate([picture[np.isfinite(picture)] for picture in pictures])
    high = min(max(round_up(float(np.quantile(seen, ENOUGH))), LOWEST_TOP), 1.0)
    label = "Attention weight, mean over prompts" if average else "Attention weight"
    return Scale(label, 0.0, high, "Blues", over=bool(seen.max() > high * (1 + 1e-3)))


def _panel(dataset: xr.Dataset, name: str, levels: np.ndarray, heads: list[Head], everyone: bool, place: int) -> Tiles:
    """One subject. All heads in a grid of layers by heads, the longer side across; chosen ones one after the other."""
    layers, width = dataset.sizes[LAYER], dataset.sizes[HEAD]
    whole, upright = everyone and len(heads) == layers * width, layers >= width
    order = np.arange(len(heads))
    columns = min(len(heads), max(6, math.ceil(math.sqrt(2.2 * len(heads)))))
    rows_of, columns_of = ("", 0), ("", 0)
    if whole:
        columns = layers if upright else width
        order = order.reshape(layers, width).T.ravel() if upright else order
        sides = (("Head", width), ("Layer", layers))
        rows_of, columns_of = sides if upright else sides[::-1]
    return Tiles(
        key=str(dataset[SUBJECT].values[place]),
        title=name,
        levels=levels[order],
        names=tuple(head_name(*heads[index]) for index in order),
        columns=columns,
        scale="weight",
        row_name=rows_of[0],
        row_labels=_numbers(rows_of[1]),
        column_name=columns_of[0],
        column_labels=_numbers(columns_of[1]),
    )


def _numbers(size: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(size))


def _note(dataset: xr.Dataset, average: bool, pixels: int) -> str:
    if average:
        what = f"Each tile is one head's attention map, the average over {prompts_of(dataset)}"
        length = None
    else:
        tokens = [str(token) for token in dataset["token_text"].values]
        text = provenance_of(dataset).get("parameters", {}).get("prompt") or "".join(tokens)
        shown = text if len(text) <= 120 else f"{text[:119]}…"
        what, length = (
            f"Each tile is one head's attention map of the prompt “{shown}” ({len(tokens)} tokens)",
            len(tokens),
        )
    small = length is None or length > pixels
    pooled_note = f", drawn in {pixels} x {pixels} pixels by the largest weight in each" if small else ""
    return (
        f"{what}{pooled_note}. Rows are tokens that look, from the top; columns tokens that are looked at, from the left. "
        "White: no weight. Strokes: hidden by the mask."
    )
