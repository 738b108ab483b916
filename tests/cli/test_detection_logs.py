"""`headwise detect --log`: answers of real evaluation logs are scored, and compared with what the log says of them."""

import json
from pathlib import Path

import pytest
from answered import rows, write

LOGS = Path(__file__).parents[1] / "corpora" / "logs"


def scores(result) -> list[dict]:
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_a_log_of_inspect_is_scored_with_its_verdict(headwise, detected, tiny):
    result = headwise("detect", detected, "--log", LOGS / "facts.eval", "--model", tiny)
    found = {one["id"]: one for one in scores(result)}
    assert set(found) == {f"fact-{number}" for number in range(8)}
    assert found["fact-0"]["answer"] == "The capital of Norway is Oslo." and found["fact-0"]["label"] == "correct"
    assert all(0 <= one["probability"] <= 1 for one in found.values())
    assert (
        "8 answers scored, 3 wrong and 5 correct according to includes (--verdict takes match instead). AUROC"
        in result.err
    )
    assert "the log names its model 'hf/local', the atlas" in result.err
    assert result.err.count("8 of 8 prompts in the log differ from those the detector was fitted with") == 1


def test_samples_of_lm_eval_are_scored_and_one_class_is_said(headwise, detected, tiny):
    log = LOGS / "samples_short_facts.jsonl"
    result = headwise("detect", detected, "--log", log, "--model", tiny)
    assert [one["label"] for one in scores(result)] == ["wrong"] * 8
    assert "an AUROC needs wrong and correct answers." in result.err
    result = headwise("detect", detected, "--log", log, "--verdict", "exact_match,last-word", "--model", tiny)
    assert [one["label"] for one in scores(result)].count("correct") == 3
    assert "5 wrong and 3 correct according to exact_match,last-word" in result.err


def test_rows_are_scored_as_data_is(headwise, detected, tiny, tmp_path):
    """The scores are those of --data; the detector was fitted on such labels, and finds them again."""
    data = write(tmp_path / "new.jsonl", rows(12))
    as_log = headwise("detect", detected, "--log", data, "--model", tiny)
    as_data = headwise("detect", detected, "--data", data, "--model", tiny)
    assert [one | {"label": None} for one in scores(as_log)] == [one | {"label": None} for one in scores(as_data)]
    assert "prompts" not in as_log.err and "AUROC" in as_log.err
    unlabelled = write(
        tmp_path / "bare.jsonl", [{"question": one["question"], "response": one["response"]} for one in rows(3)]
    )
    result = headwise("detect", detected, "--log", unlabelled, "--model", tiny)
    assert "label" not in scores(result)[0] and "does not say which are wrong" in result.err


def test_answers_that_are_empty_have_no_score_and_do_not_count(headwise, detected, tiny, tmp_path):
    made = rows(8)
    made[0]["response"] = ""
    result = headwise("detect", detected, "--log", write(tmp_path / "new.jsonl", made), "--model", tiny)
    assert scores(result)[0]["probability"] is None
    counted = sum(one["label"] == made[0]["label"] for one in made[1:])
    assert f"{counted} {made[0]['label']}" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([LOGS / "samples_facts_choice.jsonl"], "2 that choose among options"),
        ([LOGS / "facts.eval", "--verdict", "mach"], "Did you mean 'match'?"),
        ([LOGS / "README.md"], "is not JSON"),
    ],
)
def test_what_cannot_be_scored_is_refused(headwise, detected, arguments, words):
    assert words in headwise("detect", detected, "--log", *arguments).refused()
