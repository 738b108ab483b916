"""The table of colours is matplotlib's, and loading it needs no matplotlib."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from headwise.figures import Scale, to_payload
from headwise.figures.colour_stops import STOPS, stops_of
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Heatmap
from headwise.figures.scale import COLOURS


@pytest.mark.parametrize("colours", COLOURS)
def test_the_stops_are_those_of_matplotlib(colours: str) -> None:
    drawn = matplotlib.colormaps[colours]
    assert stops_of(colours) == tuple(to_hex(drawn(place)) for place in np.linspace(0, 1, STOPS))


@pytest.mark.parametrize("colours", COLOURS)
def test_straight_lines_between_the_stops_stay_near(colours: str) -> None:
    places = np.linspace(0, 1, 1001)
    stops = np.array([to_rgb(stop) for stop in stops_of(colours)])
    lines = np.stack([np.interp(places, np.linspace(0, 1, STOPS), stops[:, channel]) for channel in range(3)], axis=1)
    apart = np.abs(lines - matplotlib.colormaps[colours](places)[:, :3]).max()
    assert apart <= 4.1 / 255


def test_a_payload_carries_the_colours_of_its_scales() -> None:
    cell = Axis("", ("0",))
    figure = Figure(
        "One", (Heatmap("one", "One", np.ones((1, 1)), cell, cell, "s"),), 1, {"s": Scale("", 0, 1, "magma")}
    )
    assert to_payload(figure)["scales"]["s"]["stops"] == list(stops_of("magma"))


def test_a_payload_is_made_without_matplotlib() -> None:
    code = "import sys, headwise.figures; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
