from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible

from headwise.core.schema import check
from headwise.figures import Curves, Heatmap, Intervals, from_payload, to_payload
from headwise.probes.table import TableOptions, detector_table
from headwise.studies.present import describe, figure_of
from headwise.studies.registry import dataset_spec


def curves(figure: object, key: str) -> Curves:
    panel = figure.panel(key)  # type: ignore[attr-defined]
    assert isinstance(panel, Curves)
    return panel


def test_the_synthetic_data_is_what_the_study_promises(detection: xr.Dataset) -> None:
    check(detection, dataset_spec("detection").schema)


def test_every_detector_has_its_interval(detection: xr.Dataset) -> None:
    panel = figure_of("detection", detection).panel("auroc")
    assert isinstance(panel, Intervals)
    assert set(panel.y.labels) == set(detection["label"].values)
    by_label = detection.swap_dims(detector="label")
    for row, label in enumerate(panel.y.labels):
        for name, found in (("auroc", panel.values), ("auroc_low", panel.low), ("auroc_high", panel.high)):
            assert found[row] == pytest.approx(float(by_label[name].sel(label=label)), abs=1e-6)
    groups = list(panel.groups)
    assert groups == sorted(groups)
    for group in set(groups):
        own = panel.values[np.array(groups) == group]
        assert (np.diff(own) <= 0).all()


def test_roc_curves_enclose_the_pooled_auroc(detection: xr.Dataset) -> None:
    panel = curves(figure_of("detection", detection), "roc")
    assert [curve.key for curve in panel.curves] == ["combined", "min_logprob", "length"]
    for curve in panel.curves:
        assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0, 0, 1, 1)
        area = np.trapezoid(curve.y.astype(float), curve.x.astype(float))
        assert area == pytest.approx(float(detection["pooled"].sel(detector=curve.key)), abs=1e-5)


def test_equal_scores_are_flagged_together(detection: xr.Dataset) -> None:
    detection["score"].loc[{"detector": "length"}] = 1.0
    length = curves(figure_of("detection", detection), "roc").curves[-1]
    np.testing.assert_array_equal(length.x, [0, 1])
    np.testing.assert_array_equal(length.y, [0, 1])


def test_a_detector_has_one_colour(detection: xr.Dataset) -> None:
    figure = figure_of("detection", detection)
    colours: dict[str, set[str]] = {}
    for key in ("by_k", "by_layer", "by_size"):
        for curve in curves(figure, key).curves:
            colours.setdefault(curve.key, set()).add(curve.colour)
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)
    assert [curve.key for curve in curves(figure, "by_k").curves] == ["LapEigvals", "AttnEigvals", "length"]


def test_transfer_is_that_of_the_best_fitted_detector(detection: xr.Dataset) -> None:
    panel = figure_of("detection", detection).panel("transfer")
    assert isinstance(panel, Heatmap)
    assert panel.title.startswith("LapEigvals")
    assert panel.y.labels[-1] == "all others"
    assert {(mark.row, mark.column) for mark in panel.marks} == {(topic, topic) for topic in (0, 1, 3, 4, 5)}
    np.testing.assert_allclose(panel.values, detection["transfer"].sel(detector="LapEigvals").values, rtol=1e-6)


def test_panels_without_numbers_are_left_out(make_detection: Callable[..., xr.Dataset]) -> None:
    bare = make_detection(details=False)
    assert [panel.key for panel in figure_of("detection", bare).panels] == ["auroc", "roc"]
    assert [panel.key for panel in figure_of("detection", bare.drop_vars("score").drop_attrs()).panels] == ["auroc"]


def test_without_length_the_note_says_so(detection: xr.Dataset) -> None:
    assert "not in this table" not in figure_of("detection", detection).notes[0]
    figure = figure_of("detection", detection.drop_sel(detector="length"))
    assert "The answer's length, a confounder, is not in this table." in figure.notes[0]
    assert len(curves(figure, "roc").curves) == 2


@pytest.mark.parametrize("options", [{}, {"signal": 0.0}, {"details": False}, {"layers": 2}])
def test_it_is_legible_and_round_trips(make_detection: Callable[..., xr.Dataset], options: dict[str, object]) -> None:
    figure = figure_of("detection", make_detection(**options))
    assert_legible(figure)
    payload = json.loads(json.dumps(to_payload(figure), allow_nan=False))
    assert to_payload(from_payload(payload)) == to_payload(figure)


def test_a_table_that_was_really_made() -> None:
    """The contract with `headwise.probes.table`: its tables can be drawn and described once they have labels."""
    generator = np.random.default_rng(0)
    wrong = generator.permutation(np.arange(80) < 45)
    values = generator.normal(size=(80, 3, 2, 6)) + 0.6 * wrong[:, None, None, None]
    table = detector_table(
        {"LapEigvals": xr.DataArray(values, dims=("example", "layer", "head", "rank"))},
        wrong,
        {"length": generator.normal(size=80) + 0.3 * wrong},
        combine={"both": ["LapEigvals", "length"]},
        topics=np.array(["rivers", "years"])[np.arange(80) % 2],
        options=TableOptions(ks=(2, 5), sizes=(30, 50), reference="length"),
    )
    table = table.assign_coords(label=("detector", table["detector"].values))
    keys = [panel.key for panel in figure_of("detection", table).panels]
    assert sorted(keys) == ["auroc", "by_k", "by_layer", "by_size", "roc", "transfer"]
    assert "Length alone reaches an AUROC of" in describe("detection", table).text()
