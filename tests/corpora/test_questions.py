import csv
import json

import pandas as pd
import pytest

from headwise.core.errors import DataError
from headwise.corpora import Question, Questions, packaged_questions, read_questions
from headwise.corpora.prompts import EXAMPLES, PROBLEMS


def jsonl(path, *rows):
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


# ---- the packaged set -----------------------------------------------------------------------------------------------


def test_the_packaged_set_is_what_was_promised():
    questions = packaged_questions()
    assert len(questions) >= 1500
    assert len(questions.topics) >= 12
    assert {item.difficulty for item in questions.items} == {1, 2, 3}
    assert all(item.question and all(item.answers) for item in questions.items)
    assert len({item.id for item in questions.items}) == len(questions)
    assert len({item.question for item in questions.items}) == len(questions)


def test_no_example_of_a_prompt_is_among_the_questions():
    asked = {item.question for item in packaged_questions().items}
    assert not asked & {question for question, _ in (*EXAMPLES, *PROBLEMS)}


def test_the_digest_changes_with_anything():
    one = Question("a", "q?", ("x",))
    first = Questions("n", (one,)).digest
    others = [Question("b", "q?", ("x",)), Question("a", "q", ("x",)), Question("a", "q?", ("y",)),
              Question("a", "q?", ("x",), label="wrong", response="z")]  # fmt: skip
    assert first == Questions("other name", (one,)).digest
    assert len({first, *(Questions("n", (other,)).digest for other in others)}) == 5


def test_samples_are_balanced_nested_and_repeatable():
    questions = packaged_questions()
    some, more = questions.sample(100, seed=1), questions.sample(240, seed=1)
    counts = pd.Series([item.topic for item in more.items]).value_counts()
    assert counts.min() == counts.max() == 10
    assert {item.id for item in some.items} <= {item.id for item in more.items}
    assert some == questions.sample(100, seed=1)
    assert some != questions.sample(100, seed=2)
    assert [item.id for item in some.items] == [item.id for item in questions.items if item in set(some.items)]
    assert len(questions.sample(10**6)) == len(questions)
    with pytest.raises(DataError, match="at least one question, not 0"):
        questions.sample(0)


# ---- a user's own ---------------------------------------------------------------------------------------------------


def test_one_file_in_two_formats(tmp_path):
    rows = [
        {"id": "a", "question": "Q1?", "answers": ["x", "y"], "topic": "t", "difficulty": 2, "context": "c"},
        {"id": "b", "question": "Q2?", "answers": ["z"], "topic": "", "difficulty": 0, "context": ""},
    ]
    expected = (Question("a", "Q1?", ("x", "y"), "t", 2, "c"), Question("b", "Q2?", ("z",)))
    assert read_questions(jsonl(tmp_path / "q.jsonl", *rows)).items == expected
    with (tmp_path / "q.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"answers": "|".join(row["answers"])} for row in rows)
    assert read_questions(tmp_path / "q.csv").items == expected


def test_saved_questions_are_read_back_as_they_were(tmp_path):
    items = (
        Question("a", "How many?", ("4",), numeric=True, wrong_answers=("5", "6|7"), difficulty=2, topic="sums"),
        Question("b", "Which colour?", ("red", "dark | red"), context="It is\nred.", response="", label="wrong"),
        Question("c", "Wohin\u2028denn?", ("nach Köln", "a\x85b")),  # characters at which splitlines() splits
    )
    assert read_questions(Questions("mine", items).save(tmp_path / "mine.jsonl")).items == items
    (tmp_path / "bad.jsonl").write_text('{"question": "q", "answers": ["a"], "numeric": "maybe"}')
    with pytest.raises(DataError, match="'numeric'; give true or false"):
        read_questions(tmp_path / "bad.jsonl")


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="pip install pyarrow")
    pd.DataFrame(
        [{"question": "Q?", "answers": ["x", "y"], "difficulty": 2}, {"question": "R?", "answers": ["z"]}]
    ).to_parquet(tmp_path / "q.parquet")
    first, second = read_questions(tmp_path / "q.parquet").items
    assert (first.answers, first.difficulty) == (("x", "y"), 2)
    assert (second.answers, second.difficulty) == (("z",), 0)


@pytest.mark.parametrize("field", ["answers", "answer", "gold"])
@pytest.mark.parametrize("value", [["x", "y"], "x|y", '["x", "y"]', " x | y |"])
def test_right_answers_in_any_field_and_form(tmp_path, field, value):
    read = read_questions(jsonl(tmp_path / "q.jsonl", {"question": "Q?", field: value}))
    assert read.items[0].answers == ("x", "y")
    assert (read.items[0].id, read.name) == ("q-1", "q.jsonl")


