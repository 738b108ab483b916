"""Answers that a model gave elsewhere, in the logs of evaluations: what was asked, what it said, what the log made of it.

The kind of a log is found by what is in it, whatever it is called:

    rows       .jsonl, .csv, .parquet   our own: fields question and response; optionally id, context, label
    lm-eval    samples_*.jsonl          what `lm_eval --log_samples` writes: doc, arguments, resps, one field per metric
    Inspect    .eval, .json             what `inspect eval` writes: a zip with a file per sample, or one JSON document

Verdict: lm-eval judges an answer by metrics, each under one or more filters (`exact_match,strict-match`), Inspect by
scorers (`includes`, `match`). The label is taken from one of them: the first whose values are all right or wrong (1 and 0,
C and I; N is a refusal, P, partly right, is no label), or the one that is named.

Left out, and counted: samples that failed before an answer; those that choose among options, by log-likelihood or by a
letter (the question alone does not say what was asked); all but the first of several answers to one row of lm-eval.

Zstandard: Inspect packs its entries with it, and `zipfile` reads that from Python 3.14 on. With an older Python the bytes of
an entry are unpacked by numcodecs, which the atlas requires anyway, into a buffer of the size that the zip declares.

Logs come from other people: all sizes that a zip declares are compared with the free memory first, and every sample is read
as a declared type. Cost: that of parsing the log; of a zip, one sample at a time.
"""

from __future__ import annotations

import copy
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numcodecs

from headwise.core.errors import DataError, did_you_mean
from headwise.core.memory import in_bytes, room_for
from headwise.core.parsing import parse
from headwise.corpora.matching import CORRECT, REFUSED, WRONG
from headwise.corpora.prompts import question_prompt
from headwise.corpora.questions import Question, QuestionRow, given_label, given_response
from headwise.corpora.rows import (
    Row,
    cell_text,
    json_rows,
    read_rows,
    read_text,
    require_unique_ids,
    translate_read_errors,
    typed_row,
)

ZIP = b"PK\x03\x04"  # how such a file begins
ZSTANDARD = 93  # a compression method of zips
TABLES = (".csv", ".parquet", ".arrow")
LABEL_OF: dict[object, str | None] = {
    "C": CORRECT,
    "I": WRONG,
    "N": REFUSED,
    "P": None,
    1: CORRECT,
    0: WRONG,
}  # True is 1
QUESTION_FIELDS = (
    "question",
    "query",
    "problem",
    "input",
    "instruction",
)  # of the rows of datasets, the first that is there
CONTEXT_FIELDS = ("context", "passage")
ATTACHMENT = "attachment://"  # Inspect stores long texts once
Prompt = str | list[dict[str, str]]
Value = str | int | float | bool | None | list[Any] | dict[str, Any]

FAILED = "without an answer"
CHOICE = "that choose among options"
REPEATED = "that repeat a question of one row"


@dataclass(frozen=True)
class LoggedAnswer:
    """One answer of a log.

    Examples:
        >>> asked = Question("7", "2 + 2?", (), response="5", label="wrong")
        >>> LoggedAnswer(asked, "Q: 2 + 2? A:", {"exact_match,none": 0.0}).question.response
        '5'
    """

    question: Question  # with the log's id, the response, and the log's own label where it has one
    prompt: Prompt | None = None  # what the model was shown, as a text or as the turns of a chat; None: unknown
    values: Mapping[str, Value] = field(default_factory=dict)  # metric or scorer -> what it gave


@dataclass(frozen=True)
class EvaluationLog:
    """The answers of a log, made by `read_evaluation_log`.

    Examples:
        >>> row = '{"id": "n", "question": "What is the capital of Norway?", "response": "Bergen", "label": "wrong"}'
        >>> _ = (folder / "answers.jsonl").write_text(row)
        >>> log = read_evaluation_log(folder / "answers.jsonl")
        >>> log.kind, log.verdict, log.answers[0].question.label
        ('rows', 'label', 'wrong')
    """

    kind: str  # rows, lm-eval or Inspect
    answers: tuple[LoggedAnswer, ...]  # those that can be scored
    verdict: str = ""  # the metric or scorer that the labels are of; empty: the log judges nothing
    verdicts: tuple[str, ...] = ()  # all that could be asked for
    model: str = ""  # as the log names it
    left_out: Mapping[str, int] = field(default_factory=dict)  # what is not scored -> how many


