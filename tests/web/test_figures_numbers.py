"""The browser's rules for numbers are those of Python, and numbers are written for a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chromium import watched
from figure_pages import open_figures

from headwise.figures import Axis, Figure, Heatmap, Scale
from headwise.figures.ticks import thinned, tick_text

VALUES = [0.0, 1.0, -0.5, 0.004, 12000.0, 1e-6, 5e-5, 0.25, 999.9, -3.0, 123456.0, 0.00015, 2.5, 1e-4, 0.1 + 0.2]


@pytest.fixture(scope="module")
def ask(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Call a function of a module of the front end."""
    cell = Axis("", ("0",))
    figure = Figure("One", (Heatmap("m", "", [[1.0]], cell, cell, "s"),), 1, {"s": Scale("", 0, 1)})
    for page in watched(chromium):
        open_figures(page, tmp_path_factory.mktemp("numbers") / "figures.html", {"one": figure})

        def asked(module: str, function: str, *arguments: Any, page: Any = page) -> Any:
            script = "async ([module, name, list]) => (await import(module))[name](...list)"
            return page.evaluate(script, [f"headwise/{module}", function, list(arguments)])

        yield asked


def test_ticks_are_written_as_on_paper(ask: Callable[..., Any]) -> None:
    assert [ask("numbers", "tickText", value) for value in VALUES] == [tick_text(value) for value in VALUES]


def test_labels_thin_out_as_on_paper(ask: Callable[..., Any]) -> None:
    for size, most in ((30, 7), (80, 8), (9, 20), (64, 5), (1, 1), (15, 0), (1200, 9)):
        assert tuple(ask("numbers", "thinned", size, most)) == thinned([""] * size, most)


def test_round_ticks_lie_inside_and_are_few(ask: Callable[..., Any]) -> None:
    assert ask("numbers", "roundTicks", 0.4, 1.0) == [0.4, 0.6, 0.8, 1.0]
    assert ask("numbers", "roundTicks", 0, 1) == [0, 0.25, 0.5, 0.75, 1]
    assert ask("numbers", "roundTicks", 1.0, 0.0) == [0, 0.25, 0.5, 0.75, 1]
    for low, high in ((-0.37, 0.51), (0, 0.0015), (3, 29), (-5, -4.99), (0, 1e6)):
        ticks = ask("numbers", "roundTicks", low, high)
        assert 2 <= len(ticks) <= 5 and all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks), (low, high, ticks)


def test_logarithmic_ticks_are_round(ask: Callable[..., Any]) -> None:
    assert ask("numbers", "logTicks", 4, 64, True) == [4, 8, 16, 32, 64]
    assert ask("numbers", "logTicks", 0.01, 1, False) == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]
    assert ask("numbers", "logTicks", 1e-6, 1, False) == [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1]


def test_numbers_are_told_with_three_digits(ask: Callable[..., Any]) -> None:
    told = {
        0.70123: "0.701", 1.0: "1", -0.5: "−0.500", 12345.6: "12,346", 3.44e-7: "3.4 × 10⁻⁷", 0.00012345: "0.000123",
        270: "270",
    }  # fmt: skip
    assert {value: ask("numbers", "formatNumber", value) for value in told} == told
    assert ask("numbers", "formatNumber", None) == "–"


def test_colours_keep_their_contrast_on_dark_paper(ask: Callable[..., Any]) -> None:
    dark = {"dark": True, "paper": "#16171a"}
    assert ask("colours", "adaptColour", "#d9d9d9", {"dark": False, "paper": "#ffffff"}) == "#d9d9d9"
    faint, black = (
        ask("colours", "parseHex", ask("colours", "adaptColour", grey, dark)) for grey in ("#d9d9d9", "#222222")
    )
    assert max(faint) < 90 and min(black) > 200
    for colour in ("#1f77b4", "#31688e", "#440154", "#b5500b"):
        drawn = ask("colours", "luminance", ask("colours", "parseHex", ask("colours", "adaptColour", colour, dark)))
        paper = ask("colours", "luminance", ask("colours", "parseHex", "#16171a"))
        assert ask("colours", "contrast", drawn, paper) >= 3
