"""The pattern view: every head's attention map small, one large with its tokens; hover for query, key and weight.

Python holds the maps and sends the tiles at once; the large map is sent when a head is chosen (``chosen``, from either side).
Where no kernel answers, as in a notebook saved as a page, the tile stands in for it: exact to 1/254 of the scale where the
text has no more tokens than the tile pixels (33 for 30 x 9 heads), pooled beyond.

The browser's half is one ES module, ``pattern_view.js``, whole and without imports: anywidget gives the page its text alone, so
that names such as the explorer's ("headwise/tiles") would not be found, and a notebook needs maps by message, not by address.
Nothing is fetched from anywhere.

Cost: some hundred kB for 30 x 9 heads, 1.3 MB for 80 x 64; a large map is 4 T² bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.errors import DataError, did_you_mean
from headwise.figures.colour_stops import stops_of
from headwise.notebook.maps import Maps

__all__ = ["PatternView"]

COLOURS = "Blues"


class PatternView(anywidget.AnyWidget):
    """A widget. ``view.chosen = "L12H3"`` opens a head, and says which one is open.

    Args:
        source: an atlas with the study `patterns`, or a reading of the instrument `Patterns`.
        tokens: of a reading's text, as ``model.tokens(text)`` gives them; an atlas has its own.
        example: which text of a reading.
        subject: which of an atlas's two models.
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
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)  # one a row of a map
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)  # one a head
    columns = traitlets.Int(1).tag(sync=True)
    grid = traitlets.List(traitlets.Unicode()).tag(sync=True)  # what rows and columns of the grid are
    side = traitlets.Int(1).tag(sync=True)  # pixels of a tile
    tiles = traitlets.Bytes().tag(sync=True)  # (head, side, side): 0 ... 254 on the scale, 255 hidden
    high = traitlets.Float(1.0).tag(sync=True)
    colours = traitlets.List(traitlets.Unicode()).tag(sync=True)
    chosen = traitlets.Unicode().tag(sync=True)
    large = traitlets.Bytes().tag(sync=True)  # float32 of the chosen head, NaN hidden
    large_of = traitlets.Unicode().tag(sync=True)  # whose `large` is

    def __init__(
        self,
        source: Atlas | xr.Dataset,
        tokens: Sequence[str] | None = None,
        *,
        example: int = 0,
        subject: int = 0,
        title: str = "",
        **options: Any,
    ) -> None:
        self.maps = _maps(source, tokens, example, subject)
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
        """The whole map of the head that was chosen, in one message with its name."""
        if change["new"]:
            with self.hold_sync():
                self.large = self.maps.whole(change["new"]).tobytes()
                self.large_of = change["new"]

    def __repr__(self, **_: Any) -> str:
        return f"<PatternView: {len(self.names)} heads, {len(self.labels)} tokens, {self.chosen} open>"


def _title(source: Any) -> str:
    return str(source.provenance("patterns").model.get("id", "")) if isinstance(source, Atlas) else ""


def _maps(source: Any, tokens: Sequence[str] | None, example: int, subject: int) -> Maps:
    if isinstance(source, Atlas):
        return Maps.of_atlas(source, subject=subject)
    if isinstance(source, xr.Dataset):
        if tokens is None:
            raise DataError("A reading has no tokens of its own; give them: PatternView(reading, model.tokens(text)).")
        return Maps.of_reading(source, tokens, example=example)
    raise DataError(
        f"A pattern view shows an atlas or a reading of Patterns, not a {type(source).__name__}; for a model and a text there "
        "is headwise.notebook.look(model, text)."
    )
