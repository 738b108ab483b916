"""Logs of evaluations: real excerpts (tests/corpora/logs) are read, and everything else is refused with one sentence."""

import gzip
import json
import struct
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numcodecs
import pytest

from headwise.core.errors import DataError
from headwise.corpora import evaluation_logs
from headwise.corpora.evaluation_logs import asked_alike, read_evaluation_log

LOGS = Path(__file__).parent / "logs"
SAMPLE = {
    "doc_id": 0, "doc": {"question": "Why?"}, "resps": [["So."]], "filter": "none", "metrics": ["exact_match"],
    "arguments": {"gen_args_0": {"arg_0": "Why?", "arg_1": {"until": ["\n"]}}}, "exact_match": 1.0,
}  # fmt: skip
HEADER = {"eval": {"model": "hf/some/model"}}
INSPECT = {"id": 1, "epoch": 1, "input": "Why?", "output": {"completion": "So."}, "scores": {"match": {"value": "C"}}}


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def archive(path: Path, entries: dict[str, object], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, value in entries.items():
            file.writestr(name, value if isinstance(value, str) else json.dumps(value))
    return path


def refusal(path: Path, **options: str) -> str:
    with pytest.raises(DataError) as caught:
        read_evaluation_log(path, **options)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 1000
    return said


# ---- real logs ------------------------------------------------------------------------------------------------------


def test_samples_of_lm_eval_are_one_answer_per_row_with_a_verdict_per_filter():
    log = read_evaluation_log(LOGS / "samples_short_facts.jsonl")
    assert (log.kind, log.verdict) == ("lm-eval", "exact_match,strict-match")
    assert log.verdicts == ("exact_match,strict-match", "exact_match,last-word")
    assert [one.question.id for one in log.answers] == [str(number) for number in range(8)]
    first = log.answers[0]
    assert first.question.question == "What is the capital of Norway?"
    assert first.question.response == "The capital of Norway is Oslo."
    assert isinstance(first.prompt, str) and "<|im_start|>user\nQuestion: What is" in first.prompt
    assert {one.question.label for one in log.answers} == {"wrong"}  # strict: none is a bare name


def test_another_verdict_gives_other_labels():
    log = read_evaluation_log(LOGS / "samples_short_facts.jsonl", verdict="exact_match,last-word")
    assert [one.question.label for one in log.answers].count("correct") == 3
    assert "Did you mean 'exact_match,last-word'?" in refusal(
        LOGS / "samples_short_facts.jsonl", verdict="exact_match,last-wrod"
    )


def test_choices_by_log_likelihood_are_not_answers():
    said = refusal(LOGS / "samples_facts_choice.jsonl")
    assert "no generated answer to score (2 that choose among options)" in said


def test_inspect_s_zip_and_its_json_are_one_log():
    packed, plain = read_evaluation_log(LOGS / "facts.eval"), read_evaluation_log(LOGS / "facts.json")
    assert (packed.kind, packed.model, packed.verdicts) == ("Inspect", "hf/local", ("includes", "match"))
    by_id = {one.question.id: one for one in packed.answers}
    assert len(by_id) == 8 and all(by_id[one.question.id] == one for one in plain.answers)
    norway = by_id["fact-0"]
    assert norway.question.question == "What is the capital of Norway?"
    assert norway.prompt == [{"role": "user", "content": "Answer in a few words. What is the capital of Norway?"}]
    assert (norway.question.response, norway.question.label) == ("The capital of Norway is Oslo.", "correct")


def test_a_log_is_known_by_its_content_not_by_its_name(tmp_path):
    copy = tmp_path / "log.txt"
    copy.write_bytes((LOGS / "facts.eval").read_bytes())
    assert read_evaluation_log(copy).kind == "Inspect"
    copy.write_bytes(gzip.compress((LOGS / "samples_short_facts.jsonl").read_bytes()))
    assert read_evaluation_log(copy).kind == "lm-eval"


def test_entries_that_zip_itself_can_unpack_are_read(tmp_path):
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = archive(tmp_path / "a.eval", {"header.json": HEADER, "samples/1_epoch_1.json": INSPECT}, method)
        log = read_evaluation_log(path)
        assert (log.model, log.answers[0].question.response, log.answers[0].question.label) == (
            "hf/some/model",
            "So.",
            "correct",
        )


# ---- what a log may hold --------------------------------------------------------------------------------------------


def test_rows_need_no_label_and_no_right_answers(tmp_path):
    row = {"question": "Why?", "response": "So."}
    log = read_evaluation_log(lines(tmp_path / "a.jsonl", row, row | {"id": "b", "response": None}))
    assert (log.kind, log.verdict, log.left_out) == ("rows", "", {"without an answer": 1})
    assert log.answers[0].question.id == "a-1"
    assert "omit --verdict" in refusal(tmp_path / "a.jsonl", verdict="match")
    log = read_evaluation_log(lines(tmp_path / "a.jsonl", row | {"label": 1}), one_means="wrong")
    assert log.answers[0].question.label == "wrong"
    assert "--one-means" in refusal(tmp_path / "a.jsonl")
    assert "omit --one-means" in refusal(lines(tmp_path / "b.jsonl", SAMPLE), one_means="wrong")


def test_older_samples_of_lm_eval_are_read(tmp_path):
    older = {name: value for name, value in SAMPLE.items() if name not in ("metrics", "filter")}
    older |= {"arguments": [["Why?", {"until": ["\n"]}]], "prompt_hash": "0", "target": "So."}
    log = read_evaluation_log(lines(tmp_path / "a.jsonl", older))
    assert (log.verdict, log.answers[0].prompt, log.answers[0].question.label) == (
        "exact_match,none",
        "Why?",
        "correct",
    )


def test_a_measure_between_right_and_wrong_is_no_verdict(tmp_path):
    path = lines(tmp_path / "a.jsonl", SAMPLE | {"metrics": ["f1"], "f1": 0.4})
    assert read_evaluation_log(path).verdict == ""
    assert "not all right or wrong" in refusal(path, verdict="f1")
    assert "omit --verdict" in refusal(path, verdict="match")


def test_only_the_first_of_repeated_answers_counts_and_failures_are_counted(tmp_path):
    several = SAMPLE | {"resps": [["So.", "Because."]]}
    log = read_evaluation_log(lines(tmp_path / "a.jsonl", several, SAMPLE | {"doc_id": 1, "resps": [[]]}))
    assert [one.question.response for one in log.answers] == ["So."]
    assert log.left_out == {"that repeat a question of one row": 1, "without an answer": 1}


def test_a_text_to_answer_from_goes_with_the_question(tmp_path):
    doc = {"question": "Why?", "context": "It rained."}
    assert read_evaluation_log(lines(tmp_path / "a.jsonl", SAMPLE | {"doc": doc})).answers[0].question.context


@pytest.mark.parametrize(
    ("value", "label"),
    [("C", "correct"), ("I", "wrong"), ("N", "refused"), (True, "correct"), (0, "wrong"), (1.0, "correct")],
)
def test_values_of_inspect_s_scorers(tmp_path, value, label):
    sample = INSPECT | {"scores": {"one": {"value": value}}}
    log = read_evaluation_log(lines(tmp_path / "a.json", HEADER | {"samples": [sample]}))
    assert log.answers[0].question.label == label


def test_partly_right_and_unscored_answers_have_no_label(tmp_path):
    values = ["C", "P", float("nan"), None]
    samples = [INSPECT | {"id": number, "scores": {"one": {"value": value}}} for number, value in enumerate(values)]
    log = read_evaluation_log(lines(tmp_path / "a.json", HEADER | {"samples": samples}))
    assert [one.question.label for one in log.answers] == ["correct", None, None, None]
    other = [INSPECT | {"scores": {"one": {"value": {"a": 1}}, "two": {"value": [1]}, "three": {"value": 0.5}}}]
    assert read_evaluation_log(lines(tmp_path / "a.json", HEADER | {"samples": other})).verdict == ""


def test_chats_attachments_epochs_and_choices_of_inspect(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
    answer = {
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "Hm"}, {"type": "text", "text": "attachment://a"}],
    }
    first = {
        "id": "s", "epoch": 1, "input": chat, "messages": [*chat, answer], "attachments": {"a": "A long answer."},
        "output": {"choices": [{"message": answer}]},
    }  # fmt: skip
    samples = [first, first | {"epoch": 2}, INSPECT | {"choices": ["a", "b"]}, INSPECT | {"output": {}, "error": {}}]
    log = read_evaluation_log(lines(tmp_path / "a.json", HEADER | {"samples": samples}))
    assert [one.question.id for one in log.answers] == ["s (epoch 1)", "s (epoch 2)"]
    assert (log.answers[0].question.question, log.answers[0].question.response) == ("Why?", "A long answer.")
    assert log.answers[0].prompt == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    assert log.left_out == {"that choose among options": 1, "without an answer": 1}
    lost = lines(tmp_path / "a.json", HEADER | {"samples": [first | {"attachments": {}}]})
    assert "names the attachment 'a', which is not in it" in refusal(lost)


