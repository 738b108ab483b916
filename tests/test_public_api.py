"""The public names, held by a snapshot; and that Python can do what the command line does."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import tiny_model, tiny_passages
from synthetic.atlas import synthetic_atlas

import headwise as hw
from headwise.studies import ProfileOptions

SNAPSHOT = """
Activations AnswerScorer Atlas HeadOutputs HeadWeights HeadwiseError Instrument Intervention MeanAblation Model
ModelCard Patterns Profile RayEngine ResampleAblation ScaleHeads Spectrum Steer StudyOptions StudySpec TrainingAtlas
Watch bench_detection build check compare detect load observe plan run sparsify studies watch
"""


def test_the_public_names_are_these() -> None:
    """A change here is a change of the API: note it in the changelog, and keep a deprecated alias for one release."""
    assert sorted(hw.__all__) == SNAPSHOT.split()


def test_build_takes_study_objects(tmp_path: Path) -> None:
    model = hw.load(*tiny_model(layers=2))
    texts = tiny_passages(4, tokens=(40, 60))
    built = hw.build(model, [hw.studies.Profile(repeats=2, period=12)], data=texts, output=tmp_path / "atlas")
    assert hw.studies.Profile is ProfileOptions
    assert built.provenance("profile").parameters["period"] == 12
    with pytest.raises(AttributeError, match="no 'Profil'"):
        hw.studies.Profil  # noqa: B018


def test_an_atlas_answers_what_the_command_line_does(tmp_path: Path) -> None:
    atlas = synthetic_atlas(tmp_path / "atlas", 6, 4, ["profile", "relations"])
    chosen = atlas.select("layer > 3")
    assert len(chosen) == 8 and set(chosen.columns) == set(atlas.heads().columns)
    assert atlas.head("L2H1").name == "L2H1"
    assert atlas.report(tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert hw.compare(atlas, str(tmp_path / "atlas"), studies=["profile"]).changed == 0


def test_run_is_one_line() -> None:
    model = hw.load(*tiny_model(layers=2))
    spectrum = hw.Spectrum(k=2)
    seen = hw.run(model, "the old river was the old house", spectrum)
    assert seen[spectrum].equals(seen["spectrum"])


def test_progress_is_shown_where_somebody_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = hw.load(*tiny_model(layers=2))
    few = hw.studies.Profile(repeats=2, period=12)
    texts = tiny_passages(4, tokens=(40, 60))
    hw.build(model, [few], data=texts, output=tmp_path / "silent")
    assert capsys.readouterr().err == ""  # nobody watches a pipe
    hw.build(model, [few], data=texts, output=tmp_path / "asked", progress=True)
    assert "profile: 6 of 6 examples, done in" in capsys.readouterr().err
    monkeypatch.setattr("headwise.studies.building.shows_progress", lambda: True)
    hw.build(model, [few], data=texts, output=tmp_path / "watched")
    assert "profile: 6 of 6 examples, done in" in capsys.readouterr().err
