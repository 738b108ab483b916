from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible
from synthetic.relation_validation import relation_validation_dataset as make

from headwise.core.errors import StudyError
from headwise.figures import Curves, Intervals, Scatter, from_payload, to_payload
from headwise.studies.present import figure_of


@pytest.fixture
def validation() -> xr.Dataset:
    return make()


@pytest.mark.parametrize("reading", ["forced", "natural"])
def test_every_relation_has_its_correlation(validation: xr.Dataset, reading: str) -> None:
    panel = figure_of("relation_validation", validation).panel(reading)
    assert isinstance(panel, Intervals)
    assert set(panel.y.labels) == set(validation["relation"].values)
    for row, name in enumerate(panel.y.labels):
        one = validation.sel(relation=name)
        assert panel.values[row] == pytest.approx(float(one[f"pearson_{reading}"]), abs=1e-6)
        assert panel.low[row] == pytest.approx(float(one[f"pearson_{reading}_low"]), abs=1e-6)
        assert panel.categories[panel.groups[row]].key == str(one["category_of"].values)


def test_a_scatter_has_two_points_a_head(validation: xr.Dataset) -> None:
    figure = figure_of("relation_validation", validation, kind="scatter", relations=["plural", "antonym"])
    assert [panel.key for panel in figure.panels] == ["plural", "antonym"]
    panel = figure.panel("plural")
    assert isinstance(panel, Scatter)
    one = validation.sel(relation="plural")
    assert panel.x_values.size == 2 * 270 and panel.groups.count(0) == 270
    np.testing.assert_allclose(panel.y_values[270:], one["forced"].values.ravel(), rtol=1e-6)
    layer, head = np.unravel_index(np.argmax(one["score"].values), (30, 9))
    assert [panel.names[place] for place in panel.shown] == [f"L{layer}H{head}"]


def test_every_task_has_its_curves(validation: xr.Dataset) -> None:
    figure = figure_of("relation_validation", validation, kind="removal")
    assert [panel.key for panel in figure.panels[-2:]] == ["effect", "spill"]
    for name in validation["task"].values:
        panel = figure.panel(f"task-{name}")
        assert isinstance(panel, Curves)
        assert [curve.key for curve in panel.curves] == ["others", "random", "own"]
        one = validation.sel(task=name)
        others, random, own = panel.curves
        np.testing.assert_allclose(own.y, one["own"].dropna("removed"), rtol=1e-6)
        np.testing.assert_allclose(random.low, one["random_low"].dropna("removed"), rtol=1e-6)
        np.testing.assert_allclose(others.y, one["others"].mean("control"), rtol=1e-5)
    assert "comparative (7 of 40)" in figure.notes[1]


def test_a_single_task_has_no_controls() -> None:
    figure = figure_of("relation_validation", make(tasks=1), kind="removal")
    panel = figure.panels[0]
    assert isinstance(panel, Curves) and [curve.key for curve in panel.curves] == ["random", "own"]


def test_what_cannot_be_drawn_is_refused(validation: xr.Dataset) -> None:
    with pytest.raises(StudyError, match="no kind 'curves'"):
        figure_of("relation_validation", validation, kind="curves")
    with pytest.raises(StudyError, match=r"has no relation 'plurals'. Did you mean 'plural'"):
        figure_of("relation_validation", validation, kind="scatter", relations="plurals")
    with pytest.raises(StudyError, match="No task was solved often enough"):
        figure_of("relation_validation", make(tasks=0), kind="removal")


@pytest.mark.parametrize("kind", ["outputs", "scatter", "removal"])
@pytest.mark.parametrize("size", [(30, 9), (80, 64), (2, 2)])
def test_it_is_legible_and_round_trips(kind: str, size: tuple[int, int]) -> None:
    dataset = make(*size)
    dataset["pearson_natural"][3] = np.nan
    figure = figure_of("relation_validation", dataset, kind=kind)
    assert_legible(figure)
    payload = json.loads(json.dumps(to_payload(figure), allow_nan=False))
    assert to_payload(from_payload(payload)) == to_payload(figure)
