"""The causal study in words and as a figure: every number is one of the Dataset."""

from __future__ import annotations

import re

import numpy as np
import pytest
from legibility import assert_legible
from map_rules import map_rules
from synthetic.atlas import synthetic_atlas
from synthetic.causal import causal_dataset

from headwise.core.errors import StudyError
from headwise.studies.present import describe, figure_of
from headwise.web.study_page import StudyPage


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
    assert keys == ["all", "repeated", "name", "number", "delimiter", "sentence_start", "other", "answer", "agreement"]
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


def test_other_studies_tell_whether_the_model_needs_the_heads_they_name(tmp_path):
    atlas = synthetic_atlas(tmp_path / "atlas", 12, 6, ["profile", "causal"])
    causal, words = atlas["causal"], atlas.describe("profile")
    told = words.interpretation[-1]
    assert told.startswith("Does the model need them?") and told in words.text()
    numbers = {number.source: number.value for number in words.numbers}
    plain = describe("profile", atlas["profile"])
    named = set(re.findall(r"L\d+H\d+", " ".join((plain.headline, *plain.detail, *plain.observations))))
    assert numbers["causal named"] == len(named) > 0
    cells = [tuple(int(part) for part in name[1:].split("H")) for name in named]
    assert numbers["causal more"] == sum(causal["excess_low"].values[cell] > 0 for cell in cells)
    for name in re.findall(r"L\d+H\d+", told):
        layer, head = (int(part) for part in name[1:].split("H"))
        row = causal["effect"].sel(ablation="mean", token_class="all", layer=layer).values
        assert numbers[f"causal rank {name}"] == 1 + (row > row[head]).sum()
    assert "needed more" not in atlas.describe("causal").text().split("Key observations")[0]
    assert StudyPage("profile", atlas["profile"], {"causal": causal}).words.interpretation[-1] == told
    other = causal.assign_attrs(provenance=causal.attrs["provenance"].replace("4f0c1b9a77de", "ffff"))
    assert describe("profile", atlas["profile"], others={"causal": other}) == plain


def test_a_heads_report_says_what_the_model_loses_without_it(tmp_path):
    atlas = synthetic_atlas(tmp_path / "atlas", 12, 6, ["profile", "causal"])
    report = atlas.head("L1H1")
    effect = float(atlas["causal"]["effect"].sel(ablation="mean", token_class="all", layer=1, head=1))
    assert f"Without it the loss rises by {effect:.3g} nats per token (rank 1 in its layer)." in report.summary
    assert "causal.rank" in {value.key for value in report.values["causal"]}


def test_anomalies_are_those_of_the_maps():
    dataset = causal_dataset(12, 8)
    rules = map_rules(
        lambda key: (
            dataset["effect"].sel(ablation="mean", token_class=key).transpose("layer", "head").values.astype(float)
        )
    )
    words = describe("causal", dataset)
    checked = [number for number in words.numbers if number.source.split()[0] in rules]
    assert {"around", "layer-level", "layer-around"} & {number.source.split()[0] for number in checked} and len(
        checked
    ) > 20
    for number in checked:
        kind, *rest = number.source.split()
        assert number.value == pytest.approx(rules[kind](*rest), rel=1e-4, abs=1e-9), number
    assert any("L1H1" in line for line in words.anomalies)  # planted