def test_prompts_are_compared_with_ours():
    log = read_evaluation_log(LOGS / "samples_short_facts.jsonl")
    ours = SimpleNamespace(apply_chat_template=lambda chat, **_: log.answers[0].prompt)
    assert asked_alike(log.answers[0], ours, few_shot=0, chat=True)
    assert not asked_alike(log.answers[1], ours, few_shot=0, chat=True)
    assert not asked_alike(log.answers[0], ours, few_shot=5, chat=False)


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is no log that Headwise knows; it has no rows"),
        ('{"prompt": "a"}\n', "it has prompt. Give rows with question and response"),
        ('{"question": "a"', "line 1 of"),
        ('{"question": "a", "response": "b"}\n{"question": ', "line 2 of"),
        ('{"question": "a", "response": "b"}\n{"question": null, "response": "b"}', "row 2 of"),
        ('{"question": "a", "response": "b"}\n{"question": {}, "response": "b"}', "row 2 of"),
        ('{"id": 1, "question": "a", "response": "b"}\n{"id": 1, "question": "a", "response": "c"}', "used by 2 samples"),
        ("{\n", "is cut off or not JSON (line"),
        ('{\n"a": 1}', "is a JSON document, but not a log of Inspect"),
        ('{"eval": {"model": 5}}', "is a JSON document, but not a log of Inspect"),
        ('{"eval": {"model": "m"}, "samples": [{"id": 1}]}', "not a log of Inspect"),
        ('{"eval": {"model": "m"}, "samples": null}', "no generated answer to score (it is empty)"),
        (json.dumps(SAMPLE) + "\n" + json.dumps(SAMPLE), "has the doc_id '0' for the second time"),
        (json.dumps(SAMPLE) + '\n{"doc": 5}', "row 2 of"),
        (json.dumps(SAMPLE | {"doc": {"story": "a"}}), "has a doc without a question"),
        ("[" * 100_000, "nested too deep"),
    ],
)  # fmt: skip
def test_malformed_logs_are_refused(tmp_path, content, words):
    (tmp_path / "log.jsonl").write_text(content)
    assert words in refusal(tmp_path / "log.jsonl")


