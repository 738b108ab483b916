"""Figures of circuits and of sparsity without training: the numbers of the Dataset, legible at any size."""

from __future__ import annotations

import numpy as np
import pytest
from legibility import assert_legible
from synthetic.circuits import circuits_dataset
from synthetic.sparsity import sparsity_dataset

from headwise.core.errors import StudyError
from headwise.core.schema import check
from headwise.figures import Curves, Heatmap, Intervals, from_payload, to_payload
from headwise.studies.present import figure_of
from headwise.studies.registry import dataset_spec


def test_curves_are_the_shares_of_the_dataset() -> None:
    dataset = circuits_dataset(6, 4)
    panel = figure_of("circuits", dataset).panel("induction-heads")
    assert isinstance(panel, Curves)
    for key in ("model", "reference"):
        curve = next(curve for curve in panel.curves if curve.key == f"share-{key}")
        one = dataset.sel(task="induction", unit="heads", condition=key)
        known = np.isfinite(one["size"].values)
        assert np.allclose(curve.x, one["size"].values[known]) and np.allclose(curve.y, one["share"].values[known])
    assert panel.guides[0].at == pytest.approx(0.9)


def test_sizes_needed_have_a_row_a_task_and_model() -> None:
    dataset = circuits_dataset(6, 4)
    panel = figure_of("circuits", dataset).panel("needed-edges")
    assert isinstance(panel, Intervals)
    assert len(panel.y.labels) == 10 and np.isnan(panel.values[-1])
    assert panel.values[0] == float(dataset["needed"].sel(condition="model", task="induction", unit="edges"))


def test_maps_are_the_effects() -> None:
    dataset = circuits_dataset()
    figure = figure_of("circuits", dataset, kind="maps", tasks=["induction", "successor"])
    assert [panel.key for panel in figure.panels] == [
        "effect-induction", "effect-successor", "reference_effect-induction", "reference_effect-successor",
    ]  # fmt: skip
    panel = figure.panel("effect-induction")
    assert isinstance(panel, Heatmap)
    assert np.allclose(panel.values, dataset["effect"].sel(task="induction"))
    assert (15, 1) in [(mark.row, mark.column) for mark in panel.marks]
    assert figure.scales["effect"].low == -figure.scales["effect"].high


def test_costs_are_those_of_the_dataset() -> None:
    dataset = sparsity_dataset(6, 4)
    check(dataset, dataset_spec("sparsity").schema)
    panel = figure_of("sparsity", dataset).panel("rise")
    assert isinstance(panel, Curves)
    top = next(curve for curve in panel.curves if curve.key == "top")
    one = dataset.sel(rule=["top 2", "top 6", "top 16"])
    assert (
        np.allclose(top.x, one["kept_mean"])
        and np.allclose(top.y, one["rise"])
        and np.allclose(top.low, one["rise_low"])
    )


def test_maps_show_one_setting_of_each_rule_near_a_quarter() -> None:
    dataset = sparsity_dataset(6, 4)
    figure = figure_of("sparsity", dataset, kind="maps")
    assert [panel.key for panel in figure.panels][:3] == ["needed", "top 6", "over 0.005"]
    panel = figure_of("sparsity", dataset, kind="maps", rules="top 2").panel("top 2")
    assert isinstance(panel, Heatmap) and np.allclose(panel.values, dataset["change"].sel(rule="top 2"))


@pytest.mark.parametrize(("layers", "heads"), [(30, 9), (80, 64)])
@pytest.mark.parametrize("kind", ["curves", "maps", "costs", "drops"])
def test_all_is_legible(layers: int, heads: int, kind: str) -> None:
    if kind in ("curves", "maps"):
        assert_legible(figure_of("circuits", circuits_dataset(layers, heads, two=heads < 20), kind=kind))
    else:
        kind = "maps" if kind == "drops" else kind
        assert_legible(figure_of("sparsity", sparsity_dataset(layers, heads), kind=kind))


def test_figures_survive_the_way_to_the_browser() -> None:
    for study, dataset in (("circuits", circuits_dataset(6, 4)), ("sparsity", sparsity_dataset(6, 4))):
        figure = figure_of(study, dataset)
        assert to_payload(from_payload(to_payload(figure))) == to_payload(figure)


def test_what_there_is_no_figure_of_is_refused() -> None:
    with pytest.raises(StudyError, match="curves"):
        figure_of("circuits", circuits_dataset(6, 4), kind="curve")
    with pytest.raises(StudyError, match="costs"):
        figure_of("sparsity", sparsity_dataset(6, 4), kind="cost")
    with pytest.raises(StudyError, match="induction"):
        figure_of("circuits", circuits_dataset(6, 4), tasks="inductoin")
