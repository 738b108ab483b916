"""Files of steps are read in both layouts, or refused with a sentence that says where and what to do."""

import json

import pytest

from headwise.core.errors import DataError
from headwise.corpora import read_steps


def jsonl(path, *rows):
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def row(number, function, **fields):
    return {"question": f"Q{number}?", "subquestion": f"S{number} {function}?", "answer": f"a{number}"} | {
        "function": function
    } | fields  # fmt: skip


def two_functions(count=10, **fields):
    return [row(number, function, **fields) for number in range(count) for function in ("wit", "charm")]


def cogqa(path, count=20, skills=("Retrieval", "math_calculation"), **changes):
    parts = [{"subquestion": f"What is {skill}?", "answer": skill, "cognitive_skill": skill} for skill in skills]
    rows = [{"question": f"Question {number}?\\nOptions", "answer": "x", "generated": parts} for number in range(count)]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


# ---- the layout of CogQA --------------------------------------------------------------------------------------------


def test_cogqa_is_read_with_its_chains_and_a_drawn_split(tmp_path):
    steps = read_steps(cogqa(tmp_path / "set.json"))
    assert len(steps) == 40
    assert steps.functions == ("Retrieval", "Math Calculation")
    first, second = steps[0], steps[1]
    assert (first.id, first.chain, first.number, first.earlier) == ("set-1-1", "set-1", 1, ())
    assert second.earlier == (("What is Retrieval?", "Retrieval"),)
    assert first.question == "Question 0?\nOptions"
    assert first.answers == ("Retrieval",)
    assert len(steps.split("held-out")) == 16
    assert all(len({step.split for step in chain}) == 1 for chain in steps.chains().values())
    assert steps == read_steps(tmp_path / "set.json")


def test_a_folder_takes_its_splits_from_the_names_of_its_files(tmp_path):
    cogqa(tmp_path / "balanced_train_data.json", 6)
    cogqa(tmp_path / "balanced_test_data.json", 5)
    steps = read_steps(tmp_path)
    assert len(steps.split("train")) == 12
    assert len(steps.split("held-out")) == 10


def test_spellings_of_one_label_are_one_and_rare_labels_are_left_out_with_the_reason(tmp_path):
    path = cogqa(tmp_path / "set.json", 6, ("retrieval", "Decision making", "Wit"))
    rows = json.loads(path.read_text())
    rows[0]["generated"].insert(0, {"subquestion": "Why?", "answer": 12, "cognitive_skill": "Induction"})
    rows[1]["generated"][0]["cognitive_skill"] = "RETRIEVAL"
    path.write_text(json.dumps(rows))
    steps = read_steps(path)
    assert steps.functions == ("Retrieval", "Decision-making", "Wit")
    assert steps.dropped == ("Induction: 1 step, and a function needs 5",)
    assert steps[0].earlier == (("Why?", "12"),) and steps[0].number == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.pop("question"), "row 2 of .* has no field 'question', only answer, generated; fill it"),
        (lambda row: row.update(generated=[]), "row 2 of .* has no list of steps under 'generated'; give a list of"),
        (lambda row: row.update(generated="x"), "row 2 of .* has no list of steps"),
        (lambda row: row["generated"][1].pop("answer"), "step 2 of row 2 of .* has no field 'answer'"),
        (
            lambda row: row["generated"][0].update(cognitive_skill=" "),
            "step 1 of row 2 .* an empty field 'cognitive_skill'",
        ),
        (lambda row: row.pop("generated"), "row 2 of .* has another layout than row 1"),
    ],
)
def test_what_is_missing_in_cogqa_is_named_with_its_row(tmp_path, change, message):
    path = cogqa(tmp_path / "set.json")
    rows = json.loads(path.read_text())
    change(rows[1])
    path.write_text(json.dumps(rows))
    with pytest.raises(DataError, match=message):
        read_steps(path)


# ---- one's own ------------------------------------------------------------------------------------------------------


def test_own_steps_are_read_line_by_line(tmp_path):
    steps = read_steps(jsonl(tmp_path / "own.jsonl", *two_functions(answers=["yes", "yeah"])))
    assert steps.functions == ("wit", "charm")
    assert steps[1].earlier == (("S0 wit?", "a0"),)
    assert steps[0].answers == ("a0", "yes", "yeah")
    assert [step.id for step in steps][:3] == ["own-1-1", "own-1-2", "own-2-1"]
    assert len(steps.split("held-out").chains()) == 4


def test_what_a_row_says_itself_is_kept(tmp_path):
    said = {"earlier": [["E?", "e"]], "answer": "one|1"}
    rows = [one | said | {"id": f"i{n}", "chain": f"c{n // 2}", "split": "test" if n < 8 else "train"}
            for n, one in enumerate(two_functions())]  # fmt: skip
    steps = read_steps(jsonl(tmp_path / "own.jsonl", *rows))
    assert steps[3].id == "i3" and steps[3].chain == "c1"
    assert steps[3].earlier == (("E?", "e"),)
    assert steps[3].answers == ("one", "1")
    assert len(steps.split("held-out")) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subquestion": ""}, "row 3 of .* has an empty field 'subquestion'; fill it"),
        ({"answer": None}, "row 3 of .* has no right answer; fill its field 'answer'"),
        ({"split": "later"}, "row 3 of .* has the split 'later'; write one of train or held-out"),
        ({"earlier": "abc"}, "row 3 of .* under 'earlier'; give a list of"),
        ({"earlier": [["a"]]}, "row 3 of .* under 'earlier'; give a list of"),
        ({"split": "train"}, "row 4 of .* is in no split, and an earlier step of its question train"),
        ({"id": "own-1-1"}, "the id 'own-1-1' is used by 2 steps; give each its own id"),
        ({"chain": "own-1", "question": "Q0?"}, "is used by 2 steps"),
    ],
)
def test_a_malformed_row_is_named(tmp_path, change, message):
    rows = two_functions()
    rows[2] |= change
    with pytest.raises(DataError, match=message):
        read_steps(jsonl(tmp_path / "own.jsonl", *rows))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "contains no rows; give at least one question"),
        ([row(n, "wit") for n in range(9)], "fewer than two usable functions \\(all are 'wit'\\)"),
        (two_functions(2), "fewer than two usable functions .*wit: 2 steps, and a function needs 5"),
        (two_functions(split="train"), "all steps of .* are in the split 'train'; put some questions into the other"),
        (
            [*two_functions(), row(99, "wit", split="test")],
            "is in no split while others are; give all a split, or none",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_steps(jsonl(tmp_path / "own.jsonl", *rows))


def test_what_is_no_file_of_steps_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file or folder"):
        read_steps(tmp_path / "none.json")
    with pytest.raises(DataError, match="contains no file of steps"):
        read_steps(tmp_path)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"question": "Q?"}\n{"question": ', encoding="utf-8")
    with pytest.raises(DataError, match=r"line 2 of .* is not JSON"):
        read_steps(broken)
    (tmp_path / "torn.json").write_text('[{"question": "Q?"},\n {"question": ]', encoding="utf-8")
    with pytest.raises(DataError, match=r"line 2 of .* is not JSON"):
        read_steps(tmp_path / "torn.json")
