"""The figures of the functions study: the grid, its one scale with a plus, refused functions, and the companions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible, written
from synthetic.functions import EIGHT, ELEVEN, REASON, functions_dataset

from headwise.core.errors import StudyError
from headwise.core.schema import check
from headwise.figures import Curves, Heatmap, Intervals, from_payload, save, to_payload
from headwise.studies.present import figure_of, figure_types
from headwise.studies.registry import dataset_spec

SHEET = [
    "Knowledge Recall", "Retrieval", "Logical Reasoning", "Decision-making",
    "Semantic Understanding", "Syntactic Understanding", "Inference", "Math Calculation",
]  # fmt: skip
SIZES = {
    "default": {}, "large": {"layers": 80, "heads": 64}, "two": {"functions": EIGHT[:2], "refused": ()},
    "eleven": {"functions": ELEVEN}, "small": {"layers": 2, "heads": 2}, "one": {"layers": 1, "heads": 1},
}  # fmt: skip


@pytest.fixture
def functions() -> xr.Dataset:
    return functions_dataset()


@pytest.mark.parametrize("size", SIZES)
def test_the_synthetic_data_is_what_the_study_promises(size: str) -> None:
    check(functions_dataset(**SIZES[size]), dataset_spec("functions").schema)


def test_the_sheets_grid(functions: xr.Dataset) -> None:
    figure = figure_of("functions", functions)
    assert [panel.title for panel in figure.panels] == SHEET
    assert figure.columns == 4
    for panel in figure.panels:
        assert isinstance(panel, Heatmap)
        assert (panel.x.name, panel.y.name, panel.y.labels[0]) == ("Head", "Layer", "0")
        own = functions.sel(function=panel.key)
        np.testing.assert_array_equal(panel.values, own["magnitude"].values)
        np.testing.assert_array_equal(panel.extras["importance_sd"], own["importance_sd"].values)
    (scale,) = figure.scales.values()
    assert scale.label == "Head importance" and scale.colours == "viridis" and scale.low == 0


def test_one_bar_whose_last_tick_has_a_plus(functions: xr.Dataset) -> None:
    values = functions["magnitude"].values
    figure = figure_of("functions", functions, cap=0.004)
    (scale,) = figure.scales.values()
    assert [text for _, text in scale.ticks()] == ["0.0000", "0.0020", "0.0040+"]
    assert [text.get_text() for text in written(figure)].count("0.0040+") == 1
    odd = figure_of("functions", functions, cap=0.0035).scales["magnitude"]
    assert [text for _, text in odd.ticks()] == ["0.00000", "0.00175", "0.00350+"]
    found = figure_of("functions", functions).scales["magnitude"]
    assert found.over and np.nanmax(values) > found.high
    assert np.nanmean(values > found.high) <= 0.01 * np.isfinite(values).mean() + 0.01
    assert not figure_of("functions", functions, cap=1.0).scales["magnitude"].ticks()[-1][1].endswith("+")


def test_a_refused_function_is_an_empty_panel_that_says_why(functions: xr.Dataset) -> None:
    figure = figure_of("functions", functions)
    panel = figure.panel("Semantic Understanding")
    assert isinstance(panel, Heatmap) and np.isnan(panel.values).all()
    assert panel.missing == f"No map: {REASON}"
    on_page = " ".join(text.get_text().replace("\n", " ") for text in written(figure))
    assert f"No map: {REASON}" in on_page
    assert "Semantic Understanding" in figure_of("functions", functions, kind="sorted").notes[0]
    everyone = functions_dataset(refused=EIGHT)
    assert_legible(figure_of("functions", everyone))
    with pytest.raises(StudyError, match="No function has a map"):
        figure_of("functions", everyone, kind="layers")


def test_other_labels_stand_as_they_are_stored() -> None:
    figure = figure_of("functions", functions_dataset(functions=ELEVEN))
    assert [panel.title for panel in figure.panels] == list(ELEVEN)
    some = figure_of("functions", functions_dataset(), functions=["Inference", "Retrieval"])
    assert [panel.title for panel in some.panels] == ["Inference", "Retrieval"]


def test_signed_and_alone(functions: xr.Dataset) -> None:
    signed = figure_of("functions", functions, value="importance")
    scale = signed.scales["importance"]
    assert scale.kind == "diverging" and scale.low == -scale.high
    np.testing.assert_array_equal(
        signed.panel("Retrieval").values, functions["importance"].sel(function="Retrieval").values
    )  # type: ignore[union-attr]
    alone = figure_of("functions", functions, value="single_head_auroc").panel("Semantic Understanding")
    assert isinstance(alone, Heatmap) and np.isfinite(alone.values).all()


def test_sorted_curves_have_their_elbow(functions: xr.Dataset) -> None:
    figure = figure_of("functions", functions, kind="sorted")
    assert "Semantic Understanding" not in [panel.key for panel in figure.panels]
    for panel in figure.panels:
        assert isinstance(panel, Curves)
        own = functions.sel(function=panel.key)
        null, curve = panel.curves
        np.testing.assert_array_equal(curve.y, own["sorted"].values)
        np.testing.assert_array_equal(np.sort(null.y), np.sort(own["null_high"].values.ravel()))
        assert panel.guides[0].at == int(own["elbow"])
        spread = own["importance_sd"].values.ravel()[np.argsort(-own["magnitude"].values, axis=None, kind="stable")]
        np.testing.assert_allclose(curve.high, curve.y + spread, rtol=1e-5)


def test_layers_count_the_heads_up_to_the_elbow(functions: xr.Dataset) -> None:
    for panel in figure_of("functions", functions, kind="layers").panels:
        assert isinstance(panel, Curves)
        counts = functions["chosen"].sel(function=panel.key).sum("head").values
        np.testing.assert_array_equal(panel.curves[0].y, counts)
        assert panel.subtitle.startswith(f"{counts.sum()} heads in {(counts > 0).sum()} of 30")


def test_similar_maps_stand_side_by_side(functions: xr.Dataset) -> None:
    figure = figure_of("functions", functions, kind="similarity")
    matrix, tree = figure.panels
    assert isinstance(matrix, Heatmap) and isinstance(tree, Curves)
    names = list(matrix.x.labels)
    assert set(names) == set(EIGHT) - {"Semantic Understanding"} and matrix.y.labels == tree.y.labels
    maps = functions["magnitude"].sel(function=names).values.reshape(len(names), -1)
    np.testing.assert_allclose(matrix.values, np.corrcoef(maps), atol=1e-6)
    assert abs(names.index("Retrieval") - names.index("Knowledge Recall")) == 1  # they share a planted head
    assert np.isfinite(tree.curves[0].x).sum() == 4 * (len(names) - 1)
    assert np.nanmax(tree.curves[0].x) == pytest.approx(1 - np.corrcoef(maps).min(), abs=0.2)


def test_the_probe_stands_beside_the_model_and_the_answers_form(functions: xr.Dataset) -> None:
    figure = figure_of("functions", functions, kind="probe")
    assert [panel.key for panel in figure.panels] == ["accuracy", "auroc", "confound_auroc"]
    for panel in figure.panels:
        assert isinstance(panel, Intervals)
        np.testing.assert_allclose(panel.low, functions[f"{panel.key}_low"].sel(function=SHEET).values)
    (matrix,) = figure_of("functions", functions, kind="confusion", functions=["Inference", "Retrieval"]).panels
    assert isinstance(matrix, Heatmap) and matrix.values[0, 0] == pytest.approx(0.8)


def test_the_label_that_is_no_function_is_drawn_next_to_each_function(functions: xr.Dataset) -> None:
    figure = figure_of("functions", functions, kind="depth")
    assert len(figure.panels) == 8  # seven functions and the legend: the last has too few steps of another wording
    assert "Too few steps of two wordings: Decision-making." in figure.notes
    wording, function = figure.panel("Inference").curves  # type: ignore[union-attr]
    one = functions.sel(function="Inference")
    np.testing.assert_array_equal(wording.y, one["wording_by_layer"].values)
    np.testing.assert_array_equal(function.y, one["function_by_layer"].values)
    assert f"{float(functions['wording_by_layer'].mean()):.2f}" in figure_of("functions", functions).notes[-1]
    with pytest.raises(StudyError, match="--redo functions"):
        figure_of("functions", functions.drop_vars("wording_by_layer"), kind="depth")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "map"}, "no kind 'map'. Did you mean 'maps'"),
        ({"value": "magnitud"}, "no value 'magnitud'. Did you mean 'magnitude'"),
        ({"functions": "Retreival"}, "no function 'Retreival'. Did you mean 'Retrieval'"),
        ({"cap": -1.0}, "give a number above 0"),
        ({"kind": "similarity", "functions": "Inference"}, "at least two functions"),
    ],
)
def test_what_cannot_be_drawn_is_refused(functions: xr.Dataset, options: dict[str, object], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        figure_of("functions", functions, **options)


@pytest.mark.parametrize(
    ("kind", "size"),
    [*(("maps", size) for size in SIZES), *(("sorted", size) for size in ("large", "two", "one")), ("layers", "large")]
    + [(kind, size) for kind in ("layers", "similarity", "depth", "probe", "confusion") for size in ("two", "eleven")],
)
def test_it_is_legible_and_round_trips(kind: str, size: str) -> None:
    figure = figure_of("functions", functions_dataset(**SIZES[size]), kind=kind)
    assert_legible(figure)
    payload = json.loads(json.dumps(to_payload(figure), allow_nan=False))
    assert to_payload(from_payload(payload)) == to_payload(figure)


def test_options_reach_the_command_line() -> None:
    assert set(figure_types("functions")) == {"kind", "value", "functions", "cap", "style"}


def test_it_is_drawn(functions: xr.Dataset, tmp_path: Path) -> None:
    assert save(figure_of("functions", functions), tmp_path / "functions.pdf").stat().st_size > 10_000


def test_the_published_layout_has_maps_alone(functions: xr.Dataset) -> None:
    figure = figure_of("functions", functions, style="paper", cap=0.004)
    assert figure.columns == 4 and [panel.title for panel in figure.panels] == [
        "Knowledge Recall", "Retrieval", "Logical Reasoning", "Decision-making",
        "Semantic Understanding", "Syntactic Understanding", "Inference", "Math Calculation",
    ]  # fmt: skip
    assert not any(panel.subtitle for panel in figure.panels)
    (scale,) = figure.scales.values()
    assert (scale.label, scale.colours, scale.ticks()[-1][1]) == ("Head importance", "viridis", "0.0040+")
    low, high = float(functions["auroc"].min()), float(functions["auroc"].max())
    assert f"against the others is {low:.2f} to {high:.2f}" in figure.notes[0]
