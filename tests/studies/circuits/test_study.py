"""The study as it is built: on the planted circuit, beside another model, resumed, refused; and on the default model."""

import json

import numpy as np
import pytest
from planted import planted_profile_model, tiny_model
from planted_circuit import CIRCUIT, planted_circuit_model, planted_task

from headwise.core.errors import DataError, StudyError
from headwise.corpora import CIRCUIT_TASKS, CircuitTask
from headwise.model import load
from headwise.studies import build
from headwise.studies.circuits.measure import prepare
from headwise.studies.circuits.spec import CircuitsOptions
from headwise.studies.inputs import StudyInputs


@pytest.fixture(autouse=True)
def task(monkeypatch):
    monkeypatch.setitem(CIRCUIT_TASKS, "planted", CircuitTask("planted", "Planted", "what followed", planted_task))


def options(**changes):
    return CircuitsOptions(**{"tasks": ("planted",), "ranking": 4, "measuring": 6, "steps": 4, "checked": 6} | changes)


def test_the_planted_circuit_in_an_atlas(tmp_path):
    model = planted_circuit_model()
    atlas = build(model, ["circuits"], output=tmp_path / "atlas", options={"circuits": options()}, reference="none")
    found = atlas["circuits"].sel(task="planted")
    order = np.argsort(-np.abs(found["effect"].values), axis=None)[:2]
    assert {divmod(int(place), 6) for place in order} == CIRCUIT
    assert float(found["needed"].sel(condition="model", unit="heads")) == 2
    assert float(found["accuracy"].sel(condition="model")) == 1
    assert "circuits.planted.effect" in atlas.heads().columns


def test_a_model_beside_itself_needs_as_much(tmp_path):
    model = planted_circuit_model()
    chosen = {"circuits": options(edges=False)}
    atlas = build(model, ["circuits"], output=tmp_path / "a", options=chosen, reference=planted_circuit_model())
    found = atlas["circuits"]
    assert float(found["ratio"].sel(unit="heads", task="planted")) == 1
    assert np.isnan(found["needed"].sel(unit="edges")).all()
    assert np.allclose(found["effect"], found["reference_effect"])


def test_a_second_model_that_does_not_do_the_task_is_said(tmp_path):
    chosen = {"circuits": options(edges=False)}
    atlas = build(
        planted_circuit_model(), ["circuits"], output=tmp_path / "a", options=chosen, reference=planted_profile_model()
    )
    assert "planted" in json.loads(atlas["circuits"].attrs["refused_by_reference"])


def test_a_random_model_does_no_task(tmp_path):
    model = load(*tiny_model("gpt2", layers=2))
    with pytest.raises(StudyError, match="solves none of the tasks: planted"):
        build(model, ["circuits"], output=tmp_path / "a", options={"circuits": options(measuring=12)}, reference="none")


def test_a_tokenizer_without_the_words_is_refused():
    with pytest.raises(DataError, match="no task can be used with"):
        prepare(planted_circuit_model(), StudyInputs(reference="none"), CircuitsOptions(tasks=("successor",)))


@pytest.mark.parametrize("wrong", [{"tasks": ("inductoin",)}, {"goal": 1.5}, {"measuring": 1}])
def test_what_cannot_be_chosen_is_refused(wrong):
    with pytest.raises(StudyError):
        CircuitsOptions(**wrong)


@pytest.mark.real
def test_the_default_model_does_agreement_by_few_heads(tmp_path):
    chosen = CircuitsOptions(tasks=("agreement",), ranking=4, measuring=8, steps=2, checked=6, edges=False)
    atlas = build(None, ["circuits"], output=tmp_path / "a", options={"circuits": chosen}, reference="none")
    found = atlas["circuits"].isel(condition=0, task=0)
    assert float(found["accuracy_low"]) > 0.5
    assert float(found["needed"].sel(unit="heads")) < 90
    random = found.sel(unit="heads")
    assert float(random["random"].isel(circuit_size=1)) < 0.3
