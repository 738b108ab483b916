"""The figures of the masking study: curves against random heads, the matrix, augmenting, whole chains."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible
from synthetic.function_masking import REASON, function_masking_dataset
from synthetic.functions import EIGHT, ELEVEN

from headwise.core.errors import StudyError
from headwise.core.schema import check
from headwise.figures import Curves, Heatmap, Intervals, from_payload, to_payload
from headwise.studies.present import figure_of
from headwise.studies.registry import dataset_spec

KINDS = ("masking", "effects", "cross", "augment", "hierarchy")
SIZES = {"default": {}, "two": {"functions": EIGHT[:2], "left_out": ()}, "eleven": {"functions": ELEVEN}}


@pytest.fixture
def masking() -> xr.Dataset:
    return function_masking_dataset()


@pytest.mark.parametrize("options", [*SIZES.values(), {"chains": 0}])
def test_the_synthetic_data_is_what_the_study_promises(options: dict[str, object]) -> None:
    check(function_masking_dataset(**options), dataset_spec("function_masking").schema)


def test_every_function_has_its_curves_beside_random_heads(masking: xr.Dataset) -> None:
    figure = figure_of("function_masking", masking)
    assert [panel.key for panel in figure.panels[:2]] == ["Knowledge Recall", "Retrieval"]  # in the sheet's order
    assert len(figure.panels) == 8 and f"Semantic Understanding ({REASON})" in figure.notes[1]
    for panel in figure.panels[:-1]:
        assert isinstance(panel, Curves)
        one = masking.sel(function=panel.key)
        random, own = panel.curves
        np.testing.assert_array_equal(own.x, one["removed"].values)
        np.testing.assert_array_equal(own.y, one["own"].values)
        np.testing.assert_array_equal(random.low, one["random_low"].values)
        assert f"loss {float(one['mean_effect']):.2f}".replace("-0.00", "0.00") in panel.subtitle


def test_heads_that_could_not_be_masked_are_left_out(masking: xr.Dataset) -> None:
    for end in ("", "_low", "_high"):
        masking[f"own{end}"][0, -2:] = np.nan
    panel = figure_of("function_masking", masking).panel("Retrieval")
    assert isinstance(panel, Curves) and panel.curves[1].x.tolist() == [4, 8, 16]


def test_the_matrix_is_masked_by_asked(masking: xr.Dataset) -> None:
    lost, shared = figure_of("function_masking", masking, kind="cross").panels
    assert isinstance(lost, Heatmap) and isinstance(shared, Heatmap)
    names = list(lost.y.labels)
    assert "Semantic Understanding" not in names and lost.y.name == "16 heads masked of"
    one = masking.sel(masked=names, function=names)
    np.testing.assert_array_equal(lost.values, one["cross_effect"].values)
    np.testing.assert_array_equal(shared.values, one["overlap"].values)
    framed = {(frame.first_row, frame.first_column) for frame in lost.frames}
    assert framed == {tuple(cell) for cell in np.argwhere(one["cross_effect_low"].values > 0).tolist()} and framed
    value = float(one["cross_effect"][1, 0])
    assert next(mark.text for mark in lost.marks if (mark.row, mark.column) == (1, 0)) == f"{value:.2f}"[1:]


def test_effects_and_spill(masking: xr.Dataset) -> None:
    own, spill = figure_of("function_masking", masking, kind="effects").panels
    assert isinstance(own, Intervals) and isinstance(spill, Intervals)
    names = list(spill.y.labels)
    assert own.y.labels == (*names, "all functions together")
    np.testing.assert_array_equal(spill.high, masking["spill_high"].sel(function=names).values)
    np.testing.assert_array_equal(own.high[:-1], masking["mean_effect_high"].sel(function=names).values)
    assert own.low[-1] == masking["pooled_mean_effect_low"]


def test_augmenting_against_random_directions(masking: xr.Dataset) -> None:
    figure = figure_of("function_masking", masking, kind="augment")
    assert "Decision-making (the whole model fails too few" in figure.notes[1]
    panel = figure.panel("Retrieval")
    assert isinstance(panel, Curves)
    one = masking.sel(function="Retrieval")
    random, along = panel.curves
    np.testing.assert_array_equal(along.y, one["augmented"].values)
    np.testing.assert_array_equal(random.y, one["augmented_random"].values)
    assert panel.guides[0].at == pytest.approx(float(one["augmented"][0]))


def test_whole_chains_stand_under_the_whole_model(masking: xr.Dataset) -> None:
    matrix, lost = figure_of("function_masking", masking, kind="hierarchy").panels
    assert isinstance(matrix, Heatmap) and isinstance(lost, Intervals)
    assert matrix.y.labels == ("no head", "control sets", "Knowledge Recall", "Retrieval", "Syntactic Understanding")
    *labels, last = matrix.x.labels
    asked = [label.rsplit(" (", 1)[0] for label in labels]
    assert labels == [f"{name} ({int(masking['chain_steps'].sel(function=name))})" for name in asked]
    here, high = masking.sel(function=asked), masking["order"].sel(function=asked).values == "high"
    np.testing.assert_array_equal(matrix.values[0, :-1], here["chain_intact"].values)
    np.testing.assert_array_equal(matrix.values[1, :-1], here["chain_random"].values)
    np.testing.assert_array_equal(matrix.values[3, :-1], here["chain"].sel(masked="Retrieval").values)
    whole, steps = here["chain_intact"].values[high], here["chain_steps"].values[high]
    assert last == f"all high-order ({steps.sum()})"
    assert matrix.values[0, -1] == pytest.approx(float((whole * steps).sum() / steps.sum()))
    assert matrix.values[1, -1] == pytest.approx(float(masking["chain_high_random"].sel(function="Retrieval")))
    assert matrix.values[3, -1] == pytest.approx(float(masking["chain_high_own"].sel(function="Retrieval")))
    np.testing.assert_array_equal(lost.values, masking["chain_effect"].sel(function=list(lost.y.labels)).values)


def test_an_atlas_without_random_heads_by_function_still_has_their_row(masking: xr.Dataset) -> None:
    matrix = figure_of("function_masking", masking.drop_vars("chain_random"), kind="hierarchy").panels[0]
    assert isinstance(matrix, Heatmap)
    assert np.isnan(matrix.values[1, :-1]).all() and np.isfinite(matrix.values[1, -1])


def test_the_legend_draws_dashed_curves_dashed(masking: xr.Dataset) -> None:
    for kind in ("masking", "augment"):
        figure = figure_of("function_masking", masking, kind=kind)
        legend, first = figure.panels[-1], figure.panels[0]
        assert isinstance(first, Curves)
        signs = {entry.colour: entry.sign for entry in legend.entries}  # type: ignore[union-attr]
        assert signs == {curve.colour: curve.style for curve in first.curves}


def test_the_matrix_of_shared_heads_counts_no_steps(masking: xr.Dataset) -> None:
    lost, shared = figure_of("function_masking", masking, kind="cross").panels
    assert isinstance(lost, Heatmap) and isinstance(shared, Heatmap)
    assert all(label.endswith(")") for label in lost.x.labels) and shared.x.labels == shared.y.labels == lost.y.labels


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        ({}, {"kind": "mask"}, "no kind 'mask'. Did you mean 'masking'"),
        ({}, {"functions": "Retreival"}, "no function 'Retreival'. Did you mean 'Retrieval'"),
        ({"chains": 0}, {"kind": "hierarchy"}, "no hierarchy to draw: no held-out chain"),
        ({"left_out": EIGHT}, {}, f"No function was masked: .*Retrieval: {REASON}"),
        ({"left_out": EIGHT}, {"kind": "augment"}, "No function was augmented"),
    ],
)
def test_what_cannot_be_drawn_is_refused(made: dict[str, object], options: dict[str, object], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        figure_of("function_masking", function_masking_dataset(**made), **options)


@pytest.mark.parametrize("size", ["two", "eleven"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_legible_and_round_trips(size: str, kind: str) -> None:
    figure = figure_of("function_masking", function_masking_dataset(**SIZES[size]), kind=kind)
    assert_legible(figure)
    payload = json.loads(json.dumps(to_payload(figure), allow_nan=False))
    assert to_payload(from_payload(payload)) == to_payload(figure)


def test_one_number_of_heads_is_drawn_as_the_own_set_next_to_its_controls(masking: xr.Dataset) -> None:
    one = masking.isel(removed=[3])
    figure = figure_of("function_masking", one)
    (panel,) = figure.panels
    assert isinstance(panel, Intervals) and len(panel.values) == 14  # seven functions, own and controls
    at = panel.y.labels.index("Retrieval, p = 0.048")
    own = one.sel(function="Retrieval").isel(removed=0)
    assert panel.values[at] == pytest.approx(float(own["own"])) and panel.y.labels[at + 1] == "20 control sets"
    assert panel.low[at + 1] == pytest.approx(float(own["random_draws"].min()))
    assert panel.high[at + 1] == pytest.approx(float(own["random_draws"].max()))
    assert "as many heads in every layer" in figure.notes[0]
    assert_legible(figure)
    older = figure_of("function_masking", one.drop_vars("rank_p")).notes[0]
    assert "may be a matter of depth" in older