def test_folders_and_missing_files_are_refused(tmp_path):
    assert "is a folder; give one log in it" in refusal(tmp_path)
    assert "cannot be read" in refusal(tmp_path / "nowhere.eval")


def test_a_zip_of_something_else_or_a_damaged_one_is_refused(tmp_path):
    assert "it has no header.json" in refusal(archive(tmp_path / "a.eval", {"word/document.xml": "<a/>"}))
    entries = {"header.json": HEADER, "samples/1.json": '{"id": 1}'}
    assert "samples/1.json in" in refusal(archive(tmp_path / "a.eval", entries))
    whole = (LOGS / "facts.eval").read_bytes()
    for damaged in (whole[:-2000], whole[:3000] + b"\0" * 40 + whole[3040:], whole[:1000]):
        (tmp_path / "a.eval").write_bytes(damaged)
        assert "inspect log convert" in refusal(tmp_path / "a.eval")


def test_a_zip_that_declares_more_than_there_is_memory_is_refused(tmp_path, monkeypatch):
    path = archive(tmp_path / "a.eval", {"header.json": HEADER, "samples/1.json": "0" * 10**6})
    monkeypatch.setattr(evaluation_logs, "room_for", lambda size: size < 10**6)
    assert "more than there is memory" in refusal(path)


def test_an_entry_that_unpacks_to_more_than_it_declares_is_not_unpacked(tmp_path):
    """64 MB of blanks in an entry that declares 100 bytes."""
    packed = archive(tmp_path / "honest.eval", {"header.json": {"eval": {"model": "m" + " " * 2**26}}})
    with zipfile.ZipFile(packed) as file:
        size = file.getinfo("header.json").file_size
    content = packed.read_bytes().replace(struct.pack("<L", size), struct.pack("<L", 100))
    (tmp_path / "bomb.eval").write_bytes(content)
    tracemalloc.start()
    assert "cannot be unpacked" in refusal(tmp_path / "bomb.eval")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


def test_an_entry_that_unpacks_to_more_than_it_declares_is_refused(tmp_path):
    """The declared size is the buffer's: what follows is never unpacked."""
    if hasattr(zipfile, "ZIP_ZSTANDARD"):
        pytest.skip("zipfile unpacks Zstandard itself")
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.json", numcodecs.Zstd().encode(b" " * 10**7))
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        directory = file.start_dir
    raw[8:10] = raw[directory + 10 : directory + 12] = (93).to_bytes(2, "little")  # the method of the entry
    path.write_bytes(raw)
    assert "cannot be unpacked" in refusal(path)


DEEP = "[" * 100_000
VALUES = (
    '{"a": 1}', '[["x"], {"b": 2}]', '"\\ud800"', "9" * 5000, "1e400", "-Infinity", "NaN", "null", "true", "[]", "{}", '""',
    '"x"', '[null, 5, "\\udfff"]', "[[]]", '{"a": {"value": []}}', '[{"role": "user"}]', '{"choices": [{"message": {}}]}', DEEP,
)  # fmt: skip
DOCUMENT = HEADER | {"samples": [INSPECT]}


@pytest.mark.parametrize(
    "whole",
    [SAMPLE, DOCUMENT, INSPECT, {"question": "a", "response": "b", "label": "wrong", "id": "c", "context": "d"}],
)
def test_every_value_in_every_field_is_read_or_refused(whole, tmp_path):
    path = tmp_path / "log.json"
    for field in [*whole, "choices", "messages", "attachments"]:
        others = json.dumps({name: value for name, value in whole.items() if name != field})
        for value in VALUES:
            content = f'{others[:-1]}, "{field}": {value}}}'
            path.write_text(
                content if whole is not INSPECT else f'{{"eval": {{"model": "m"}}, "samples": [{content}]}}'
            )
            said = ""
            try:
                read_evaluation_log(path)
            except DataError as refused:
                said = str(refused)
            assert "\n" not in said and len(said) < 1000, (field, value[:40])
