"""Data files of other people: every one is read, or refused with one sentence; never a traceback, never more than memory."""

import gzip
import json

import pytest

from headwise.core.errors import DataError
from headwise.corpora import rows
from headwise.corpora.passages import read_passages
from headwise.corpora.questions import parse_question_line, read_questions
from headwise.corpora.relations import read_relations
from headwise.corpora.step_files import read_steps

DEEP = "[" * 100_000
VALUES = (
    '{"a": 1}', '[["x"], {"b": 2}]', '"\\ud800"', "9" * 5000, "1e400", "-Infinity", "NaN", "null", "true", "[]", '""', '"x"',
    '[null, 5, "\\udfff"]', DEEP, '{"": {"": {"": []}}}',
)  # fmt: skip
FIELDS = {
    read_questions: (
        "question",
        "answers",
        "gold",
        "response",
        "label",
        "difficulty",
        "numeric",
        "id",
        "wrong_answers",
    ),
    read_passages: ("text", "id", "register", "language"),
    read_steps: ("question", "subquestion", "answer", "answers", "function", "earlier", "split", "chain", "generated"),
}
WHOLE = {
    "question": "Q?", "answers": ["a"], "answer": "a", "response": "r", "label": "wrong", "text": "the river",
    "subquestion": "S?", "function": "wit",
}  # fmt: skip


def refusal(reader, path) -> str:
    """What a reader says; empty if it reads the file. Any other exception is the finding."""
    try:
        reader(path)
    except DataError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("reader", FIELDS, ids=lambda one: one.__name__)
def test_every_value_in_every_field_is_read_or_refused(reader, tmp_path):
    path = tmp_path / "rows.jsonl"
    for field in FIELDS[reader]:
        others = json.dumps({name: value for name, value in WHOLE.items() if name != field})
        for value in VALUES:
            path.write_text(f'{others[:-1]}, "{field}": {value}}}\n')
            said = refusal(reader, path)
            assert "\n" not in said and len(said) < 1000, (field, value[:40])


@pytest.mark.parametrize("text", VALUES)
def test_every_value_as_relations_is_read_or_refused(text, tmp_path):
    path = tmp_path / "pairs.json"
    for content in (
        text,
        f'{{"r": {text}}}',
        f'{{"r": {{"pairs": [["a", "b"]], "templates": {text}}}}}',
        f"[[{text}]]",
    ):
        path.write_text(content)
        assert "\n" not in refusal(read_relations, path)


def test_a_number_is_a_response_as_good_as_any():
    assert parse_question_line('{"question": "a", "response": 5}', 1, "line 1").response == "5"
    assert parse_question_line('{"question": "a", "response": null}', 1, "line 1").response is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": {"a": 1}}', "got `object` - at `$.question`"),
        ('{"response": "x"}', 'has no "question"'),
        ('{"question": "a", "response": ["x"]}', "got `array` - at `$.response`"),
        ('{"question": "a", "answer": ["x"]}', "a list where one response is expected"),
        ('["question"]', "is not a JSON object"),
        ('{"question": "\\ud800"}', "not UTF-8 text"),
        (DEEP, "nested too deep"),
    ],
)
def test_a_line_of_standard_input_is_refused_in_one_sentence(line, words):
    with pytest.raises(DataError) as refused:
        parse_question_line(line, 7, "line 7 of standard input")
    assert words in str(refused.value) and str(refused.value).startswith("line 7 of standard input ")


def test_a_packed_file_that_is_cut_off(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    whole = gzip.compress(b'{"question": "Q?", "answers": ["a"]}\n' * 50)
    for content in (whole[:-9], whole[:12], b"\x1f\x8b" + bytes(30), whole[:15] + b"\xff\xff\xff" + whole[18:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"rows\.jsonl\.gz cannot be read .*; check the file"):
            read_questions(path)


def test_a_packed_file_is_not_unpacked_beyond_the_memory(tmp_path, monkeypatch):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(bytes(2**20)))
    monkeypatch.setattr(rows, "BLOCK", 1000)
    asked = []
    monkeypatch.setattr(rows, "room_for", lambda size: asked.append(size) or size < 40_000)
    with pytest.raises(DataError, match=r"unpacks to more than 10\.0 kB, more than there is memory"):
        read_questions(tmp_path / "rows.jsonl.gz")
    assert max(asked) == 40_000, "nothing was unpacked after that"


def test_a_field_of_any_length_in_a_csv(tmp_path):
    long = "x" * 200_000
    (tmp_path / "q.csv").write_text(f"question,answers,context\nQ?,a,{long}\n")
    assert read_questions(tmp_path / "q.csv").items[0].context == long
    (tmp_path / "r.csv").write_text(f"source,target\nhot,{long}\n")
    assert read_relations(tmp_path / "r.csv")["r"].pairs == (("hot", long),)


def test_a_table_that_declares_more_than_there_is_memory(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    repeated = arrow.DictionaryArray.from_arrays(arrow.array([0] * 200_000, arrow.int8()), arrow.array(["Q?"]))
    path = tmp_path / "q.parquet"
    parquet.write_table(arrow.table({"question": repeated, "answers": repeated}), path)
    assert path.stat().st_size < 5000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "room_for", lambda size: size < 20_000_000)
        with pytest.raises(DataError, match=r"declares 2\d\.\d MB, more than there is memory"):
            read_questions(path)


def test_a_difficulty_without_end(tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "Q?", "answers": ["a"], "difficulty": 1e400}')
    with pytest.raises(DataError, match="difficulty 'inf'; give a whole number"):
        read_questions(tmp_path / "q.jsonl")
