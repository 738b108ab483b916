"""Workers on the command line: what is refused at once, and a whole build by a Ray of its own."""

import json
import sys

import pytest
from faults.verdict import content
from toy_spec import on_the_path

from headwise.atlas import Atlas


@pytest.mark.parametrize("verb", ["build", "plan"])
def test_options_of_workers_without_them_are_refused(headwise, verb):
    said = headwise(verb, "--workers", "2").refused()
    assert (
        said
        == "headwise: --workers is for Ray workers, but --engine local has none; add --engine ray, or omit --workers."
    )


@pytest.mark.parametrize("verb", ["build", "plan"])
def test_an_unknown_engine_is_refused_with_a_guess(headwise, verb):
    assert "no engine 'rya'. Did you mean 'ray'? Known: local, ray." in headwise(verb, "--engine", "rya").refused()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--workers", "0", "workers=0 makes no sense for an engine; give at least 1"),
        ("--gpus-per-worker", "1.5", "A worker can have a part of one GPU, or whole ones, and not 1.5; give 0.5, 1, 2"),
        ("--threads-per-worker", "-1", "threads_per_worker=-1 makes no sense"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(headwise, option, value, said):
    assert said in headwise("build", "--engine", "ray", option, value).refused()


def test_a_missing_package_is_one_sentence(headwise, monkeypatch, tiny, texts):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = headwise("build", tiny, "--data", texts, "--engine", "ray").refused()
    assert "needs the package ray, which is not installed; run pip install 'headwise[ray]'" in said


def test_the_help_shows_how(headwise):
    shown = headwise("build", "--help").out
    assert "--gpus-per-worker" in shown
    assert "headwise build --engine ray --workers 2" in shown


@pytest.mark.xdist_group("ray")
def test_a_build_by_ray_is_the_build_in_process(headwise, atlas, tiny, texts, tmp_path, monkeypatch):
    """Standard output is the JSON and nothing else, and what Ray kept on disk is gone."""
    pytest.importorskip("ray", reason="the package ray is not installed (pip install 'headwise[ray]')")
    monkeypatch.setenv("PYTHONPATH", on_the_path())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given = ("build", tiny, "--data", texts, "--studies", "profile", "-o", tmp_path / "atlas")
    done = headwise(*given, "--engine", "ray", "--workers", "2", "--threads-per-worker", "1", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["studies"] == ["profile"]
    assert content(Atlas.open(tmp_path / "atlas")) == content(Atlas.open(atlas))
    assert not list(tmp_path.glob("headwise-ray-*"))
