"""What is drawn is what the numbers say: pixels of known cells against matplotlib's colours."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from headwise.figures import Axis, Category, CategoryMap, Figure, Heatmap, Legend, Mark, Scale, Tiles

GALLERY = runpy.run_path(str(Path(__file__).parents[1] / "figures" / "gallery.py"))["gallery"]()
Show = Callable[..., Any]
SOME = ("viridis", "RdBu_r", "Blues")
COLOUR_AT = """
async ([name, index, row, column]) => {
  const {layoutFigure} = await import("headwise/layout");
  const {cellBox} = await import("headwise/cell_grid");
  const {themeOf} = await import("headwise/colours");
  const root = document.querySelector(`#${name} .hw-figure`);
  const slot = layoutFigure(payloads[name], root.clientWidth, themeOf(root).font).slots[index];
  const {x, y, width, height} = cellBox(slot, row, column);
  const canvas = root.querySelectorAll(".hw-canvas")[index].querySelector("canvas");
  const data = canvas.getContext("2d").getImageData(x, y, width, height).data;
  const pixel = (left, top) => [...data.slice(4 * (top * width + left), 4 * (top * width + left) + 3)];
  const all = new Set(Array.from({length: width * height}, (_, place) => data.slice(4 * place, 4 * place + 3).join()));
  const corners = [pixel(0, 0), pixel(width - 1, 0), pixel(0, height - 1), pixel(width - 1, height - 1)];
  return {corners, colours: all.size, middle: pixel(width >> 1, height >> 1)};
}
"""


def head_map(values: np.ndarray, scale: str = "s", key: str = "map") -> Heatmap:
    rows, columns = values.shape
    heads, layers = (Axis(name, tuple(map(str, range(size)))) for name, size in (("Head", columns), ("Layer", rows)))
    return Heatmap(key, "A map", values, heads, layers, scale)


def steps(rows: int, columns: int) -> np.ndarray:
    return np.linspace(0, 1, rows * columns).reshape(rows, columns)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_cell_has_the_colour_of_its_number(show: Show, theme: str) -> None:
    values = steps(6, 4) * 0.98 + 0.02
    scales = {f"{name}{log}": Scale("number", 0.01, 1.0, name, log=log) for name in SOME for log in (False, True)}
    page = show({"one": Figure("One", tuple(head_map(values, key, key) for key in scales), 3, scales)}, theme=theme)
    for index, scale in enumerate(scales.values()):
        for row, column in ((0, 0), (2, 3), (5, 1), (5, 3)):
            seen = page.evaluate(COLOUR_AT, ["one", index, row, column])
            wanted = np.array(matplotlib.colormaps[scale.colours](scale.share(values[row, column]))[:3]) * 255
            assert seen["colours"] == 1, "a cell is one colour up to its edges"
            np.testing.assert_allclose(seen["corners"][3], wanted, atol=5)


def test_numbers_beyond_the_ends_have_the_colour_of_the_end(show: Show) -> None:
    values = np.array([[-3.0, 0.0], [1.0, 7.0]])
    page = show({"one": Figure("One", (head_map(values),), 1, {"s": Scale("number", 0.0, 1.0, over=True, under=True)})})
    low, zero, one, high = (
        page.evaluate(COLOUR_AT, ["one", 0, row, col])["middle"] for row in (0, 1) for col in (0, 1)
    )
    assert low == zero and one == high and low != high


def test_what_was_not_measured_is_a_texture(show: Show) -> None:
    values = steps(6, 4)
    values[2, 1] = np.nan
    page = show({"one": Figure("One", (head_map(values),), 1, {"s": Scale("number", 0.0, 1.0)})})
    assert page.evaluate(COLOUR_AT, ["one", 0, 2, 1])["colours"] > 1
    assert page.evaluate(COLOUR_AT, ["one", 0, 2, 2])["colours"] == 1


def test_marks_stand_on_their_cells(show: Show) -> None:
    panel = replace(head_map(np.zeros((6, 4))), marks=(Mark(1, 2), Mark(4, 0, sign="cross"), Mark(3, 3, ".50", "text")))
    page = show({"one": Figure("One", (panel,), 1, {"s": Scale("number", 0.0, 1.0)})})
    marked = {
        (row, col) for row in range(6) for col in range(4)
        if page.evaluate(COLOUR_AT, ["one", 0, row, col])["colours"] > 1
    }  # fmt: skip
    assert marked == {(1, 2), (4, 0), (3, 3)}


@pytest.mark.parametrize("shape", ["square", "dot"])
def test_categories_have_their_colours(show: Show, shape: str) -> None:
    values = np.array([[0, 1], [1, -1]])
    categories = (Category("a", "A", "#1f77b4"), Category("b", "B", "#ff7f0e"))
    axes = Axis("Layer", ("0", "1")), Axis("Head", ("0", "1"))
    page = show({"one": Figure("One", (CategoryMap("c", "C", values, categories, *axes, shape=shape),), 1)})
    assert page.evaluate(COLOUR_AT, ["one", 0, 0, 0])["middle"] == [0x1F, 0x77, 0xB4]
    assert page.evaluate(COLOUR_AT, ["one", 0, 1, 0])["middle"] == [0xFF, 0x7F, 0x0E]
    assert page.evaluate(COLOUR_AT, ["one", 0, 1, 1])["colours"] > 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_kind_of_panel_is_drawn(show: Show, theme: str) -> None:
    page = show(GALLERY, theme=theme)
    for name, figure in GALLERY.items():
        assert page.locator(f"#{name} .hw-canvas").count() == len(figure.panels)
        inked = page.evaluate(
            """(name) => [...document.querySelectorAll(`#${name} .hw-canvas > canvas:first-child`)].map((canvas) => {
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size; })""",
            name,
        )
        assert all(colours > 10 for colours in inked), (name, inked)


def test_a_narrow_window_has_fewer_columns_and_nothing_sticks_out(show: Show) -> None:
    page = show(GALLERY)
    tops = "() => [...document.querySelectorAll('#functions .hw-canvas')].map((stage) => stage.getBoundingClientRect().top)"
    assert len(set(page.evaluate(tops))) == 2
    page.set_viewport_size({"width": 420, "height": 800})
    page.wait_for_function(f"new Set(({tops})()).size >= 4")
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_a_change_of_theme_is_followed(show: Show) -> None:
    page = show({"one": GALLERY["companions"]})
    dark = """() => { const canvas = document.querySelector('#one .hw-canvas canvas');
      const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      let light = 0, seen = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) { seen += 1; light += data[i] > 150; }
      return light > seen / 2; }"""
    assert not page.evaluate(dark)
    page.evaluate(
        """() => { const root = document.documentElement; root.style.setProperty('--paper', '#111');
        root.style.setProperty('--ink', '#eee'); root.dataset.theme = 'dark'; }"""
    )
    page.wait_for_function(dark)


def test_every_sign_is_drawn_and_each_in_its_own_way(show: Show) -> None:
    signs = ("square", "frame", "dot", "line", "dashed", "ring", "cross", "pointer", "texture")
    legends = tuple(Legend(sign, (Category(sign, "", "#1f77b4", sign),)) for sign in signs)
    page = show({"one": Figure("Signs", legends, 4)})
    pictures = page.locator("#one .hw-canvas > canvas:first-child").evaluate_all(
        "(all) => all.map((canvas) => canvas.getContext('2d').getImageData(0, 0, 20, 40).data.join())"
    )
    blank = ",".join(["0"] * 20 * 40 * 4)
    assert len(set(pictures)) == len(signs) and blank not in pictures


def test_a_dot_is_a_small_mark(show: Show) -> None:
    panel = replace(head_map(np.ones((6, 4))), marks=(Mark(1, 2, sign="dot"), Mark(2, 2)))
    page = show({"one": Figure("One", (panel,), 1, {"s": Scale("number", 0.0, 1.0)})})
    dot, ring = (page.evaluate(COLOUR_AT, ["one", 0, row, 2]) for row in (1, 2))
    yellow = page.evaluate(COLOUR_AT, ["one", 0, 0, 0])["middle"]
    assert dot["middle"] == [0x1C, 0x1C, 0x1E] and ring["middle"] == yellow


WROTE = """
window.wrote = [];
const plain = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  wrote.push({text, size: parseFloat(this.font.match(/([\\d.]+)px/)[1])});
  return plain.call(this, text, ...rest);
};
"""


LONG = tuple(f"{word} {place} · study of heads" for place in range(11) for word in ("Semantic", "Logical"))


def named_maps() -> Figure:
    """Two maps whose 23 rows and columns have long names, as in the figure of agreement."""
    axis = Axis("", (*LONG, "a name that goes on and on, longer than any label can be"))
    maps = tuple(Heatmap(key, key, steps(23, 23), axis, axis, "s") for key in ("left", "right"))
    return Figure("Names", maps, 2, {"s": Scale("", 0, 1)})


def test_every_name_of_a_row_and_a_column_is_written(page: Any, show: Show) -> None:
    page.set_viewport_size({"width": 1030, "height": 900})
    page.add_init_script(WROTE)
    show({"one": named_maps()})
    wrote = page.evaluate("wrote")
    assert all(sum(one["text"] == name for one in wrote) >= 2 for name in LONG)  # once a row, once a column
    assert "a name that goes on and on, longer…" in {one["text"] for one in wrote}
    assert min(one["size"] for one in wrote) >= 9
    assert page.locator(".hw-names").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_phone_numbers_stand_for_long_names_and_the_figure_fits(page: Any, show: Show) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.add_init_script(WROTE)
    show({"one": named_maps()})
    wrote = [one["text"] for one in page.evaluate("wrote")]
    assert all(wrote.count(str(number)) >= 2 for number in range(1, 24))  # in both maps
    assert page.locator(".hw-names li").all_inner_texts()[:22] == list(LONG)
    grid = page.evaluate(
        "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('.hw-grid'))"
    )
    assert grid <= 0 and page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cell = page.evaluate(
        COLOUR_AT.replace(
            "payloads[name]",
            "(await import('headwise/layout')).numberNames(payloads[name], root.clientWidth, themeOf(root).font).payload",
        ),
        ["one", 0, 3, 5],
    )
    assert cell["colours"] == 1
    page.locator(".hw-canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert LONG[0] in page.locator(".hw-tooltip").inner_text() and LONG[1] in page.locator(".hw-tooltip").inner_text()
    page.set_viewport_size({"width": 1030, "height": 844})  # turned or enlarged: the names are back
    page.wait_for_function("document.querySelector('.hw-names').hidden")


def test_on_a_phone_tiles_are_large_enough_to_be_seen(page: Any, show: Show) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    levels = np.tile(np.arange(30 * 9, dtype=np.uint8)[:, None, None] % 200, (1, 8, 8))
    names = tuple(f"L{layer}H{head}" for head in range(9) for layer in range(30))
    tiles = Tiles(
        "t", "Tiles", levels, names, 30, "s", "", "Head", tuple(map(str, range(9))), "Layer", tuple(map(str, range(30)))
    )
    show({"one": Figure("Maps", (tiles,), 1, {"s": Scale("Weight", 0.0, 1.0, "Blues")})})
    window, content = (page.locator(f".hw-window{inner}").bounding_box() for inner in ("", " > div"))
    assert content["width"] / 30 >= 20 and content["height"] / 9 >= 20
    assert window["height"] >= content["height"] - 1 and window["width"] < 390  # scrolls sideways, inside the panel
    page.set_viewport_size({"width": 1030, "height": 844})
