"""The list of scores: what each declares, and how a user's own joins."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from synthetic.uncertainty import planted_readings

from headwise.core.errors import DataError
from headwise.scores import UncertaintyScore, score, scores, scores_of
from headwise.studies.uncertainty.finalize import finalize
from headwise.studies.uncertainty.spec import UncertaintyOptions


@pytest.fixture
def registered():
    """What a test registers is gone after it."""
    before = dict(scores())
    yield scores()
    scores().clear()
    scores().update(before)


def test_every_published_score_says_where_from_and_how():
    for name, one in scores().items():
        assert one.name == name and one.__doc__, name
        assert one.paper.title or name in ("Length", "Entropy"), name
        assert bool(one.paper.title) == bool(one.paper.link.startswith("https://")), name


def test_every_score_can_be_computed_from_the_readings():
    readings, _ = planted_readings(count=40)
    assert set(scores_of(readings)) == set(scores())
    for name, one in scores().items():
        if one.kind == "score":
            assert np.isfinite(one(readings)).all(), name


def test_without_samples_those_that_need_them_are_left_out():
    readings, _ = planted_readings(count=40)
    left = scores_of(readings.drop_vars([name for name in readings if "draw" in readings[name].dims]))
    assert {scores()[name].cost for name in set(scores()) - set(left)} == {"samples", "pass"}
    assert set(scores()) - set(left) >= {"Semantic entropy", "SAR", "EigenScore", "Semantic entropy probe"}
    assert "TokenSAR" in left and "RAUQ" in left


def test_five_lines_of_a_user_are_a_row_of_the_table(registered):
    @score("Surprising tokens", needs=("logprobs",), cost="answer")
    def surprising(readings):
        return (readings["logprobs"] < -1).mean("token")

    table = finalize(*planted_readings(logprob=1.0), UncertaintyOptions())
    row = table.sel(detector="Surprising tokens")
    assert float(row["auroc"]) > 0.6 and row["kind"].item() == "score" and row["cost"].item() == "answer"
    assert np.isfinite(row["gain_logprob_q"]) and np.isfinite(row["added"]) and np.isfinite(row["prr"])


def test_a_supervised_score_of_a_user_is_cross_validated(registered):
    @score("My head", needs=("laplacian",), kind="supervised")
    def mine(readings):
        return readings["laplacian"].isel(layer=0, head=1)

    table = finalize(*planted_readings(head=1.5), UncertaintyOptions())
    assert table["kind"].sel(detector="My head").item() == "supervised"
    assert float(table["auroc"].sel(detector="My head")) > 0.8


PLUGIN = """
import headwise.scores
print("Loud" in headwise.scores.scores(), len(headwise.scores.scores()))
"""


def test_a_package_adds_its_scores_by_an_entry_point_and_a_broken_one_is_skipped(tmp_path):
    (tmp_path / "loud.py").write_text(
        "from headwise.scores import score\n\n@score('Loud', needs=('logprobs',))\ndef loud(readings):\n"
        "    return -readings['logprobs'].max('token')\n",
        encoding="utf-8",
    )
    info = tmp_path / "loud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[headwise.scores]\nloud = loud:loud\nbroken = no_such_module:x\n")
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PLUGIN}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.split() == ["True", str(len(scores()) + 1)]
    assert "The plug-in score broken (no_such_module:x) could not be loaded" in run.stderr


def test_mistakes_are_told():
    with pytest.raises(DataError, match=r"has the kind 'scor'\. Did you mean 'score'"):
        UncertaintyScore("X", lambda readings: 0, kind="scor")
    with pytest.raises(DataError, match="needs a target if it is a probe"):
        UncertaintyScore("X", lambda readings: 0, kind="probe")
    with pytest.raises(DataError, match="one number for each of 3 answers is needed"):
        UncertaintyScore("X", lambda readings: np.zeros(2))(xr.Dataset(coords={"example": [0, 1, 2]}))
    with pytest.raises(DataError, match="There is a score 'RAUQ' already"):
        score("RAUQ")(lambda readings: 0)


def test_scores_need_neither_torch_nor_transformers():
    code = "import sys, headwise.scores\nprint([name for name in ('torch', 'transformers', 'sklearn') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