def read_evaluation_log(path: str | Path, *, verdict: str | None = None, one_means: str | None = None) -> EvaluationLog:
    """The answers of a log of lm-eval or Inspect, or of rows with a question and a response.

    Args:
        path: the log.
        verdict: the metric or scorer to take the labels from, where the log has several; None: the first that can be used.
        one_means: "correct" or "wrong": the meaning of 1 in the column `label` of rows.

    Returns:
        The answers, with what the log says of them.

    Examples:
        >>> sample = {"doc_id": 7, "doc": {"question": "2 + 2?"}, "resps": [[" 5"]], "metrics": ["exact_match"],
        ...           "arguments": {"gen_args_0": {"arg_0": "Q: 2 + 2? A:", "arg_1": {"until": ["Q:"]}}}, "exact_match": 0.0}
        >>> _ = (folder / "samples_sums.jsonl").write_text(json.dumps(sample))
        >>> log = read_evaluation_log(folder / "samples_sums.jsonl")
        >>> asked = log.answers[0].question
        >>> log.kind, log.verdict, asked.id, asked.response, asked.label
        ('lm-eval', 'exact_match,none', '7', '5', 'wrong')
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(
            f"{path} is a folder; give one log in it, such as samples_TASK.jsonl or a file that ends in .eval"
        )
    left_out: Counter[str] = Counter()
    with translate_read_errors(path):
        with path.open("rb") as file:
            begins = file.read(len(ZIP))
        if begins == ZIP:
            kind, (model, samples) = "Inspect", _inspect_archive(path)
            answers = list(_inspect_answers(samples, path, left_out))
        elif path.suffix in TABLES:
            kind, model, answers = "rows", "", _own_rows(read_rows(path), path, one_means, left_out)
        else:
            kind, model, answers = _json_log(read_text(path), path, one_means, left_out)
    if not answers:
        why = ", ".join(f"{count} {what}" for what, count in left_out.items()) or "it is empty"
        raise DataError(
            f"{path} has no generated answer to score ({why}); give a log of a task that generates its answers"
        )
    require_unique_ids([one.question for one in answers], "samples")
    if kind == "rows":
        if verdict is not None:
            raise DataError(f"{path} holds rows, whose only verdict is their label; omit --verdict (verdict=)")
        label = "label" if any(one.question.label for one in answers) else ""
        return EvaluationLog(kind, tuple(answers), label, (label,) if label else (), left_out=left_out)
    if one_means is not None:
        raise DataError(f"{path} is a log of {kind}, which says what is right; omit --one-means (one_means=)")
    chosen, usable = _verdict(answers, verdict, path)
    labelled = [replace(one, question=replace(one.question, label=_label(one.values.get(chosen)))) for one in answers]
    return EvaluationLog(kind, tuple(labelled), chosen, usable, model, left_out)


def asked_alike(answer: LoggedAnswer, tokenizer: Any, *, few_shot: int, chat: bool) -> bool:
    """Whether the model was shown what Headwise would have shown it, as far as the log tells (it may not: then True)."""
    ours = question_prompt(answer.question, few_shot=few_shot, chat=chat)
    if answer.prompt is None or answer.prompt == ours:
        return True
    if not chat or not isinstance(answer.prompt, str):
        return False
    return answer.prompt == str(tokenizer.apply_chat_template(ours, tokenize=False, add_generation_prompt=True))


def _json_log(
    text: str, path: Path, one_means: str | None, left_out: Counter[str]
) -> tuple[str, str, list[LoggedAnswer]]:
    """A text of JSON as kind, name of the model and answers: one document of Inspect's, or rows."""
    document = _document(text, path)
    if document is not None:
        samples = ((f"sample {number} of {path}", one) for number, one in enumerate(document.samples or (), start=1))
        return "Inspect", document.eval.model, list(_inspect_answers(samples, path, left_out))
    rows = json_rows(text, path)
    first = set(rows[0]) if rows else set()
    if {"doc", "arguments", "resps"} <= first:
        return "lm-eval", "", _lm_eval_answers(rows, path, left_out)
    return "rows", "", _own_rows(rows, path, one_means, left_out)


# ---- our own rows ---------------------------------------------------------------------------------------------------


