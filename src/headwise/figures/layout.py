"""The layout of a page: the position of every panel, label and colour bar, in inches from the lower left corner.

The page is as wide as a paper's text block and as high as its contents need. Nothing is drawn here. Panels of a grid are
equally wide, and as high as they want to be (cells near square, within limits). A panel writes its tick labels only where
its neighbour does not already say the same, and a scale has one colour bar: next to the last panel that uses it, or, when
all maps share one scale, once at the right of the whole grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.figures.panels import Axis, CategoryMap, Curves, Heatmap, Intervals, Legend, Panel, Scatter
from headwise.figures.text_metrics import line_height, text_width, wrap
from headwise.figures.ticks import tick_text
from headwise.figures.tiles import Tiles

if TYPE_CHECKING:
    from headwise.figures.figure import Figure

# points
TITLE, SUBTITLE, PANEL_TITLE, SMALL, NOTE = 9.0, 7.0, 7.0, 5.6, 5.6
# inches
MARGIN, GAP, BAR, BAR_GAP, TICK = 0.08, 0.10, 0.065, 0.045, 0.05
ROW_GAP = 0.08
SHORTEST, TALLEST, NARROWEST, WIDEST = 0.35, 2.1, 0.3, 2.6
LARGEST_TILE, LARGEST = 1.25, 5.2  # a tile; a map of tokens by tokens, all of which are named
FLATTEST = 1.6  # width of a cell over its height, where the height is at its limit


@dataclass(frozen=True)
class Box:
    """A rectangle on the page."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def top(self) -> float:
        return self.bottom + self.height


@dataclass(frozen=True)
class Slot:
    """One panel on the page: its box, its colour bar, and which of its sides are labelled."""

    panel: Panel
    box: Box
    bar: Box | None
    labelled_x: bool
    labelled_y: bool
    titles_top: float  # the same for all panels of a row
    title: tuple[str, ...]
    subtitle: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """The whole page."""

    width: float
    height: float
    slots: tuple[Slot, ...]
    shared_bar: Box | None
    title: tuple[str, ...]
    subtitle: tuple[str, ...]
    notes: tuple[str, ...]


def lay_out(figure: Figure, *, width: float = 7.2) -> Page:
    """Plan the page of a figure."""
    return _Plan(figure, width).page()


def upright(labels: tuple[str, ...]) -> bool:
    """Whether labels are written along the axis; longer ones are turned."""
    return all(len(label) <= 3 for label in labels)


