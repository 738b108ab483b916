"""The causal study in words and as a figure: every number is one of the Dataset."""

from __future__ import annotations

import numpy as np
import pytest
from legibility import assert_legible
from synthetic.causal import causal_dataset

from headwise.core.errors import StudyError
from headwise.studies.present import describe, figure_of


def test_numbers_are_those_of_the_dataset():
    dataset = causal_dataset(12, 6)
    words = describe("causal", dataset)
    one = dataset.sel(ablation="mean", token_class="all")
    numbers = {number.source: number.value for number in words.numbers}
    rises = (one["q"].values < 0.05) & (one["effect"].values > 0)
    assert numbers["needed all"] == rises.sum()
    assert numbers["value all L1H1"] == pytest.approx(float(one["effect"].sel(layer=1, head=1)))
    assert numbers["exact"] == (dataset["checked"].values != "").sum() and numbers["total"] == 72
    assert numbers["corrected"] == 72 - numbers["exact"]
    assert numbers["slope all"] == pytest.approx(float(one["slope"]))
    assert numbers["agreement_random all"] == pytest.approx(float(one["agreement_random"]))
    assert numbers["concordance all"] == pytest.approx(100 * float(one["concordance"]))
    assert numbers["more"] == (dataset["excess_low"].values > 0).sum()
    for name in dataset["token_class"].values:
        q, effect = (dataset[each].sel(ablation="mean", token_class=name).values for each in ("q", "effect"))
        assert numbers[f"needed {name}"] == ((q < 0.05) & (effect > 0)).sum()
    assert "L2H0 for repeated tokens" in words.text() and "an approximation" in words.text()


def test_the_figure_has_a_map_per_class_and_attribution_against_exact_ablation():
    dataset = causal_dataset(12, 6)
    figure = figure_of("causal", dataset, ablation="resample")
    keys = [panel.key for panel in figure.panels]
    assert keys == ["all", "repeated", "name", "number", "delimiter", "sentence_start", "other", "agreement"]
    wanted = dataset["effect"].sel(ablation="resample", token_class="name").values
    np.testing.assert_allclose(figure.panel("name").values, wanted)
    points = figure.panel("agreement")
    exact = dataset["effect"].sel(ablation="resample", token_class="all")
    for name, y in zip(points.names, points.y_values, strict=True):
        layer, head = (int(part) for part in name[1:].split("H"))
        assert y == pytest.approx(float(exact.sel(layer=layer, head=head)))
    with pytest.raises(StudyError, match="no ablation 'zero'"):
        figure_of("causal", dataset, ablation="zero")


@pytest.mark.parametrize(("layers", "heads"), [(3, 4), (30, 9)])
def test_the_figure_is_legible(layers: int, heads: int):
    assert_legible(figure_of("causal", causal_dataset(layers, heads)))
