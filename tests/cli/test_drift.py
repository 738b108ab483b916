"""`headwise drift`: a log against another, or against its own beginning."""

import json

import numpy as np
import pytest


@pytest.fixture
def logs(tmp_path):
    """400 answers as before; 400 of which the second half has larger scores."""
    random = np.random.default_rng(0)
    for name, shift in (("old.jsonl", 0.0), ("new.jsonl", 2.0)):
        values = random.normal(size=400) + shift * (np.arange(400) >= 200)
        lines = [json.dumps({"score": "detector", "value": value, "alarm": bool(value > 1.5)}) for value in values]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "other.jsonl").write_text('{"score": "logprob_min", "value": 1}\n' * 40)
    (tmp_path / "bad.jsonl").write_text('{"score": "detector", "value": 1}\n{"score": "detector"}\n')
    return tmp_path


def test_a_log_is_compared_with_another(headwise, logs):
    said = headwise("drift", "new.jsonl", "--reference", "old.jsonl", cwd=logs)
    assert said.code == 0, said.err
    assert "Drift: new.jsonl against old.jsonl" in said.out
    assert "The answers drifted: 3 of 3 tests have q < 0.05" in said.out
    assert "in answers 201 to 250 of the log" in said.out


def test_a_log_is_compared_with_its_own_beginning(headwise, logs):
    said = headwise("drift", "new.jsonl", cwd=logs)
    assert said.code == 0 and "new.jsonl from answer 201 on against its first 200" in said.out
    found = json.loads(headwise("drift", "new.jsonl", "--first", "100", "--json", cwd=logs).out)
    assert found["answers"] == {"reference": 100, "new": 300} and found["drifted"]
    assert found["windows"][found["began"]]["first"] == 201
    assert not json.loads(headwise("drift", "old.jsonl", "--json", cwd=logs).out)["drifted"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nowhere.jsonl", "LOG names 'nowhere.jsonl', but there is no such file or folder"),
        ("new.jsonl --reference nowhere", "--reference names 'nowhere', but there is no such file"),
        ("new.jsonl --reference old.jsonl --first 5", "both say what to compare with; omit one of them."),
        ("new.jsonl --first 400", "--first 400 leaves no new answers: new.jsonl has 400; give a smaller number."),
        (
            "new.jsonl --first 390",
            "There are 390 answers in the reference and 10 new ones, and drift needs at least 20",
        ),
        ("new.jsonl --first 0", "--first takes a whole number of at least 1, not '0'."),
        ("new.jsonl --reference other.jsonl", "has the score 'detector' and other.jsonl 'logprob_min'"),
        ("bad.jsonl", "line 2 of bad.jsonl is not a scored answer (Object missing required field `value`)"),
        ("new.jsonl --reference bad.jsonl", "line 2 of bad.jsonl is not a scored answer"),
    ],
)
def test_what_cannot_be_compared_is_refused(headwise, logs, words, sentence):
    assert sentence in headwise("drift", *words.split(), cwd=logs).refused()
