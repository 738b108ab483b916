"""The pattern view: every head's attention map small, one large with its tokens; hover for query, key and weight.

Python holds the maps of one text, from an atlas or from a reading of `Patterns`, and sends the small tiles at once (bytes on
a colour scale, as in `figures.tiles`); the large map is sent when a head is selected (``chosen``, from either side). 30 x 9
heads take some hundred kB as tiles and 280 MB as maps of 512 tokens. Heads of a whole model form a grid of layers by heads,
the longer side across.

Where no kernel runs, as in a notebook exported as a page, the tile replaces the large map: exact to 1/254 of the scale where
the text has no more tokens than the tile has pixels (33 for 30 x 9 heads), pooled beyond.

The browser half is one ES module, ``pattern_view.js``, without imports: anywidget passes its text alone to the page, so the
explorer's module names ("headwise/tile_grid") would not resolve. Nothing is fetched from the network.

Cost: some hundred kB for 30 x 9 heads, 1.3 MB for 80 x 64; a large map is 4 T² bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.dims import CONDITION, EXAMPLE, HEAD, KEY, LAYER, PLACE, QUERY, head_name
from headwise.core.errors import DataError, did_you_mean
from headwise.core.provenance import public_name
from headwise.figures.colour_stops import stops_of
from headwise.figures.tiles import pooled, scale_end, to_levels
from headwise.studies.patterns.figure import row_tokens

COLOURS = "Blues"
MAX_TILE_PIXELS = 300_000  # of all tiles together, so that 30 x 9 heads fit on a page
MIN_TILE_SIDE, MAX_TILE_SIDE = 16, 64  # pixels


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """Heads by name, in the order of the grid."""

    names: tuple[str, ...]
    values: np.ndarray  # (head, query, key), NaN where masked
    labels: tuple[str, ...]  # one per map row: a token, or the first and last of a token range
    columns: int
    grid: tuple[str, str] = ("", "")  # names of the grid's rows and columns, for a whole model

    @classmethod
    def of_atlas(cls, atlas: Atlas, *, condition: int = 0) -> HeadMaps:
        """The shown prompt of the patterns study."""
        dataset = atlas["patterns"]
        count = dataset.sizes[CONDITION]
        if not 0 <= condition < count:
            raise DataError(
                f"The atlas has patterns of {count} conditions, 0 to {count - 1}; there is no condition {condition}."
            )
        shown = dataset["shown"].isel({CONDITION: condition}).transpose(LAYER, HEAD, QUERY, KEY).values
        layers, heads = shown.shape[:2]
        head_indices = [(layer, head) for layer in range(layers) for head in range(heads)]
        return cls._arranged(head_indices, shown.reshape(-1, *shown.shape[2:]), row_tokens(dataset))

    @classmethod
    def of_reading(cls, dataset: xr.Dataset, tokens: Sequence[str], *, example: int = 0) -> HeadMaps:
        """A reading of the instrument `Patterns`, one example, with its tokens."""
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
                "the model read, as model.tokens(text) does."
            )
        head_indices = list(zip(weights[LAYER].values.tolist(), weights[HEAD].values.tolist(), strict=True))
        unpadded = weights.values[:, : len(tokens), : len(tokens)]  # the rest is padding
        return cls._arranged(head_indices, unpadded, tuple(tokens))

    @classmethod
    def _arranged(cls, head_indices: list[tuple[int, int]], values: np.ndarray, labels: tuple[str, ...]) -> HeadMaps:
        measured = [i for i in range(len(head_indices)) if np.isfinite(values[i]).any()]
        head_indices = [head_indices[i] for i in measured]
        layers, heads = (len({index[side] for index in head_indices}) for side in (0, 1))
        whole = len(head_indices) == layers * heads and len(head_indices) > 1
        upright = layers >= heads
        order = sorted(
            range(len(head_indices)), key=lambda i: head_indices[i][::-1] if whole and upright else head_indices[i]
        )
        columns = (
            (layers if upright else heads)
            if whole
            else min(len(head_indices), max(6, math.ceil(math.sqrt(2.2 * len(head_indices)))))
        )
        grid = (("Head", "Layer") if upright else ("Layer", "Head")) if whole else ("", "")
        names = tuple(head_name(*head_indices[i]) for i in order)
        return cls(names, values[measured][order], labels, columns, grid)

    def high(self) -> float:
        """The high end of the colour scale: nearly all weights are below."""
        return scale_end(self.values.astype(np.float32))

    def tiles(self, high: float) -> np.ndarray:
        """(head, side, side) bytes, max-pooled where a map is larger than its tile."""
        side = min(max(int(math.sqrt(MAX_TILE_PIXELS / len(self.names))), MIN_TILE_SIDE), MAX_TILE_SIDE)
        return np.stack([to_levels(pooled(weights.astype(np.float32), side), 0.0, high) for weights in self.values])

    def whole(self, name: str) -> np.ndarray:
        """One head's map, float32."""
        return np.ascontiguousarray(self.values[self.names.index(name)], dtype="<f4")


