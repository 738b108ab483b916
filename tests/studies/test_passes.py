"""Studies that read the same texts share their forward passes, and find the same numbers as one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import answered
import numpy as np
import pandas as pd
import pytest
from planted import save_tiny

from headwise.atlas import Atlas
from headwise.core.errors import DataError
from headwise.corpora import read_questions
from headwise.model import Model, load
from headwise.studies import build
from headwise.studies.probing.spec import ProbingOptions
from headwise.studies.spectral.spec import SpectralOptions

OPTIONS: dict[str, Any] = {
    "spectral": SpectralOptions(shard=20, shuffles=200),
    "probing": ProbingOptions(shard=20, shuffles=40, paper=False, sites=("mlp_in",), p_true=False),
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("given")
    save_tiny(folder / "model", layers=2)
    asked = read_questions(answered.write(folder / "asked.jsonl", answered.rows(90)))
    return {"model": load(str(folder / "model")), "questions": asked, "options": OPTIONS}


@pytest.fixture(scope="module")
def one_by_one(given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    where = tmp_path_factory.mktemp("apart") / "atlas"
    for study in ("spectral", "probing"):
        built = build(studies=[study], output=where, **given)
    return built


def passes_of(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the rows of every pass through the model's first layer."""
    seen: list[int] = []
    layer: Any = model.hf.model.layers[0]
    forward = layer.forward
    monkeypatch.setattr(layer, "forward", lambda *a, **k: (seen.append(len(a[0])), forward(*a, **k))[1])
    return seen


@pytest.mark.parametrize("answers_first", [True, False])
def test_together_they_show_every_text_once_and_find_the_same(
    given: dict[str, Any], one_by_one: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers_first: bool
) -> None:
    if answers_first:
        build(studies=["answers"], output=tmp_path / "atlas", **given)
    rows = passes_of(given["model"], monkeypatch)
    together = build(studies=["spectral", "probing"], output=tmp_path / "atlas", **given)
    texts = together["spectral"].sizes["example"]
    assert texts <= sum(rows) <= texts + 6  # a few more to find the model's structure
    pd.testing.assert_frame_equal(together["answers"].to_dataframe(), one_by_one["answers"].to_dataframe(), rtol=1e-4)
    assert np.isfinite(together["answers"]["logprob_min"]).all()
    assert together.studies == one_by_one.studies
    for study in ("answers", "spectral", "detection", "probing"):
        assert together.provenance(study).key() == one_by_one.provenance(study).key()
        found, expected = together[study], one_by_one[study]
        assert set(found.variables) == set(expected.variables) and set(found.attrs) == set(expected.attrs)
        for name, values in found.variables.items():
            if values.dtype.kind == "f" and name in (
                "per_example",
                "effect",
                "auroc",
                "head_auroc",
                "received",
                "score",
            ):
                np.testing.assert_allclose(values, expected[name], rtol=1e-3, atol=5e-3, err_msg=f"{study}.{name}")
    assert not list((tmp_path / "atlas" / ".shards").glob("*"))
    assert (tmp_path / "atlas" / "detector.json").exists()


def test_a_killed_build_goes_on_with_its_shards(given: dict[str, Any], tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def stop(study: str, done: int, total: int) -> None:
        seen.append((study, done))
        if study == "probing" and done >= 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(studies=["spectral", "probing"], output=tmp_path / "atlas", progress=stop, **given)
    assert ("spectral", 40) in seen
    assert ("answers", 40) in seen
    seen.clear()
    built = build(
        studies=["spectral", "probing"], output=tmp_path / "atlas", progress=lambda *at: seen.append(at[:2]), **given
    )
    assert {"spectral", "detection", "probing"} <= set(built.studies)


def test_a_build_killed_while_it_stores_measures_nothing_twice(
    given: dict[str, Any], one_by_one: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, studies = Atlas.add, ["answers", "spectral", "probing"]

    def killed(atlas: Atlas, study: str, dataset: Any) -> None:
        if study == "probing":
            raise KeyboardInterrupt
        add(atlas, study, dataset)

    with monkeypatch.context() as patch:
        patch.setattr(Atlas, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            build(studies=studies, output=tmp_path / "atlas", **given)
    assert Atlas.open(tmp_path / "atlas").studies == ["answers", "detection", "spectral"]
    created = Atlas.open(tmp_path / "atlas").provenance("answers").created
    rows = passes_of(given["model"], monkeypatch)
    built = build(studies=studies, output=tmp_path / "atlas", **given)
    assert sum(rows) <= 6, "only the model's structure is found again"
    assert built.studies == one_by_one.studies
    assert built.provenance("answers").created == created, "what was stored is left as it is"
    assert not list((tmp_path / "atlas" / ".shards").glob("*"))


def test_a_study_that_is_refused_does_not_stop_the_other(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = lambda model, answers, *how: [None] * answers.sizes["example"]  # noqa: E731
    monkeypatch.setattr("headwise.studies.probing.measure.exact_spans", nothing)
    with pytest.raises(DataError, match="no exact answer was found"):
        build(studies=["spectral", "probing"], output=tmp_path / "atlas", **given)
    assert "spectral" in Atlas.open(tmp_path / "atlas")