def test_numbers_are_answers_too(tmp_path):
    path = jsonl(tmp_path / "q.jsonl", {"question": "Q?", "answer": 12}, {"question": "R?", "answer": 0.5})
    assert [item.answers for item in read_questions(path).items] == [("12",), ("0.5",)]


@pytest.mark.parametrize(
    ("row", "one_means", "expected"),
    [
        ({"label": "correct"}, None, "correct"),
        ({"label": "Incorrect"}, None, "wrong"),
        ({"label": "refused"}, None, "refused"),
        ({"label": 1}, "correct", "correct"),
        ({"label": 1}, "wrong", "wrong"),
        ({"label": 0}, "wrong", "correct"),
        ({"label": True}, "correct", "correct"),
        ({"label": "False"}, "wrong", "correct"),
        ({"correct": False}, None, "wrong"),
        ({"hallucinated": 1}, None, "wrong"),
        ({"label": None}, None, None),
    ],
)
def test_labels_in_any_form(tmp_path, row, one_means, expected):
    path = jsonl(tmp_path / "q.jsonl", {"question": "Q?", "answers": ["x"], "response": " y ", **row})
    item = read_questions(path, one_means=one_means).items[0]
    assert (item.response, item.label) == ("y", expected)


def test_an_empty_response_is_a_response(tmp_path):
    (tmp_path / "q.csv").write_text("question,answer,response\nQ?,x,\nR?,y,z\n")
    assert [item.response for item in read_questions(tmp_path / "q.csv").items] == ["", "z"]


def test_a_labelled_response_needs_no_right_answer(tmp_path):
    path = jsonl(tmp_path / "q.jsonl", {"question": "Q?", "response": "y", "label": "wrong"})
    assert read_questions(path).items[0].answers == ()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"qestion": "Q?", "answers": ["x"]},
            r"no field 'question'; it has qestion, answers. Rename 'qestion' to 'questi",
        ),
        (
            {"question": "Q?", "anwsers": ["x"]},
            r"no right answers.*it has question, anwsers. Rename 'anwsers' to 'answers'",
        ),
        ({"question": "Q?", "response": "x"}, r"no right answers .* no 'response' with a 'label'"),
        ({"question": "Q?", "answers": []}, r"row 1 of .* has no right answer and no label"),
        ({"question": " ", "answers": ["x"]}, r"no row of .* has a question"),
        ({"question": "Q?", "answers": ["x"], "label": "wrong"}, r"row 1 of .* has a label but no response"),
        (
            {"question": "Q?", "answers": ["x"], "response": "y", "label": "corect"},
            r"label 'corect'. Did you mean 'correct'",
        ),
        (
            {"question": "Q?", "answers": ["x"], "response": "y", "label": 1},
            "may mean correct or wrong; add --one-means",
        ),
        ({"question": "Q?", "answers": ["x"], "response": "y", "correct": "maybe"}, r"'maybe' under 'correct'"),
        ({"question": "Q?", "answers": {"text": "x"}}, r"row 1 of .* cannot be used .*got `object` - at `\$\.answers`"),
        ({"question": "Q?", "answers": ["x"], "difficulty": "hard"}, r"difficulty 'hard'; give a whole number"),
    ],
)
def test_what_is_missing_is_named(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        read_questions(jsonl(tmp_path / "q.jsonl", row))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", "", "contains no rows"),
        ("q.csv", "question,answers\n", "contains no rows"),
        ("q.jsonl", "{not json", r"line 1 of .* is not JSON"),
        ("q.jsonl", "3", r"line 1 of .* is not a JSON object"),
        ("q.csv", "question,answer\na,b,c\n", r"row 1 of .* has more columns"),
        ("q.xlsx", "x", r"suffix '.xlsx'; rows are read from"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_questions(tmp_path / name)


def test_a_damaged_parquet_file(tmp_path):
    pytest.importorskip("pyarrow", reason="pip install pyarrow")
    (tmp_path / "q.parquet").write_text("x")
    with pytest.raises(DataError, match=r"is not a complete .parquet file"):
        read_questions(tmp_path / "q.parquet")


def test_a_missing_file_and_a_binary_one(tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"no file or folder .*mne.jsonl. Did you mean 'mine.jsonl'"):
        read_questions(tmp_path / "mne.jsonl")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_questions(tmp_path / "mine.jsonl")


def test_two_questions_with_one_id_are_refused(tmp_path):
    row = {"id": "a", "question": "Q?", "answers": ["x"]}
    with pytest.raises(DataError, match="the id 'a' is used by 2 questions"):
        read_questions(jsonl(tmp_path / "q.jsonl", row, row))


def test_what_one_means_is_one_of_two_words(tmp_path):
    with pytest.raises(DataError, match=r"--one-means .* takes correct or wrong, not 'right'"):
        read_questions(tmp_path / "q.jsonl", one_means="right")
