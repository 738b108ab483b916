"""Pointing at a figure: pointer, keyboard and touch end in the same words and the same heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from chromium import watched
from figure_pages import open_figures

from headwise.figures import Axis, Curve, Curves, Figure, Heatmap, Intervals, Mark, Scale, ScaleMark, Scatter

Show = Callable[..., Any]
PLACE = """
async ([index, row, column]) => {
  const {layoutFigure} = await import("headwise/layout");
  const {cellBox} = await import("headwise/cell_grid");
  const {themeOf} = await import("headwise/colours");
  const root = document.querySelector("#one .hw-figure");
  const {slots} = layoutFigure(payloads.one, root.clientWidth, themeOf(root).font);
  const {x, y, width, height} = cellBox(slots[index], row, column);
  const stage = root.querySelectorAll(".hw-canvas")[index].getBoundingClientRect();
  return [stage.left + x + width / 2, stage.top + y + height / 2];
}
"""
OUTLINED = """
() => [...document.querySelectorAll("#one .hw-canvas canvas:nth-child(2)")].map((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte > 0))
"""


def axis(name: str, size: int) -> Axis:
    return Axis(name, tuple(map(str, range(size))))


def two_maps() -> Figure:
    values = np.arange(30.0).reshape(6, 5) / 100
    values[0, 1] = np.nan
    extras = {
        "value": values, "low": values - 0.01, "high": values + 0.01, "q": np.full((6, 5), 3.4e-7),
        "effect": values, "effect_low": values / 2, "effect_high": values * 2,
    }  # fmt: skip
    first = Heatmap(
        "a",
        "First",
        values,
        axis("Head", 5),
        axis("Layer", 6),
        "s",
        extras=extras,
        marks=(Mark(2, 1),),
        missing="left out",
    )
    second = Heatmap("b", "Second", values.T, axis("Layer", 6), axis("Head", 5), "s")  # turned: the same heads
    third = Heatmap("c", "Third", values, axis("Token", 5), axis("Layer", 6), "s")  # no heads
    return Figure("Maps", (first, second, third), 3, {"s": Scale("Weight", 0.0, 0.3)})


def tip(page: Any) -> str:
    return str(page.locator("#one .hw-tooltip").inner_text())


def hover(page: Any, index: int, row: int, column: int) -> None:
    page.mouse.move(*page.evaluate(PLACE, [index, row, column]))


def test_a_cell_tells_its_head_its_number_and_every_extra(show: Show) -> None:
    page = show({"one": two_maps()})
    hover(page, 0, 4, 3)
    assert tip(page).split("\n") == [
        "L4H3", "First", "Weight", "0.230", "interval", "0.220 to 0.240", "q", "3.4 × 10⁻⁷",
        "effect", "0.230 (0.115 to 0.460)", "Click opens L4H3",
    ]  # fmt: skip
    hover(page, 0, 0, 1)
    assert "left out" in tip(page)
    hover(page, 2, 4, 3)
    assert tip(page).split("\n") == ["Layer 4 · Token 3", "Third", "Weight", "0.230"]


def test_the_same_head_is_outlined_in_its_other_maps_only(show: Show) -> None:
    page = show({"one": two_maps()})
    assert page.evaluate(OUTLINED) == [False, False, False]
    hover(page, 0, 4, 3)
    assert page.evaluate(OUTLINED) == [True, True, False]
    hover(page, 2, 4, 3)
    assert page.evaluate(OUTLINED) == [False, False, True]
    page.mouse.move(5, 5)
    assert page.evaluate(OUTLINED) == [False, False, False]
    assert not page.locator("#one .hw-tooltip").is_visible()


def test_pointing_does_not_draw_the_map_again(show: Show) -> None:
    page = show({"one": two_maps()})
    sign = "const c = document.querySelector('#one .hw-canvas canvas').getContext('2d');"
    page.evaluate(f"() => {{ {sign} c.fillStyle = '#123456'; c.fillRect(0, 0, 1, 1); }}")
    for row in range(6):
        hover(page, 0, row, 2)
    assert page.evaluate(f"() => {{ {sign} return [...c.getImageData(0, 0, 1, 1).data]; }}") == [0x12, 0x34, 0x56, 255]


def test_a_click_on_a_head_opens_it_and_any_cell_can_be_picked(show: Show) -> None:
    page = show({"one": two_maps()})
    page.mouse.click(*page.evaluate(PLACE, [1, 3, 5]))
    assert page.evaluate("heads") == ["L5H3"]
    page.mouse.click(*page.evaluate(PLACE, [2, 1, 2]))
    assert page.evaluate("heads") == ["L5H3"]
    assert page.evaluate("picks[1]") == {
        "panel": "c", "item": {"row": 1, "column": 2}, "name": "Layer 1 · Token 2", "head": None, "value": 0.07,
    }  # fmt: skip


def test_arrows_move_enter_opens_and_escape_leaves(show: Show) -> None:
    page = show({"one": two_maps()})
    page.keyboard.press("Tab")
    assert tip(page).startswith("L2H1"), "the keyboard starts at the marked cell"
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    assert tip(page).startswith("L3H1")
    assert (
        page.locator("#one [aria-live]").inner_text().startswith("L3H1, First; Weight 0.160; interval 0.150 to 0.170")
    )
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")  # at the edge it stays
    page.keyboard.press("Enter")
    assert page.evaluate("heads") == ["L3H4"]
    page.keyboard.press("Escape")
    assert not page.locator("#one .hw-tooltip").is_visible()
    assert page.evaluate("document.activeElement === document.body")


def test_a_first_tap_looks_and_a_second_opens(chromium: Any, tmp_path: Path) -> None:
    for page in watched(chromium, viewport={"width": 420, "height": 800}, has_touch=True, is_mobile=True):
        open_figures(page, tmp_path / "figures.html", {"one": two_maps()})
        place = page.evaluate(PLACE, [0, 4, 3])
        page.touchscreen.tap(*place)
        page.wait_for_selector("#one .hw-tooltip:not([hidden])")
        assert tip(page).startswith("L4H3") and page.evaluate("heads") == []
        page.touchscreen.tap(*place)
        page.wait_for_function("heads.length === 1")


def test_the_tooltip_never_leaves_the_window(show: Show) -> None:
    page = show({"one": two_maps()})
    page.set_viewport_size({"width": 420, "height": 420})
    page.wait_for_timeout(100)
    for index, row, column in ((0, 0, 0), (0, 0, 4), (0, 5, 0), (0, 5, 4), (1, 4, 5), (2, 5, 4)):
        page.evaluate("([, y]) => scrollBy(0, y - (y % 2 ? 20 : 400))", page.evaluate(PLACE, [index, row, column]))
        page.wait_for_timeout(60)
        hover(page, index, row, column)
        box = page.locator("#one .hw-tooltip").bounding_box()
        assert box["x"] >= 0 and box["y"] >= 0 and box["x"] + box["width"] <= 420 and box["y"] + box["height"] <= 420


def test_points_rows_and_curves_are_told(show: Show) -> None:
    curve_x = [0.0, 1.0, 2.0]
    panels = (
        Scatter("s", "Points", [0.1, 0.9], [0.2, 0.8], Axis("weights"), Axis("texts"), names=("L1H1", "L2H0")),
        Intervals("i", "Rows", [0.5, 0.7], [0.4, 0.6], [0.6, 0.8], Axis("AUROC"), Axis("", ("Length", "Headwise"))),
        Curves(
            "c", "Lines",
            (Curve("a", "A", curve_x, [1, 2, 3], [0, 1, 2], [2, 3, 4]), Curve("b", "B", curve_x, [3, 2, 1])),
            Axis("k"), Axis("Score"),
        ),
    )  # fmt: skip
    page = show({"one": Figure("Plots", panels, 3)})
    stages = page.locator("#one .hw-canvas")
    stages.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert tip(page).split("\n")[:6] == ["L2H0", "Points", "texts", "0.800", "weights", "0.900"]
    page.keyboard.press("Enter")
    assert page.evaluate("heads") == ["L2H0"]
    stages.nth(1).focus()
    page.keyboard.press("ArrowDown")
    assert tip(page).split("\n") == ["Headwise", "Rows", "AUROC", "0.700", "interval", "0.600 to 0.800"]
    stages.nth(2).focus()
    page.keyboard.press("ArrowRight")
    assert tip(page).split("\n") == ["k 1", "Lines", "A", "2 (1 to 3)", "B", "2"]


def test_an_element_holds_one_figure_and_lets_go_of_it(show: Show) -> None:
    page = show({"one": two_maps()})
    script = """async () => { const {drawFigure} = await import("headwise/figure"); const box = document.getElementById("one");
      drawFigure(box, payloads.one);
      const last = drawFigure(box, payloads.one, {heading: false, notes: false, describe: "Three maps."});
      const count = (what) => box.querySelectorAll(what).length;
      const seen = [count("figure"), count(".hw-title"), box.querySelector("p").textContent];
      last.point("L2H1"); last.remove(); return [...seen, box.children.length]; }"""
    assert page.evaluate(script) == [1, 0, "Three maps.", 0]
    page.set_viewport_size({"width": 500, "height": 500})  # nothing is left that would draw
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_timeout(60)


def test_a_figure_that_is_hidden_is_drawn_when_it_is_shown(show: Show) -> None:
    page = show({"one": two_maps()})
    page.evaluate(
        """async () => { const {drawFigure} = await import("headwise/figure"); const box = document.getElementById("one");
        box.hidden = true; window.handle = drawFigure(box, payloads.one); handle.point("L1H1"); box.hidden = false; }"""
    )
    page.wait_for_function("document.querySelector('#one .hw-canvas canvas').width > 100")


def test_a_scale_is_read_out_and_its_pointers_explain_themselves(show: Show) -> None:
    scale = Scale("Weight", 0.0, 0.2, over=True, marks=(ScaleMark(0.05, "uniform head"),))
    panel = Heatmap("a", "First", np.arange(30.0).reshape(6, 5) / 100, axis("Head", 5), axis("Layer", 6), "s")
    page = show({"one": Figure("One", (panel,), 1, {"s": scale})})
    stage = page.locator("#one .hw-canvas")
    assert "Weight from 0 to 0.2+; uniform head: 0.0500" in stage.get_attribute("aria-label")
    x, y = page.evaluate(PLACE, [0, 2, 4])
    cell = page.evaluate(PLACE, [0, 2, 3])
    page.mouse.move(x + (x - cell[0]) / 2 + 10, y)
    assert stage.get_attribute("title") == "uniform head: 0.0500"
    page.mouse.move(x, y)
    assert stage.get_attribute("title") == ""


def test_plots_without_data_are_drawn_and_have_nothing_to_tell(show: Show) -> None:
    panels = (
        Curves("c", "No lines", (), Axis("k"), Axis("Score")),
        Scatter("s", "No points", [], [], Axis("x", log=True), Axis("y")),
        Heatmap("m", "No numbers", np.full((2, 3), np.nan), axis("Head", 3), axis("Layer", 2), "s", missing="not run"),
    )
    page = show({"one": Figure("Empty", panels, 3, {"s": Scale("", 0.0, 1.0)})})
    for index in (0, 1):
        page.locator("#one .hw-canvas").nth(index).focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.locator("#one .hw-canvas").nth(index).hover()
        assert not page.locator("#one .hw-tooltip").is_visible()
    hover(page, 2, 1, 1)
    assert tip(page).split("\n")[:4] == ["L1H1", "No numbers", "value", "not run"]