def _own_rows(rows: Sequence[Row], path: Path, one_means: str | None, left_out: Counter[str]) -> list[LoggedAnswer]:
    fields = list(rows[0]) if rows else []
    if not {"question", "response"} <= set(fields):
        named = ", ".join(" ".join(name.split())[:80] for name in fields[:12]) or "no rows"
        raise DataError(
            f"{path} is no log that Headwise knows; it has {named}. Give rows with question and response, a samples_*.jsonl "
            "of lm_eval --log_samples, or a log of Inspect (.eval or .json)"
        )
    answers = []
    for number, given in enumerate(rows, start=1):
        where = f"row {number} of {path}"
        row: QuestionRow = typed_row(given, QuestionRow, where)
        text, response = cell_text(row.get("question")), given_response(row.get("response"))
        if not text:
            raise DataError(f"{where} has no question; fill the field 'question'")
        if response is None:
            left_out[FAILED] += 1
            continue
        name = cell_text(row.get("id")) or f"{path.stem}-{number}"
        context, label = cell_text(row.get("context")), given_label(row, where, one_means)
        answers.append(LoggedAnswer(Question(name, text, (), context=context, response=response, label=label)))
    return answers


# ---- lm-eval --------------------------------------------------------------------------------------------------------


class LmEvalSample(msgspec.Struct):
    """A line of a samples_*.jsonl: one row of a dataset under one filter."""

    doc: dict[str, Any]  # the row of the dataset
    arguments: dict[str, dict[str, Any]] | list[list[Any]]  # of the requests: the prompt, and how to generate
    resps: list[Any]  # per request, what the model gave
    doc_id: int | str = ""
    filter: str = "none"
    metrics: list[str] | None = None  # names of the fields with values; older versions do not list them


OTHER_FIELDS = {*LmEvalSample.__struct_fields__, "target", "filtered_resps", "doc_hash", "prompt_hash", "target_hash"}


def _lm_eval_answers(rows: Sequence[Row], path: Path, left_out: Counter[str]) -> list[LoggedAnswer]:
    """One answer per row of the dataset, with its values under every filter."""
    answers: dict[str, LoggedAnswer | None] = {}  # None: left out
    seen: set[tuple[str, str]] = set()
    for number, row in enumerate(rows, start=1):
        where = f"row {number} of {path}"
        sample: LmEvalSample = typed_row(row, LmEvalSample, where)
        name = str(sample.doc_id) or str(number)
        if (name, sample.filter) in seen:
            raise DataError(
                f"{where} has the doc_id {name!r} for the second time; give the samples of one task at a time"
            )
        seen.add((name, sample.filter))
        metrics = sample.metrics if sample.metrics is not None else [one for one in row if one not in OTHER_FIELDS]
        values = {f"{one},{sample.filter}": row[one] for one in metrics if isinstance(row.get(one), int | float)}
        if name not in answers:
            answers[name] = _lm_eval_answer(name, sample, where, left_out)
        answer = answers[name]
        if answer is not None:
            answers[name] = replace(answer, values={**answer.values, **values})
    return [answer for answer in answers.values() if answer is not None]


def _lm_eval_answer(name: str, sample: LmEvalSample, where: str, left_out: Counter[str]) -> LoggedAnswer | None:
    """The answer without its values; None if it cannot be scored."""
    prompt, options = _lm_eval_request(sample)
    replies = sample.resps[0] if sample.resps and isinstance(sample.resps[0], list) else sample.resps
    if not isinstance(options, dict) or sample.doc.get(
        "choices"
    ):  # log-likelihoods; or the options stand in the prompt
        left_out[CHOICE] += 1
        return None
    if not replies or not isinstance(replies[0], str):
        left_out[FAILED] += 1
        return None
    if len(replies) > 1:
        left_out[REPEATED] += len(replies) - 1
    asked = _first_text(sample.doc, QUESTION_FIELDS)
    if not asked:
        fields = ", ".join(" ".join(one.split())[:80] for one in list(sample.doc)[:12])
        raise DataError(
            f"{where} has a doc without a question (one of {', '.join(QUESTION_FIELDS)}); it has {fields}. Write the log as "
            "rows with question and response"
        )
    question = Question(name, asked, (), context=_first_text(sample.doc, CONTEXT_FIELDS), response=replies[0].strip())
    return LoggedAnswer(question, prompt)


def _lm_eval_request(sample: LmEvalSample) -> tuple[str | None, object]:
    """The first request: its prompt, and how the model was to generate (a text instead: a continuation to rate)."""
    if isinstance(sample.arguments, dict):
        first = next(iter(sample.arguments.values()), {})
        prompt, options = first.get("arg_0"), first.get("arg_1")
    else:
        prompt, options = [*(sample.arguments[0] if sample.arguments else ()), None, None][:2]
    return prompt if isinstance(prompt, str) else None, options


