"""Attention maps of one text, ready to be looked at: from an atlas that kept some, or from what an instrument has read.

Each head becomes a small tile (bytes on a colour scale, as in `figures.tiles`) and keeps its whole map, which a view asks for
one at a time: the tiles of 30 x 9 heads are some hundred kB, their maps of 512 tokens 280 MB. Heads of a whole model stand in
a grid of layers by heads, the longer side across.

This module does not know any widget, nor how maps are measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.dims import EXAMPLE, HEAD, KEY, LAYER, PLACE, QUERY, SUBJECT, head_name
from headwise.core.errors import DataError
from headwise.figures.patterns.subjects import row_tokens
from headwise.figures.ticks import round_up
from headwise.figures.tiles import pooled, to_levels

__all__ = ["Maps"]

PIXELS = 300_000  # of all tiles, so that 30 x 9 heads stand beside each other on a page
SMALLEST, LARGEST = 16, 64  # pixels of a tile's side
ENOUGH, LOWEST_TOP = 0.995, 0.2  # share of the visible weights under the scale's high end; the least that end may be


@dataclass(frozen=True, eq=False)
class Maps:
    """Heads by name, in the order of the grid."""

    names: tuple[str, ...]
    values: np.ndarray  # (head, query, key), NaN: hidden by the mask
    labels: tuple[str, ...]  # one a row of a map: a token, or the ends of a stretch of tokens
    columns: int
    grid: tuple[str, str] = ("", "")  # what rows and columns of the grid are, where it is a whole model

    @classmethod
    def of_atlas(cls, atlas: Atlas, *, subject: int = 0) -> Maps:
        """The shown prompt of the patterns study."""
        dataset = atlas["patterns"]
        count = dataset.sizes[SUBJECT]
        if not 0 <= subject < count:
            raise DataError(
                f"The atlas has patterns of {count} subjects, 0 to {count - 1}; there is no subject {subject}."
            )
        shown = dataset["shown"].isel({SUBJECT: subject}).transpose(LAYER, HEAD, QUERY, KEY).values
        layers, heads = shown.shape[:2]
        places = [(layer, head) for layer in range(layers) for head in range(heads)]
        return cls._arranged(places, shown.reshape(-1, *shown.shape[2:]), row_tokens(dataset))

    @classmethod
    def of_reading(cls, dataset: xr.Dataset, tokens: Sequence[str], *, example: int = 0) -> Maps:
        """What the instrument `Patterns` has read, of one example, with its tokens."""
        missing = (
            {EXAMPLE, PLACE, QUERY, KEY} - set(map(str, dataset["weights"].dims))
            if "weights" in dataset
            else {"weights"}
        )
        if missing:
            raise DataError(
                "These are not attention maps: a reading of Patterns has `weights` over (example, place, query, key); "
                "give seen['patterns'], or an atlas."
            )
        if not 0 <= example < dataset.sizes[EXAMPLE]:
            raise DataError(f"The reading has {dataset.sizes[EXAMPLE]} examples; there is no example {example}.")
        weights = dataset["weights"].isel({EXAMPLE: example}).transpose(PLACE, QUERY, KEY)
        size = weights.sizes[QUERY]
        if weights.sizes[KEY] != size or len(tokens) > size or not len(tokens):
            raise DataError(
                f"There are {len(tokens)} tokens for maps of {size} x {weights.sizes[KEY]}; give the tokens of the text that "
                "the model was shown, as model.tokens(text) does."
            )
        places = list(zip(weights[LAYER].values.tolist(), weights[HEAD].values.tolist(), strict=True))
        kept = weights.values[:, : len(tokens), : len(tokens)]  # beyond the tokens is padding
        return cls._arranged(places, kept, tuple(tokens))

    @classmethod
    def _arranged(cls, places: list[tuple[int, int]], values: np.ndarray, labels: tuple[str, ...]) -> Maps:
        there = [index for index in range(len(places)) if np.isfinite(values[index]).any()]
        places = [places[index] for index in there]
        layers, heads = (len({place[side] for place in places}) for side in (0, 1))
        whole = len(places) == layers * heads and len(places) > 1
        upright = layers >= heads
        order = sorted(
            range(len(places)), key=lambda index: places[index][::-1] if whole and upright else places[index]
        )
        columns = (
            (layers if upright else heads)
            if whole
            else min(len(places), max(6, math.ceil(math.sqrt(2.2 * len(places)))))
        )
        grid = (("Head", "Layer") if upright else ("Layer", "Head")) if whole else ("", "")
        names = tuple(head_name(*places[index]) for index in order)
        return cls(names, values[there][order], labels, columns, grid)

    def high(self) -> float:
        """Where the colour scale ends: nearly all weights lie below."""
        seen = self.values[np.isfinite(self.values)].astype(np.float32)
        return min(max(round_up(float(np.quantile(seen, ENOUGH))), LOWEST_TOP), 1.0)

    def tiles(self, high: float) -> np.ndarray:
        """(head, side, side) bytes, pooled by the largest weight where a map is larger than its tile."""
        side = min(max(int(math.sqrt(PIXELS / len(self.names))), SMALLEST), LARGEST)
        return np.stack([to_levels(pooled(one.astype(np.float32), side), 0.0, high) for one in self.values])

    def whole(self, name: str) -> np.ndarray:
        """One head's map, float32."""
        return np.ascontiguousarray(self.values[self.names.index(name)], dtype="<f4")
