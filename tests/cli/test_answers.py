"""`headwise answers` on a hand-made atlas: nothing is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from synthetic.answers import ROWS, answers_dataset
from typer.testing import CliRunner

from headwise.atlas import Atlas
from headwise.cli.main import app
from headwise.core.errors import HeadwiseError


@pytest.fixture
def atlas(tmp_path: Path) -> Path:
    Atlas.create(tmp_path / "atlas").add("answers", answers_dataset())
    return tmp_path / "atlas"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["answers", *map(str, arguments)], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_counts_then_rows(atlas: Path) -> None:
    text = run(atlas)
    assert "4 of 4 answers: 2 correct, 1 refused, 1 wrong; 1 cut at the token limit." in text
    assert "phrase 1" in text
    assert "capitals" in text
    assert "0.50" in text  # of the judged answers about capitals
    for name, _, question, *_ in ROWS:
        assert name in text
        assert question in text
    assert "[bold]Lima[/bold], on and on" in text
    assert "..." in text


def test_filters(atlas: Path) -> None:
    text = run(atlas, "--label", "correct", "--topic", "capitals")
    assert "1 of 4 answers: 1 correct" in text
    assert "Peru" not in text
    assert "1 of 4 answers" in run(atlas, "--rule", "refusal")
    assert "1 of 4 shown; -n shows more" in run(atlas, "-n", 1)
    assert run(atlas, "-n", 2, "--seed", 1) == run(atlas, "-n", 2, "--seed", 1)


def test_nothing_of_that_kind(atlas: Path) -> None:
    text = run(atlas, "--label", "wrong", "--topic", "years")
    assert "None of the 4 answers matches; omit one of --label, --topic and --rule." in text


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--label", "corect", "no answer has the label 'corect'. Did you mean 'correct'"),
        ("--topic", "capitols", "no answer has the topic 'capitols'. Did you mean 'capitals'"),
        ("--rule", "xyz", "no answer has the rule 'xyz'. Known: exact, no match, phrase, refusal"),
    ],
)
def test_unknown_values_have_a_guess(atlas: Path, option: str, value: str, message: str) -> None:
    with pytest.raises(HeadwiseError, match=message):
        run(atlas, option, value)


def test_json(atlas: Path) -> None:
    read = json.loads(run(atlas, "--json", "--topic", "capitals"))
    assert read["counts"]["label"] == {"correct": 1, "refused": 1, "wrong": 1}
    assert [row["id"] for row in read["answers"]] == ["c1", "c2", "c3"]
    assert read["answers"][0]["rule"] == "phrase"


def test_exact_answers_are_found_in_what_is_stored(atlas: Path) -> None:
    rows = {row["id"]: row["exact"] for row in json.loads(run(atlas, "--json"))["answers"]}
    assert rows["c1"] == "Paris"
    assert rows["y1"] == "1666"
    published = json.loads(run(atlas, "--json", "--spans", "published"))["answers"]
    assert published[0]["exact"] == "Paris"
    with pytest.raises(HeadwiseError, match=r"--spans has no method 'golden'\. Known: blind, published"):
        run(atlas, "--spans", "golden")


def test_a_table_in_a_file_has_all_rows(atlas: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "answers.csv") in run(atlas, "-o", tmp_path / "answers.csv", "-n", 1).replace("\n", "")
    frame = pd.read_csv(tmp_path / "answers.csv", index_col="id")
    assert frame.index.tolist() == ["c1", "c2", "c3", "y1"]
    assert {"question", "answer", "gold", "label", "rule"} <= set(frame.columns)


def test_an_atlas_without_answers_says_how_to_get_them(tmp_path: Path) -> None:
    Atlas.create(tmp_path / "atlas")
    with pytest.raises(HeadwiseError, match=r"'answers' is not in the atlas .*headwise build --studies answers"):
        run(tmp_path / "atlas")


def test_the_share_of_correct_answers_stands_only_where_both_kinds_do(atlas: Path) -> None:
    assert "share correct" in run(atlas)
    assert "share correct" not in run(atlas, "--label", "correct")