def _first_text(doc: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((doc[name].strip() for name in names if isinstance(doc.get(name), str)), "")


# ---- Inspect --------------------------------------------------------------------------------------------------------


class InspectPart(msgspec.Struct):
    """A part of a message: a text, or something else (an image, reasoning), which is not read."""

    type: str = ""
    text: str = ""


class InspectMessage(msgspec.Struct):
    """A turn of a chat."""

    role: str
    content: str | list[InspectPart] = ""


class InspectChoice(msgspec.Struct):
    """One answer of the model."""

    message: InspectMessage


class InspectOutput(msgspec.Struct):
    """What the model gave in the end."""

    choices: list[InspectChoice] = msgspec.field(default_factory=list)
    completion: str = ""


class InspectScore(msgspec.Struct):
    """What a scorer said."""

    value: Value = None


class InspectSample(msgspec.Struct):
    """A sample; fields that are not read here are many."""

    id: int | str
    input: str | list[InspectMessage]
    epoch: int = 1
    choices: list[str] | None = None
    messages: list[InspectMessage] = msgspec.field(default_factory=list)
    output: InspectOutput = msgspec.field(default_factory=InspectOutput)
    scores: dict[str, InspectScore] | None = None
    attachments: dict[str, str] = msgspec.field(default_factory=dict)


class InspectEval(msgspec.Struct):
    """What was run."""

    model: str


class InspectHeader(msgspec.Struct):
    """A log without its samples."""

    eval: InspectEval


class InspectLog(msgspec.Struct):
    """A log that is one JSON document."""

    eval: InspectEval
    samples: list[InspectSample] | None = None


def _document(text: str, path: Path) -> InspectLog | None:
    """The text as a log of Inspect's; None: it is not one document, or not of Inspect's."""
    begin = text.lstrip()
    if not begin.startswith("{"):
        return None
    first_line = begin.partition("\n")[0]
    try:
        on_one_line = isinstance(parse(first_line, dict[str, Any]).get("eval"), dict)
    except ValueError:
        on_one_line = None  # the first line is a part of a document
    if on_one_line is False:
        return None
    try:
        return parse(text, InspectLog)
    except json.JSONDecodeError as error:
        if first_line.strip() != "{":
            return None  # rows, of which the first is broken
        raise DataError(
            f"{path} is cut off or not JSON (line {error.lineno}: {error.msg}); get another copy"
        ) from error
    except ValueError as error:
        raise DataError(
            f"{path} is a JSON document, but not a log of Inspect ({error}); give one, or rows with question and response"
        ) from error


def _inspect_archive(path: Path) -> tuple[str, Iterator[tuple[str, InspectSample]]]:
    """An .eval file: the name of the model, and its samples as they are read."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {info.filename: info for info in archive.infolist()}  # what was written again stands twice
            header = entries.get("header.json") or entries.get("_journal/start.json")
            if header is None:
                raise DataError(f"{path} is a zip, but not a log of Inspect: it has no header.json; give an .eval file")
            declared = sum(info.file_size for info in entries.values())
            if not room_for(4 * declared):  # the text and its values take memory, too
                raise DataError(
                    f"{path} declares {in_bytes(declared)}, more than there is memory; give a log with fewer samples"
                )
            model = _parsed(_content(archive, header, path), InspectHeader, f"{header.filename} in {path}").eval.model
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise _damaged(path, error) from error
    return model, _inspect_samples(path, entries)


def _inspect_samples(path: Path, entries: Mapping[str, zipfile.ZipInfo]) -> Iterator[tuple[str, InspectSample]]:
    """Each sample with the words for where it stands."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name, info in entries.items():
                if name.startswith("samples/") and name.endswith(".json"):
                    where = f"{name} in {path}"
                    yield where, _parsed(_content(archive, info, path), InspectSample, where)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise _damaged(path, error) from error


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bytes:
    """An entry, unpacked."""
    if info.compress_type != ZSTANDARD or hasattr(zipfile, "ZIP_ZSTANDARD"):
        with archive.open(info) as entry:
            return entry.read(info.file_size)  # `archive.read` would unpack up to 1 GiB before it looks at this size
    packed = copy.copy(info)  # read as if it were not packed
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, info.compress_size
    packed.CRC = None  # type: ignore[assignment]  # zipfile then has nothing to compare
    try:
        content = bytes(numcodecs.Zstd().decode(archive.read(packed), out=bytearray(info.file_size)))
    except (RuntimeError, ValueError) as error:  # no Zstandard, or more than declared
        raise zipfile.BadZipFile(f"{info.filename}: {error}") from error
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"the checksum of {info.filename} is wrong")
    return content


