"""What stands where in a figure, in words: panels, axes, colours with their meaning, ticks, legend, frames and rings.

Read from the `Figure` itself, so that the words and the drawing cannot disagree, for any study:

    layout(writer, atlas.figure("relations"))      # "Layout: 6 panels in 3 rows of 2: All Categories, a legend, ..."

Numbers are those of the figure (ticks, labels of cells), recorded with the source "edge".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from headwise.describe.writer import Description, Writer, listed
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Category, CategoryMap, Curves, Heatmap, Intervals, Legend, Panel, Scatter
from headwise.figures.scale import Scale
from headwise.figures.tiles import HIDDEN, Tiles

ENDS = {  # of the colour maps, in words
    "viridis": ("dark purple", "yellow"),
    "cividis": ("dark blue", "yellow"),
    "magma": ("black", "pale yellow"),
    "Blues": ("white", "dark blue"),
    "Greys": ("white", "black"),
    "RdBu_r": ("blue", "red"),
    "PuOr_r": ("purple", "orange"),
    "BrBG": ("brown", "green"),
}
NAMED_COLOURS = {
    "black": (0, 0, 0), "grey": (128, 128, 128), "light grey": (215, 215, 215), "blue": (31, 119, 180), "red": (214, 39, 40),
    "orange": (255, 127, 14), "green": (44, 160, 44), "purple": (148, 103, 189), "brown": (140, 86, 75),
    "pink": (227, 119, 194), "cyan": (23, 190, 207), "olive": (188, 189, 34), "ochre": (194, 144, 43),
    "dark grey": (61, 61, 61), "dark red": (163, 58, 92), "dark orange": (181, 80, 11),
}  # fmt: skip
MAX_TITLES = 12
MAX_KINDS = 3  # of axes
NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")


def layout(writer: Writer, figure: Figure) -> str:
    """One entry about the whole figure."""
    return "Layout: " + " ".join(
        sentence for part in (_panels, _axes, _scales, _signs) for sentence in part(writer, figure)
    )


def with_layout(words: Description, figure: Figure) -> Description:
    """The words, their axes beginning with the layout of the figure."""
    writer = Writer("")
    writer.add("axes", layout(writer, figure))
    first = writer.finish("")
    return replace(words, axes=(*first.axes, *words.axes), numbers=(*first.numbers, *words.numbers))


def colour_name(colour: str) -> str:
    """The nearest of a few plain names.

    >>> colour_name("#1f77b4"), colour_name("#31688e"), colour_name("#dcdcdc"), colour_name("#3d3d3d")
    ('blue', 'blue', 'light grey', 'dark grey')
    """
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))

    def distance(name: str) -> int:
        other = NAMED_COLOURS[name]
        return (red - other[0]) ** 2 + (green - other[1]) ** 2 + (blue - other[2]) ** 2

    return min(NAMED_COLOURS, key=distance)


def _said(writer: Writer, text: str) -> str:
    """A label of the figure, with the numbers in it recorded."""
    for found in NUMBER.findall(text):
        writer.label(found)
    return text.replace("\n", " ")


def _panels(writer: Writer, figure: Figure) -> Iterator[str]:
    titles = [_said(writer, "a legend" if isinstance(one, Legend) else one.title or one.key) for one in figure.panels]
    shown, count = titles[:MAX_TITLES], len(titles)
    rest = f" and {writer.label(str(count - len(shown)))} more" if count > len(shown) else ""
    comma = "; " if any("," in title for title in shown) else ", "
    names = comma.join(shown) + rest
    if count == 1:
        yield f"one panel, {names}."
        return
    columns = min(figure.columns, count)
    rows = -(-count // columns)
    grid = "side by side" if rows == 1 else "one above the other" if columns == 1 else ""
    grid = grid or f"in {writer.label(str(rows))} rows of {writer.label(str(columns))}"
    yield f"{writer.label(str(count))} panels {grid}: {names}."


def _axes(writer: Writer, figure: Figure) -> Iterator[str]:
    """The axes of each kind of panel, once for those that share them; where panels differ, each by its title."""
    titles: dict[str, list[str]] = {}  # what is said of the axes -> the panels that have them
    for panel in figure.panels:
        if isinstance(panel, Tiles):
            order = f", {panel.column_name.lower()} across, {panel.row_name.lower()} down" if panel.column_name else ""
            count = len(panel.names)
            tiles = f"{writer.label(str(count))} {'tile' if count == 1 else 'tiles'}"
            text = f"{tiles}, {writer.label(str(panel.columns))} to a row{order}"
        elif isinstance(panel, Heatmap | CategoryMap):
            text = f"{_cells(writer, panel.x, 'x')}, {_cells(writer, panel.y, 'y')}"
        elif isinstance(panel, Curves | Scatter):
            text = (
                f"x is {_said(writer, panel.x.name)}{' (logarithmic)' * panel.x.log}, y {_said(writer, panel.y.name)}"
            )
        elif isinstance(panel, Intervals):
            text = f"one row per entry, x is {_said(writer, panel.x.name)}"
        else:
            continue
        titles.setdefault(text, []).append(panel.title or panel.key)
    if len(titles) == 1:
        (text,) = titles
        yield f"{text[0].upper()}{text[1:]}."
        return
    for text, those in list(titles.items())[:MAX_KINDS]:
        where = f"{writer.label(str(len(those)))} panels" if len(those) > 1 else _said(writer, those[0])
        yield f"{where}: {text}."


def _cells(writer: Writer, axis: Axis, side: str) -> str:
    first, last = _said(writer, axis.labels[0]), _said(writer, axis.labels[-1])
    if first == last:
        return f"{side} is {axis.name} {first}"
    top = "from the top" if side == "y" else "from the left"
    return f"{side} is {axis.name or 'the entry'}, {first} to {last} {top}"


def _scales(writer: Writer, figure: Figure) -> Iterator[str]:
    """Colour bars: what they mean, their ends and ticks; scales alike but for their ticks are described once."""
    maps = [panel for panel in figure.panels if isinstance(panel, Heatmap | Tiles)]
    used = list(dict.fromkeys(panel.scale for panel in maps))
    if len(used) > 3:
        ends = listed(dict.fromkeys(" to ".join(ENDS[figure.scales[key].colours]) for key in used))
        yield f"Each map has a colour bar of its own ({ends}), so colours compare within a map only."
        return
    for key in used:
        count = sum(panel.scale == key for panel in maps)
        where = "for all maps" if len(used) == 1 and count > 1 else ""
        yield f"{_bar(writer, figure.scales[key], where)}."


def _bar(writer: Writer, scale: Scale, where: str) -> str:
    low, high = ENDS[scale.colours]
    ticks = [_said(writer, text) for _, text in scale.ticks()]
    middle = ", white in the middle" if scale.kind == "diverging" else ""
    log = ", logarithmic" if scale.log else ""
    label = f" of {_said(writer, scale.label)}" if scale.label else ""
    beyond = "; a plus or ≤ says that values lie beyond" if scale.over or scale.under else ""
    pointers = [f"{_said(writer, mark.label)} at {writer.number(mark.value, 'edge', digits=2)}" for mark in scale.marks]
    points = f"; pointer: {listed(pointers)}" if pointers else ""
    one = f"One colour bar {where}" if where else "Colour bar"
    return f"{one}{label}, from {low} to {high}{middle}{log}, ticks {listed(ticks)}{beyond}{points}"


def _signs(writer: Writer, figure: Figure) -> Iterator[str]:
    """Legend, frames, rings, texture."""
    for index, panel in enumerate(figure.panels):
        if isinstance(panel, Legend):
            where = f"after {_said(writer, figure.panels[index - 1].title)}" if index else "first"
            yield f"Legend ({where}): {listed(_meaning(writer, one) for one in panel.entries)}."
    frames = [
        (panel, frame) for panel in figure.panels if isinstance(panel, Heatmap | CategoryMap) for frame in panel.frames
    ]
    if frames:
        panel, frame = frames[0]
        x, y = panel.x.labels, panel.y.labels
        columns = [_said(writer, x[place]) for place in (frame.first_column, frame.last_column)]
        rows = [_said(writer, y[place]) for place in (frame.first_row, frame.last_row)]
        yield f"A black frame: {panel.x.name} {' to '.join(columns)}, {panel.y.name} {' to '.join(rows)}."
    holes = dict.fromkeys(panel.missing for panel in figure.panels if _has_holes(panel))
    if holes:
        yield f"Hatched: {listed(what if len(what) < 40 else 'no map' for what in holes)}."


def _meaning(writer: Writer, entry: Category) -> str:
    label = _said(writer, entry.label)
    how = colour_name(entry.colour) if entry.sign in ("square", "dot", "line", "dashed") else entry.sign
    return f"{label} ({how}{', dashed' if entry.sign == 'dashed' else ''})"


def _has_holes(panel: Panel) -> TypeGuard[Heatmap | CategoryMap | Tiles]:
    if isinstance(panel, Heatmap):
        return bool((panel.values != panel.values).any())
    if isinstance(panel, CategoryMap):
        return bool((panel.values < 0).any())
    return isinstance(panel, Tiles) and bool((panel.levels == HIDDEN).any())
