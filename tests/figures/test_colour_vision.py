"""Every figure for readers who lack one kind of cone: what only colours tell apart stays apart, and ramps keep their order.

Colour vision deficiencies are simulated by the matrices of Machado, Oliveira and Fernandes, A Physiologically-based Model for
Simulation of Color Vision Deficiency (IEEE TVCG 15, 2009), severity 1, on linear RGB. Distances are in CIELAB (D65), where
about 2.3 is just noticeable; 10 is what we ask for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from synthetic.atlas import MAKERS
from synthetic.circuits import circuits_dataset
from synthetic.samples import samples
from synthetic.sparsity import sparsity_dataset
from synthetic.transfer import transfer

from headwise.figures import CategoryMap, Curves, Figure, Intervals, Legend
from headwise.figures.colour_stops import _TABLE, stops_of
from headwise.figures.training import COLOURS as OF_TRAINING
from headwise.studies.present import figures_on_page, has_figure
from headwise.studies.registry import datasets

VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(  # of linear sRGB, over the white point D65
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
) / np.array([[0.95047], [1.0], [1.08883]])
APART = 10.0  # of two categories, and of values a quarter of a ramp apart
SAME_STUDIES = {
    "circuits": circuits_dataset,
    "samples": samples,
    "sparsity": sparsity_dataset,
    "transfer": transfer,
}
DIVERGING = ("RdBu_r", "PuOr_r", "BrBG")


def lab(colour: str, vision: str = "normal") -> np.ndarray:
    """A colour in CIELAB, as somebody with this vision sees it."""
    encoded = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    share = XYZ @ np.clip(VISION[vision] @ linear, 0, 1)
    bent = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * bent[1] - 16, 500 * (bent[0] - bent[1]), 200 * (bent[1] - bent[2])])


def distance(one: str, other: str, vision: str) -> float:
    """Between two colours, for somebody with this vision."""
    return float(np.linalg.norm(lab(one, vision) - lab(other, vision)))


def told_apart_by_colour(figure: Figure) -> Iterator[set[str]]:
    """Colours that mean different things in one panel, and nothing but the colour says which."""
    for panel in figure.panels:
        if isinstance(panel, Curves):
            for style in {curve.style for curve in panel.curves}:
                yield {curve.colour for curve in panel.curves if curve.style == style}
        elif isinstance(panel, Legend):
            for sign in {entry.sign for entry in panel.entries} - {"frame", "ring", "cross", "pointer", "texture"}:
                yield {entry.colour for entry in panel.entries if entry.sign == sign}
        elif isinstance(panel, CategoryMap):
            yield {panel.categories[index].colour for index in np.unique(panel.values) if index >= 0}
        elif isinstance(panel, Intervals):
            yield {panel.categories[group].colour for group in panel.groups if panel.categories}


def closest(colours: set[str], vision: str) -> tuple[float, tuple[str, ...]]:
    pairs = itertools.combinations(sorted(colours), 2)
    return min(((distance(*pair, vision), pair) for pair in pairs), default=(np.inf, ()))


@pytest.fixture(scope="module")
def figures() -> dict[str, list[Figure]]:
    """The figures on the page of every study with a page."""
    made: dict[str, Any] = {name: make(8, 6) for name, make in MAKERS.items()}
    made |= {name: make() for name, make in SAME_STUDIES.items()}
    assert {name for name, spec in datasets().items() if has_figure(name) and spec.has_page} <= made.keys()
    return {name: [figure for _, figure in figures_on_page(name, dataset)] for name, dataset in made.items()}


def test_the_simulation_takes_away_what_it_should():
    assert distance("#ff0000", "#00ff00", "normal") > 150
    red_and_green = distance("#c23b22", "#5f7d1c", "normal")  # of about the same lightness
    assert distance("#c23b22", "#5f7d1c", "deuteranopia") < red_and_green / 3
    assert distance("#1f77b4", "#1f9e77", "tritanopia") < distance("#1f77b4", "#1f9e77", "normal") / 2
    for vision in VISION:
        assert distance("#ffffff", "#000000", vision) == pytest.approx(100, abs=0.1)
        assert distance("#808080", "#828282", vision) < 1


@pytest.mark.parametrize("vision", VISION)
def test_categories_stay_apart(figures, vision):
    found = [
        (*closest(colours, vision), study, figure.title)
        for study, several in figures.items()
        for figure in several
        for colours in told_apart_by_colour(figure)
    ]
    assert not sorted({one for one in found if one[0] < APART})
    assert len({study for apart, _, study, _ in found if np.isfinite(apart)}) >= 8  # that use colours so


@pytest.mark.parametrize("vision", VISION)
def test_the_colours_of_training_stay_apart(vision):
    assert closest(set(OF_TRAINING), vision)[0] >= APART


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("ramp", _TABLE)
def test_a_ramp_is_a_scale_for_every_reader(ramp, vision):
    stops = stops_of(ramp)
    quarter = (len(stops) - 1) // 4
    for index in range(len(stops) - quarter):
        assert distance(stops[index], stops[index + quarter], vision) >= APART
    light = np.array([lab(stop, vision)[0] for stop in stops])
    middle = len(stops) // 2
    if ramp in DIVERGING:  # darker towards both ends, which differ
        assert (np.diff(light[: middle - 1]) > 0).all() and (np.diff(light[middle + 2 :]) < 0).all()
        assert distance(stops[0], stops[-1], vision) >= 2 * APART
    else:
        assert (np.diff(light) > 0).all() or (np.diff(light) < 0).all()