def _damaged(path: Path, error: Exception) -> DataError:
    why = " ".join(str(error).split())[:200]
    return DataError(
        f"{path} cannot be unpacked ({why}); get another copy, or, where you have Inspect, write it as JSON: "
        "inspect log convert FILE --to json --output-dir FOLDER"
    )


def _parsed(content: bytes, kind: Any, where: str) -> Any:
    try:
        return parse(content, kind)
    except ValueError as error:
        raise DataError(f"{where} is not what Inspect writes ({error}); get another copy of the log") from error


def _inspect_answers(
    samples: Iterable[tuple[str, InspectSample]], path: Path, left_out: Counter[str]
) -> Iterator[LoggedAnswer]:
    found = []
    for where, sample in samples:
        said = sample.output.choices[0].message.content if sample.output.choices else sample.output.completion
        if sample.choices:
            left_out[CHOICE] += 1
        elif not sample.output.choices and not said:
            left_out[FAILED] += 1
        else:
            asked = sample.input if isinstance(sample.input, str) else _last_of(sample.input, "user")
            question, response = (_plain(one, sample, where).strip() for one in (asked, said))
            if not question:
                raise DataError(f"{where} has no question: its input has no text; leave such samples out")
            prompt = [{"role": one.role, "content": _plain(one.content, sample, where)} for one in _shown(sample)]
            values = {name: score.value for name, score in (sample.scores or {}).items()}
            asked_question = Question(str(sample.id), question, (), response=response)
            found.append((sample.epoch, LoggedAnswer(asked_question, prompt or None, values)))
    several = any(epoch != 1 for epoch, _ in found)
    for epoch, one in found:
        name = f"{one.question.id} (epoch {epoch})" if several else one.question.id
        yield replace(one, question=replace(one.question, id=name))


def _last_of(messages: Sequence[InspectMessage], role: str) -> str | list[InspectPart]:
    return next((one.content for one in reversed(messages) if one.role == role), "")


def _shown(sample: InspectSample) -> list[InspectMessage]:
    """The turns before the answer."""
    last = max((index for index, one in enumerate(sample.messages) if one.role == "assistant"), default=0)
    return sample.messages[:last]


def _plain(content: str | list[InspectPart], sample: InspectSample, where: str) -> str:
    """The text of a message; long ones stand among the attachments."""
    texts = [content] if isinstance(content, str) else [part.text for part in content if part.type == "text"]
    for index, text in enumerate(texts):
        if text.startswith(ATTACHMENT):
            name = text.removeprefix(ATTACHMENT)
            if name not in sample.attachments:
                raise DataError(
                    f"{where} names the attachment {name[:80]!r}, which is not in it; get another copy of the log"
                )
            texts[index] = sample.attachments[name]
    return "\n".join(texts)


# ---- verdicts -------------------------------------------------------------------------------------------------------


def _verdict(answers: Sequence[LoggedAnswer], wanted: str | None, path: Path) -> tuple[str, tuple[str, ...]]:
    """The metric or scorer that the labels are taken from (empty: none can be), and all that they could be taken from."""
    names = list(dict.fromkeys(name for one in answers for name in one.values))
    usable = []
    for name in names:
        given = [one.values[name] for one in answers if one.values.get(name) is not None]
        if all(_judges(value) for value in given) and any(_label(value) for value in given):
            usable.append(name)
    if wanted is None:
        return usable[0] if usable else "", tuple(usable)
    for name in usable:
        if wanted in (name, name.partition(",")[0]):
            return name, tuple(usable)
    if any(wanted in (name, name.partition(",")[0]) for name in names):
        raise DataError(
            f"the values of {wanted!r} in {path} are not all right or wrong; choose another verdict, or none"
        )
    if not usable:
        raise DataError(f"{path} has no metric or scorer that says right or wrong; omit --verdict (verdict=)")
    raise DataError(f"{path} has no metric or scorer {wanted!r}. {did_you_mean(wanted, usable)}")


def _judges(value: Value) -> bool:
    """Whether a value says right, wrong, refused, partly right, or that nothing could be said (NaN)."""
    return isinstance(value, str | int | float) and (value in LABEL_OF or value != value)


def _label(value: Value) -> str | None:
    return LABEL_OF.get(value) if isinstance(value, str | int | float) else None