class PatternView(anywidget.AnyWidget):
    """A widget. ``view.chosen = "L12H3"`` selects the head that is shown large.

    Args:
        source: an atlas with the study `patterns`, or a reading of the instrument `Patterns`.
        tokens: of a reading's text, as ``model.tokens(text)`` gives them; an atlas has its own.
        example: which text of a reading.
        condition: which of an atlas's two models.
        title: over the maps.
        **options: of the widget, as anywidget takes them.

    Examples:
        >>> view = PatternView(atlas)
        >>> view.chosen = "L3H2"
        >>> view
        <PatternView: 36 heads, 21 tokens, L3H2 open>
    """

    _esm = Path(__file__).with_name("pattern_view.js")

    title = traitlets.Unicode().tag(sync=True)
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)  # one per map row
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)  # one per head
    columns = traitlets.Int(1).tag(sync=True)
    grid = traitlets.List(traitlets.Unicode()).tag(sync=True)  # names of the grid's rows and columns
    side = traitlets.Int(1).tag(sync=True)  # pixels per tile side
    tiles = traitlets.Bytes().tag(sync=True)  # (head, side, side): 0 ... 254 on the scale, 255 masked
    high = traitlets.Float(1.0).tag(sync=True)
    colours = traitlets.List(traitlets.Unicode()).tag(sync=True)
    chosen = traitlets.Unicode().tag(sync=True)
    large = traitlets.Bytes().tag(sync=True)  # float32 of the chosen head, NaN masked
    large_of = traitlets.Unicode().tag(sync=True)  # the head that `large` belongs to

    def __init__(
        self,
        source: Atlas | xr.Dataset,
        tokens: Sequence[str] | None = None,
        *,
        example: int = 0,
        condition: int = 0,
        title: str = "",
        **options: Any,
    ) -> None:
        self.maps = _maps(source, tokens, example, condition)
        high = self.maps.high()
        tiles = self.maps.tiles(high)
        super().__init__(
            title=title or _title(source),
            labels=list(self.maps.labels),
            names=list(self.maps.names),
            columns=self.maps.columns,
            grid=list(self.maps.grid),
            side=tiles.shape[-1],
            tiles=tiles.tobytes(),
            high=high,
            colours=list(stops_of(COLOURS)),
            **options,
        )
        self.chosen = self.names[0]

    @traitlets.validate("chosen")
    def _known_head(self, proposal: Any) -> str:
        name = str(proposal["value"])
        if name and name not in self.names:
            raise DataError(f"This view has no head {name!r}. {did_you_mean(name, self.names)}")
        return name

    @traitlets.observe("chosen")
    def _open(self, change: Any) -> None:
        """Send the whole map of the chosen head, in one message with its name."""
        if change["new"]:
            with self.hold_sync():
                self.large = self.maps.whole(change["new"]).tobytes()
                self.large_of = change["new"]

    def __repr__(self, **_: Any) -> str:
        return f"<PatternView: {len(self.names)} heads, {len(self.labels)} tokens, {self.chosen} open>"


def _title(source: Any) -> str:
    return public_name(str(source.provenance("patterns").model.get("id") or "")) if isinstance(source, Atlas) else ""


def _maps(source: Any, tokens: Sequence[str] | None, example: int, condition: int) -> HeadMaps:
    if isinstance(source, Atlas):
        return HeadMaps.of_atlas(source, condition=condition)
    if isinstance(source, xr.Dataset):
        if tokens is None:
            raise DataError("A reading has no tokens of its own; give them: PatternView(reading, model.tokens(text)).")
        return HeadMaps.of_reading(source, tokens, example=example)
    raise DataError(
        f"A pattern view shows an atlas or a reading of Patterns, not a {type(source).__name__}; for a model and a text there "
        "is headwise.notebook.look(model, text)."
    )
