from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from headwise.core.errors import StudyError
from headwise.figures import Heatmap, Legend
from headwise.studies.present import figure_of


def maps_of(figure: object) -> list[Heatmap]:
    return [panel for panel in figure.panels if isinstance(panel, Heatmap)]  # type: ignore[attr-defined]


def test_one_panel_a_statistic_each_with_its_scale(profile: xr.Dataset) -> None:
    figure = figure_of("profile", profile)
    maps = maps_of(figure)
    assert [panel.key for panel in maps] == list(profile["statistic"].values)
    assert all(panel.scale == panel.key for panel in maps)
    assert figure.scales["sink"].high == 1.0
    assert figure.title == "Where each head attends: SmolLM2-135M-Instruct"
    assert maps[0].y.labels[0] == "0"
    assert set(maps[0].extras) == {"value", "low", "high", "uniform"}


def test_planted_heads_are_marked_and_named(profile: xr.Dataset) -> None:
    induction = figure_of("profile", profile).panel("induction")
    assert isinstance(induction, Heatmap)
    assert {(mark.row, mark.column) for mark in induction.marks} == {(12, 3), (14, 7)}
    assert "L12H3" in induction.subtitle
    assert "L14H7" in induction.subtitle


def test_uniform_is_a_pointer_on_the_bar_where_it_means_something(profile: xr.Dataset) -> None:
    scales = figure_of("profile", profile).scales
    assert scales["sink"].marks[0].value == pytest.approx(0.021)
    assert scales["output_norm_ratio"].marks == ()


def test_relative_draws_the_difference_and_leaves_out_what_has_no_baseline(profile: xr.Dataset) -> None:
    figure = figure_of("profile", profile, relative=True)
    assert "output_norm_ratio" not in {panel.key for panel in figure.panels}
    assert "Left out, as a uniform head has no such value: Output norm (relative)." in figure.notes[0]
    sink = figure.panel("sink")
    assert isinstance(sink, Heatmap)
    expected = (profile["value"] - profile["uniform"]).sel(statistic="sink").values
    np.testing.assert_array_equal(sink.values, expected)
    assert figure.scales["sink"].kind == "diverging"
    with pytest.raises(
        StudyError, match="Nothing to draw relative to a uniform head: output_norm_ratio has no such baseline"
    ):
        figure_of("profile", profile, relative=True, statistics=["output_norm_ratio"])


def test_statistics_are_chosen_by_name(profile: xr.Dataset) -> None:
    figure = figure_of("profile", profile, statistics=["induction", "sink"])
    assert [panel.key for panel in maps_of(figure)] == ["induction", "sink"]
    assert [panel.key for panel in figure_of("profile", profile, statistics="sink").panels] == ["sink"]
    with pytest.raises(StudyError, match=r"no statistic 'inducton'. Did you mean 'induction'"):
        figure_of("profile", profile, statistics=["inducton"])


def test_notes_count_examples_by_statistic(profile: xr.Dataset) -> None:
    (note,) = figure_of("profile", profile).notes
    assert "over the examples (60; 12 for Induction, Duplicate token)" in note
    assert "± 1.3 %" in note


def test_missing_values_are_told_in_the_legend(profile: xr.Dataset) -> None:
    profile["value"][1] = np.nan
    legend = figure_of("profile", profile).panel("legend")
    assert isinstance(legend, Legend)
    assert "not measured" in {entry.label for entry in legend.entries}


@pytest.mark.parametrize("shape", [(1, 1), (1, 12), (12, 1), (2, 3)])
def test_small_models(make_profile: Callable[..., xr.Dataset], shape: tuple[int, int]) -> None:
    for relative in (False, True):
        figure = figure_of("profile", make_profile(*shape), relative=relative)
        assert maps_of(figure)[0].values.shape == shape
        assert not any(panel.marks for panel in maps_of(figure))


def test_a_dataset_without_examples_or_provenance(profile: xr.Dataset) -> None:
    bare = profile.drop_vars("per_example").drop_attrs()
    figure = figure_of("profile", bare)
    assert figure.title == "Where each head attends"
    assert "number not recorded" in figure.notes[0]
    assert figure.provenance == ""
