"""The pattern view in Chromium: its module is given a model as anywidget gives one, and the page is looked at."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

pytest.importorskip("anywidget", reason='anywidget is not installed (pip install "headwise[notebook]")')

from headwise.notebook import PatternView

MODULE = Path(__file__).parents[2] / "src/headwise/notebook/pattern_view.js"
TEXTS = ("title", "labels", "names", "columns", "grid", "side", "high", "colours", "chosen", "large_of")
BYTES = ("tiles", "large")
OPEN = """async ([code, state]) => {
  const view = (text) => new DataView(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  for (const name of ["tiles", "large"]) state[name] = view(state[name]);
  const heard = {};
  window.saved = [];
  window.model = {
    get: (name) => state[name],
    set: (name, value) => { state[name] = value; (heard[`change:${name}`] ?? []).forEach((act) => act()); },
    save_changes: () => saved.push(state.chosen),
    on: (name, act) => (heard[name] ??= []).push(act),
    off: (name, act) => { heard[name] = heard[name].filter((one) => one !== act); },
  };
  window.answer = (name, large) => { model.set("large", view(large)); model.set("large_of", name); };
  const module = await import("data:text/javascript;base64," + code);
  const el = document.body.appendChild(document.createElement("div"));
  const start = performance.now();
  window.close_view = module.default.render({ model, el });
  window.heard = heard;
  return performance.now() - start;
}"""


def show(page: Any, view: PatternView, **changes: Any) -> float:
    """Milliseconds until it was drawn."""
    state = {name: getattr(view, name) for name in TEXTS} | changes
    state |= {name: base64.b64encode(getattr(view, name)).decode() for name in BYTES}
    page.goto("about:blank")
    return page.evaluate(OPEN, [base64.b64encode(MODULE.read_bytes()).decode(), state])


def canvas(page: Any, which: str) -> Any:
    return page.get_by_label(re.compile({"grid": "Attention maps of all heads", "large": "The open head"}[which]))


def point(page: Any, which: str, x: float, y: float, *, click: bool = False) -> None:
    box = canvas(page, which).bounding_box()
    (page.mouse.click if click else page.mouse.move)(box["x"] + x, box["y"] + y)


def test_hover_says_query_key_and_weight(page, atlas):
    view = PatternView(atlas)
    show(page, view)
    values = np.frombuffer(view.large, "<f4").reshape(21, 21)
    cell, margin = min(460 // 21, 22), 86
    point(page, "large", margin + 3.5 * cell, margin + 9.5 * cell)
    said = page.locator(".reading").text_content()
    labels = [label.replace("\n", "\\n") for label in view.labels]
    assert said.startswith(f"query 9 “{labels[9]}” → key 3 “{labels[3]}”: weight ")
    assert float(said.rsplit(" ", 1)[1]) == pytest.approx(float(values[9, 3]), rel=0.01)
    point(page, "large", margin + 9.5 * cell, margin + 3.5 * cell)
    assert page.locator(".reading").text_content().endswith("masked")


def test_a_click_opens_a_head_and_python_answers(page, atlas):
    view = PatternView(atlas)
    show(page, view)
    side = view.side * max(1, round(26 / view.side)) + 2
    point(page, "grid", 26 + 2.5 * side, 32 + 1.5 * side, click=True)  # third column, second row
    assert page.evaluate("saved") == [view.names[view.columns + 2]] == ["L2H1"]
    assert "from the small map" in page.locator(".head").nth(1).text_content()
    view.chosen = "L2H1"
    page.evaluate("([name, large]) => answer(name, large)", ["L2H1", base64.b64encode(view.large).decode()])
    assert page.locator(".head").nth(1).text_content() == "L2H1rows are queries, columns are keys"


def test_without_a_kernel_the_small_map_tells_the_weight(page, atlas):
    view = PatternView(atlas)
    show(page, view, chosen="L1H0")  # nobody sends its map
    values = view.maps.whole("L1H0")
    canvas(page, "large").focus()
    for key in ("ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    found = re.fullmatch(
        r"query 1 .* → key 0 .*: weight (at least )?([\d.e-]+)", page.locator(".reading").text_content()
    )
    assert found is not None
    assert float(found[2]) == pytest.approx(min(float(values[1, 0]), view.high), abs=view.high / 254)


def test_keys_move_and_open(page, atlas):
    view = PatternView(atlas)
    show(page, view)
    canvas(page, "grid").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("saved") == ["L2H1"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")  # there is no row above
    assert page.locator(".reading").text_content() == "L2H0"


def test_tokens_stay_text(page, atlas):
    """The page fixture fails where an alert opened."""
    view = PatternView(atlas)
    show(page, view, title="<img src=x onerror=alert(2)>")
    assert page.locator("script, b, img").count() == 0
    assert page.locator(".tokens span").nth(1).text_content() == "<script>alert(1)</script>"


def test_the_text_is_shaded_by_where_a_token_looks(page, atlas):
    view = PatternView(atlas)
    show(page, view)
    page.locator(".tokens span").nth(9).click()
    values = np.frombuffer(view.large, "<f4").reshape(21, 21)
    shades = page.locator(".tokens span").evaluate_all(
        r"spans => spans.map(span => Number((span.style.background.match(/, ([\d.]+)\)$/) ?? [0, 0])[1]))"
    )
    expected = np.clip(np.nan_to_num(values[9]) / view.high, 0, 1) * 0.75
    assert shades == pytest.approx(expected.tolist(), abs=0.006)  # the browser keeps the shade in a byte
    assert page.locator(".tokens span.query").count() == 1


def test_pixels_are_those_of_the_scale(page, reading):
    view = PatternView(reading(3, 2), list("abcde"))
    show(page, view)
    cell = min(460 // 5, 22)
    pixel = canvas(page, "large").evaluate(
        "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3)",
        [86 + cell // 2, 86 + cell // 2],
    )
    place = 0.01 / view.high * 64
    stops = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in view.colours]
    low = int(place)
    expected = [a + (b - a) * (place - low) for a, b in zip(stops[low], stops[low + 1], strict=True)]
    assert pixel == pytest.approx(expected, abs=3)


def test_a_view_that_is_closed_listens_no_more(page, atlas):
    show(page, PatternView(atlas))
    assert page.evaluate("Object.values(heard).flat().length") == 5
    assert page.evaluate("close_view(), Object.values(heard).flat().length") == 0


def test_eighty_by_sixty_four_heads_are_drawn_in_time(page):
    layers, heads, tokens = 80, 64, 12
    weights = np.full((1, layers * heads, tokens, tokens), 0.05, dtype=np.float32)
    coords = {
        "layer": ("place", np.repeat(np.arange(layers), heads)),
        "head": ("place", np.tile(np.arange(heads), layers)),
    }
    dataset = xr.Dataset({"weights": (("example", "place", "query", "key"), weights)}, coords)
    assert show(page, PatternView(dataset, [str(i) for i in range(tokens)])) < 1500
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 1200  # wide grids scroll inside their own box


def test_nothing_of_the_style_leaves_the_view(page, atlas):
    page.goto("about:blank")
    before = "getComputedStyle(document.body.appendChild(document.createElement('canvas'))).display"
    outside = page.evaluate(before)
    show(page, PatternView(atlas))
    assert page.evaluate(before) == outside == "inline" and page.evaluate("document.head.children.length") == 0
