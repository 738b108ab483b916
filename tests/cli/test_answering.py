"""Where answers and labels come from, chosen on the command line."""

import json

import pytest
from answered import rows, write
from served import Stub

from headwise.atlas import Atlas


def build(headwise, tiny, questions, folder, *more):
    return headwise("build", tiny, "--studies", "answers", "--questions", questions, "-o", folder / "atlas", *more)


@pytest.fixture
def asked(tmp_path):
    """Questions without answers."""
    return write(tmp_path / "asked.jsonl", [{k: row[k] for k in ("id", "question", "answers")} for row in rows(6)])


def test_answers_and_labels_from_endpoints(headwise, tiny, asked, tmp_path):
    with Stub(lambda body: "gold") as other, Stub(lambda body: "wrong") as judge:
        result = build(
            headwise, tiny, asked, tmp_path,
            "--endpoint", other.url, "--endpoint-model", "other", "--judge", judge.url, "--judge-model", "critic",
        )  # fmt: skip
        assert result.code == 0, result.err
        assert {body["model"] for body in other.bodies} == {"other"}
        assert {body["model"] for body in judge.bodies} == {"critic"}
    answers = Atlas.open(tmp_path / "atlas")["answers"]
    assert set(answers["answer"].values) == {"gold"}
    assert set(answers["label"].values) == {"wrong"}
    assert set(answers["rule"].values) == {"judge"}


def test_options_of_the_study(headwise, tiny, asked, tmp_path):
    result = build(headwise, tiny, asked, tmp_path, "--set", "answers.max_new_tokens=3", "--set", "answers.few_shot=1")
    assert result.code == 0, result.err
    atlas = Atlas.open(tmp_path / "atlas")
    assert atlas["answers"]["answer_tokens"].values.max() <= 3
    assert atlas.provenance("answers").parameters["few_shot"] == 1


def test_labels_of_ones_and_zeros(headwise, tiny, tmp_path):
    made = [{**row, "label": int(row["label"] == "wrong")} for row in rows(6)]
    questions = write(tmp_path / "answers.jsonl", made)
    assert "--one-means" in build(headwise, tiny, questions, tmp_path).refused()
    assert build(headwise, tiny, questions, tmp_path, "--one-means", "wrong").code == 0
    labels = Atlas.open(tmp_path / "atlas")["answers"]["label"].values.tolist()
    assert labels == ["wrong" if row["label"] else "correct" for row in made]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "answers.temprature=1"], "Did you mean 'temperature'?"),
        (["--set", "answers.temperature=-1"], "answers.temperature must be at least 0, not -1"),
        (["--endpoint", "localhost:8000", "--endpoint-model", "m"], "an endpoint is a URL"),
        (["--endpoint", "http://localhost:8000/v1"], "--endpoint-model"),
        (["--judge-model", "m"], "add --judge URL"),
        (["--one-means", "perhaps"], "not 'perhaps'"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(headwise, tiny, asked, tmp_path, arguments, words):
    assert words in build(headwise, tiny, asked, tmp_path, *arguments).refused()
    assert not (tmp_path / "atlas").exists()


def test_an_answer_longer_than_the_context_is_refused_or_dropped(headwise, tiny, tmp_path):
    made = rows(6)
    made[2]["response"] = " ".join([made[2]["response"]] * 2000)
    questions = write(tmp_path / "answers.jsonl", made)
    assert "'q2' does not fit" in build(headwise, tiny, questions, tmp_path).refused()
    assert build(headwise, tiny, questions, tmp_path, "--set", "answers.too_long=drop").code == 0
    answers = Atlas.open(tmp_path / "atlas")["answers"]
    assert answers.sizes["example"] == 5
    assert json.loads(answers.attrs["dropped"]) == ["q2"]


def test_an_empty_answer_is_kept_as_refused(headwise, tiny, tmp_path):
    made = rows(6)
    made[1]["response"] = ""
    assert build(headwise, tiny, write(tmp_path / "answers.jsonl", made), tmp_path).code == 0
    one = Atlas.open(tmp_path / "atlas")["answers"].sel(example="q1")
    assert (str(one["label"].values), str(one["rule"].values)) == ("refused", "empty")


def test_more_eigenvalues_than_tokens_are_refused_and_the_answers_kept(headwise, tiny, tmp_path):
    questions = write(tmp_path / "answers.jsonl", rows(90))
    command = ("build", tiny, "--studies", "spectral", "--questions", questions, "-o", tmp_path / "atlas")
    said = headwise(*command, "--set", "spectral.k=5000").refused()
    assert "k=5000 eigenvalues" in said
    assert "leave k out" in said
    assert Atlas.open(tmp_path / "atlas").studies == ["answers"]