class _Plan:
    def __init__(self, figure: Figure, width: float) -> None:
        self.figure, self.columns = figure, min(figure.columns, len(figure.panels))
        self.rows = math.ceil(len(figure.panels) / self.columns)
        large = any(map(_is_large, figure.panels))
        self.tallest = LARGEST if large else TALLEST if self.rows > 1 else 1.3 * TALLEST
        self.bars, self.is_shared = _bars(figure)
        self.gutters = [self._largest_in(self._gutter, column=c) for c in range(self.columns)]
        self.bar_rooms = [self._largest_in(self._bar_room, column=c) for c in range(self.columns)]
        self.shared_room = 0.0
        if self.is_shared:
            (key,) = {panel.scale for panel in figure.panels if isinstance(panel, Heatmap | Tiles)}
            self.shared_room = GAP + self._bar_width(key) + line_height(SMALL) * 1.3
        self.widest = max(NARROWEST, *map(self._widest, figure.panels))
        self.widest = self.widest if large else min(self.widest, WIDEST)
        self._share_out(width)
        self.width = _even(self._fixed() + self.panel_width * self.columns)

    def _fixed(self) -> float:
        """What the panels themselves do not take of the width."""
        rooms = sum(self.gutters) + sum(self.bar_rooms) + self.shared_room
        return 2 * MARGIN + rooms + GAP * (self.columns - 1)

    def _share_out(self, width: float) -> None:
        """Panels as wide as there is room for. A legend may need more than a panel: then its column gets it.

        Not so a legend that ends the figure before its last column: nothing is to the right of it.
        """
        last = len(self.figure.panels) - 1
        for _ in range(3):
            wide = (width - self._fixed()) / self.columns
            self.panel_width = min(max(wide, NARROWEST), self.widest)
            for index, panel in enumerate(self.figure.panels):
                column = index % self.columns
                if isinstance(panel, Legend) and (index < last or column == self.columns - 1):
                    self.bar_rooms[column] = max(self.bar_rooms[column], legend_width(panel) - self.panel_width)

    def _widest(self, panel: Panel) -> float:
        """Cells of a map get no flatter than they must, unless a word of its title would be cut."""
        if isinstance(panel, Heatmap | CategoryMap):
            rows, columns = panel.values.shape
            names = 0.0 if upright(panel.x.labels) else (columns + 1) * SMALL * 1.15 / 72  # all of them, turned
            if _is_large(panel):
                return min(max(names, WIDEST), LARGEST)
            word = max((text_width(word, PANEL_TITLE * 1.08) for word in panel.title.split()), default=0.0)
            return max(FLATTEST * self.tallest * columns / rows, names, word, 0.7)
        if isinstance(panel, Tiles):
            return max(panel.columns * LARGEST_TILE, WIDEST)
        return 0.0 if isinstance(panel, Legend) else WIDEST

    def page(self) -> Page:
        figure, room = self.figure, self.width - 2 * MARGIN
        title, subtitle = wrap(figure.title, room, TITLE * 1.08), wrap(figure.subtitle, room, SUBTITLE)
        notes = tuple(line for note in (*figure.notes, figure.provenance) for line in wrap(note, 0.97 * room, NOTE))
        self.titles = [self._titles(index) for index in range(len(figure.panels))]
        heights = [max(self._height(figure.panels[index]) for index in self._row(row)) for row in range(self.rows)]
        above = [max(self._above(index) for index in self._row(row)) for row in range(self.rows)]
        foot = max(self._foot(index) for index in self._row(self.rows - 1))
        top_room = MARGIN + len(title) * line_height(TITLE) + len(subtitle) * line_height(SUBTITLE) + 0.06
        notes_room = MARGIN + len(notes) * line_height(NOTE) + (0.08 if notes else 0.0)
        height = _even(top_room + sum(above) + sum(heights) + foot + notes_room)
        slots, top = [], height - top_room
        for row in range(self.rows):
            top -= above[row]
            titles_top = top + max(self._titles_height(index) for index in self._row(row))
            slots += [self._slot(index, top, titles_top) for index in self._row(row)]
            top -= heights[row]
        shared = None
        if self.is_shared:
            first, last = slots[0].box, slots[-1].box
            tall = min(first.top - last.bottom, TALLEST)
            middle = (first.top + last.bottom) / 2
            shared = Box(self.width - MARGIN - self.shared_room + GAP, middle - tall / 2, BAR * 1.2, tall)
        return Page(self.width, height, tuple(slots), shared, title, subtitle, notes)

    def _slot(self, index: int, top: float, titles_top: float) -> Slot:
        panel, column = self.figure.panels[index], index % self.columns
        left = (
            MARGIN + sum(self.gutters[: column + 1]) + sum(self.bar_rooms[:column]) + column * (self.panel_width + GAP)
        )
        height = self._height(panel)
        box = _on_grid(Box(left, top - height, self.panel_width, height), panel)
        bar = Box(box.right + BAR_GAP, box.bottom, BAR, box.height) if index in self.bars else None
        return Slot(panel, box, bar, self._labelled_x(index), self._labelled_y(index), titles_top, *self.titles[index])

    def _row(self, row: int) -> range:
        return range(row * self.columns, min((row + 1) * self.columns, len(self.figure.panels)))

    def _largest_in(self, measure: Callable[[int], float], *, column: int) -> float:
        return max(measure(index) for index in range(column, len(self.figure.panels), self.columns))

    def _titles(self, index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        panel, column = self.figure.panels[index], index % self.columns
        if isinstance(panel, Legend):
            return (), ()
        room = self.panel_width + self.bar_rooms[column]
        return wrap(panel.title, room, PANEL_TITLE * 1.08), wrap(panel.subtitle, room, SMALL)

    def _above(self, index: int) -> float:
        """What must fit between a panel and the one above it: that one's labels, then its own titles."""
        own = self._titles_height(index)
        return own if index < self.columns else self._foot(index - self.columns) + ROW_GAP + own

    def _titles_height(self, index: int) -> float:
        title, subtitle = self.titles[index]
        room = 0.04 if title or subtitle else 0.0
        return len(title) * line_height(PANEL_TITLE) + len(subtitle) * line_height(SMALL) + room

    def _height(self, panel: Panel) -> float:
        if isinstance(panel, Heatmap | CategoryMap):
            rows, columns = panel.values.shape
            return min(max(self.panel_width * rows / columns, SHORTEST), self.tallest)
        if isinstance(panel, Tiles):
            return self.panel_width * panel.rows / panel.columns
        if isinstance(panel, Curves):
            return max(0.72 * self.panel_width, 0.8, len(panel.y.labels) * line_height(SMALL))
        if isinstance(panel, Scatter):
            return max(self.panel_width, 0.8)
        if isinstance(panel, Intervals):
            rows = len(panel.y.labels) + (1.4 if len(panel.categories) > 1 else 0.2)  # the names of groups need a row
            return max(rows * line_height(SMALL) * 1.3, 0.8)
        return len(panel.entries) * line_height(SMALL) * 1.3 + line_height(PANEL_TITLE)

    def _neighbour(self, index: int) -> Panel | None:
        return self.figure.panels[index] if 0 <= index < len(self.figure.panels) else None

    def _labelled_y(self, index: int) -> bool:
        own = _axis(self.figure.panels[index], "y")
        return index % self.columns == 0 or own is None or _axis(self._neighbour(index - 1), "y") != own

    def _labelled_x(self, index: int) -> bool:
        own = _axis(self.figure.panels[index], "x")
        return own is None or _axis(self._neighbour(index + self.columns), "x") != own

    def _gutter(self, index: int) -> float:
        panel = self.figure.panels[index]
        if isinstance(panel, Legend) or not self._labelled_y(index):
            return (
                text_width("0.0", SMALL) if isinstance(panel, Intervals) else 0.0
            )  # the ends of two axes side by side
        if isinstance(panel, Tiles):
            name = line_height(SMALL + 0.6) if panel.row_name else 0.0
            return name + max((text_width(label, SMALL) + TICK for label in panel.row_labels), default=0.0)
        name = line_height(SMALL + 0.6) if panel.y.name else 0.0
        if isinstance(panel, Curves | Scatter) and not panel.y.labels:
            finest = tick_text((panel.y.high or 0.0) / 4)  # what a tick of a short axis looks like
            return name + max(text_width("0.0000", SMALL), text_width(finest, SMALL)) + TICK
        return name + max(text_width(label, SMALL) for label in panel.y.labels) + TICK

    def _foot(self, index: int) -> float:
        panel = self.figure.panels[index]
        if isinstance(panel, Legend) or not self._labelled_x(index):
            return 0.02
        if isinstance(panel, Tiles):
            return (line_height(SMALL + 0.6) + line_height(SMALL) + TICK) if panel.column_labels else 0.02
        name = line_height(SMALL + 0.6) if panel.x.name else 0.0
        if isinstance(panel, Curves | Scatter | Intervals) or upright(panel.x.labels):
            return name + line_height(SMALL) + TICK
        return name + max(text_width(label, SMALL) for label in panel.x.labels) + TICK

    def _bar_width(self, key: str) -> float:
        return BAR_GAP + BAR + 0.045 + max(text_width(text, SMALL) for _, text in self.figure.scales[key].ticks())

    def _bar_room(self, index: int) -> float:
        panel = self.figure.panels[index]
        if index not in self.bars or not isinstance(panel, Heatmap | Tiles):
            return 0.0
        return self._bar_width(panel.scale) + (line_height(SMALL) if bar_label(self.figure, panel) else 0.0)


def _even(inches: float) -> float:
    return math.ceil(inches * 720) / 720


def _on_grid(box: Box, panel: Panel) -> Box:
    """Edges of cells at hundredths of a point: two decimals less for each of the thousands of corners in a file."""
    if not isinstance(panel, Heatmap | CategoryMap):
        return box
    rows, columns = panel.values.shape
    left, top = round(box.left * 720) / 720, round(box.top * 720) / 720
    width = math.floor(box.width / columns * 7200) / 7200 * columns
    height = math.floor(box.height / rows * 7200) / 7200 * rows
    return Box(left, top - height, width, height)


def legend_width(panel: Legend) -> float:
    lines = [line for entry in panel.entries for line in entry.label.split("\n")]
    return max(
        0.17 + max((text_width(line, SMALL) for line in lines), default=0.0),
        text_width(panel.title, PANEL_TITLE * 1.08),
    )


def bar_label(figure: Figure, panel: Heatmap | Tiles) -> str:
    """What is written along a panel's own bar: the scale's label, unless the panel says it already."""
    label = figure.scales[panel.scale].label
    return "" if label.lower() in f"{panel.title} {panel.subtitle}".lower() else label


def _is_large(panel: Panel) -> bool:
    """Panels that take the room there is: tiles, and maps of tokens by tokens."""
    if isinstance(panel, Heatmap):
        return panel.x.labels == panel.y.labels and not upright(panel.x.labels)
    return isinstance(panel, Tiles)


def _axis(panel: Panel | None, side: str) -> Axis | None:
    """The axis a neighbour can rely on: that of a map, or the rows of intervals."""
    shared = (Heatmap, CategoryMap, Intervals) if side == "y" else (Heatmap, CategoryMap)
    return getattr(panel, side) if isinstance(panel, shared) else None


def _bars(figure: Figure) -> tuple[frozenset[int], bool]:
    """The panels that have a colour bar next to them, and whether there is one bar for the whole grid instead."""
    last: dict[str, int] = {}
    maps = [(index, panel) for index, panel in enumerate(figure.panels) if isinstance(panel, Heatmap | Tiles)]
    for index, panel in maps:
        last[panel.scale] = index
    if len(last) == 1 and len(maps) > 1:
        return frozenset(), True
    return frozenset(last.values()), False
