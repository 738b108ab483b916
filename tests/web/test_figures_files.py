"""A figure as an SVG file: well-formed, with the right colours, and everything from the data stays text."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from headwise.figures import Axis, Category, Curve, Curves, Figure, Heatmap, Legend, Mark, Scale, Scatter, Tiles
from headwise.figures.colour_stops import stops_of

GALLERY = runpy.run_path(str(Path(__file__).parents[1] / "figures" / "gallery.py"))["gallery"]()
SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert(1)</script>"
CLOSING = "</script><img src=x onerror=alert(2)>"
TO_SVG = "async (name) => (await import('headwise/svg_export')).toSvg(payloads[name])"
Show = Callable[..., Any]


def nasty_figure() -> Figure:
    labels = (NASTY, CLOSING, "&amp;", "\x00\x1b tab")
    tokens = Axis(NASTY, labels)
    panels = (
        Heatmap(
            "m", NASTY, np.arange(16.0).reshape(4, 4), tokens, tokens, "s", CLOSING, marks=(Mark(0, 0, NASTY),), missing=NASTY,
            extras={NASTY: np.ones((4, 4))},
        ),
        Curves("c", NASTY, (Curve("a", NASTY, [0, 1], [0, 1]), Curve("b", CLOSING, [0, 1], [1, 0])), tokens, Axis(CLOSING)),
        Scatter("p", NASTY, [0, 1], [0, 1], Axis(NASTY), Axis(CLOSING), names=(NASTY, CLOSING), shown=(0, 1)),
        Tiles("t", NASTY, np.zeros((2, 3, 3), dtype=np.uint8), (NASTY, CLOSING), 2, "s"),
        Legend("l", (Category("x", NASTY),), CLOSING),
    )  # fmt: skip
    return Figure(
        NASTY, panels, 2, {"s": Scale(NASTY, 0.0, 16.0)}, CLOSING, notes=(NASTY,), alt=CLOSING, provenance=NASTY
    )


def test_markup_in_data_stays_text_on_the_page(show: Show) -> None:
    page = show({"one": nasty_figure()})
    assert page.locator("#one .hw-title").inner_text() == NASTY
    assert page.locator("#one script, #one img").count() == 0
    page.locator("#one .hw-canvas").first.focus()
    assert NASTY in page.locator("#one .hw-tooltip").inner_text()
    assert page.locator("#one .hw-tooltip script, #one .hw-tooltip img").count() == 0


def test_markup_in_data_stays_text_in_the_file(show: Show) -> None:
    svg = show({"one": nasty_figure()}).evaluate(TO_SVG, "one")
    root = ElementTree.fromstring(svg.encode())
    assert not root.findall(f".//{SVG}script")
    assert NASTY in {text.text for text in root.iter(f"{SVG}text")}
    assert "<script" not in svg and not re.search(r"<img|<foreignObject", svg)


def test_every_figure_is_a_well_formed_file(show: Show) -> None:
    page = show(GALLERY)
    for name, figure in GALLERY.items():
        check_file(ElementTree.fromstring(page.evaluate(TO_SVG, name).encode()), figure)


def check_file(root: ElementTree.Element, figure: Figure) -> None:
    said = " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    assert root.findtext(f"{SVG}title") == figure.title
    for panel in figure.panels:
        assert all(word in said for word in panel.title.split())
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    used = re.findall(r"url\(#(\w+)\)", ElementTree.tostring(root, encoding="unicode"))
    assert len(ids) == len(set(ids)) and set(used) <= set(ids)


def test_cells_of_the_file_have_the_colours_of_their_numbers_and_tell_them(show: Show) -> None:
    values = np.array([[0.0, 0.25], [1.0, np.nan]])
    panel = Heatmap("m", "Map", values, Axis("Head", ("0", "1")), Axis("Layer", ("0", "1")), "s")
    figure = Figure(
        "One", (panel,), 1, {"s": Scale("Weight", 0.0, 1.0, "viridis", over=True)}, provenance="model · seed 0"
    )
    root = ElementTree.fromstring(show({"one": figure}).evaluate(TO_SVG, "one").encode())
    told = {
        rect.find(f"{SVG}title").text: rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None
    }
    assert set(told) == {
        "L0H0, Map; Weight 0", "L0H1, Map; Weight 0.250", "L1H0, Map; Weight 1", "L1H1, Map; Weight not measured",
    }  # fmt: skip
    stops = stops_of("viridis")
    for name, stop in (("L0H0, Map; Weight 0", 0), ("L0H1, Map; Weight 0.250", 16), ("L1H0, Map; Weight 1", 64)):
        np.testing.assert_allclose(to_rgb(told[name].get("fill")), to_rgb(stops[stop]), atol=2 / 255)
    assert told["L1H1, Map; Weight not measured"].get("fill").startswith("url(#texture")
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "1+" in texts and "Weight" in texts and "model · seed 0" in texts
    left, right = (float(told[name].get("x")) for name in ("L0H0, Map; Weight 0", "L0H1, Map; Weight 0.250"))
    assert left + float(told["L0H0, Map; Weight 0"].get("width")) == right


def test_dashes_bands_and_points_reach_the_file(show: Show) -> None:
    root = ElementTree.fromstring(show({"one": GALLERY["companions"]}).evaluate(TO_SVG, "one").encode())
    assert any(path.get("stroke-dasharray") == "6 4" for path in root.iter(f"{SVG}path"))
    assert any(path.get("fill-opacity") == "0.2" for path in root.iter(f"{SVG}path"))
    assert sum(circle.get("r") == "3" for circle in root.iter(f"{SVG}circle")) == 192
