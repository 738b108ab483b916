"""Questions with their right answers: the packaged set, and a user's own.

A question has one or more right answers (aliases). It may carry a text to answer from (`context`), and the answer that
a model already gave (`response`), with or without a label. The packaged set is ours: 2,656 short factual questions on 24
topics at three levels of difficulty (made by scripts/make_questions.py).

A user's file is JSONL, CSV or Parquet, with one question per row:

    question     the question                                            (needed)
    answers      right answers: a list, or "a|b"; also: answer, gold     (needed, unless every row has a label)
    id topic difficulty context                                          (optional)
    numeric      true: a word problem, whose last number is the answer   (optional)
    wrong_answers  known wrong ones, a list                              (optional)
    response     what a model answered; then nothing is generated        (optional)
    label        correct, wrong or refused; or true/false, 1/0 with `one_means`
                 also: a column `correct` or `hallucinated` of true/false or 1/0
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

from headwise.core.errors import DataError, did_you_mean
from headwise.core.files import write_output
from headwise.core.parsing import parse
from headwise.corpora.rows import (
    Cell,
    cell_text,
    digest_of,
    interleave,
    read_rows,
    require_unique_ids,
    typed_row,
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One question; with a `response`, one that is already answered.

    Examples:
        >>> asked = Question("q1", "What is the capital of Norway?", ("Oslo",), topic="capitals")
        >>> asked.answers, asked.label
        (('Oslo',), None)
    """

    id: str  # a unique name
    question: str  # the question
    answers: tuple[str, ...]  # all that count as right; the first is displayed
    topic: str = ""  # samples are stratified by topic
    difficulty: int = 0  # 1 easy ... 3 hard; 0 unknown
    context: str = ""  # a text to answer from
    numeric: bool = False  # a word problem: the last number is the answer
    wrong_answers: tuple[str, ...] = ()  # known wrong ones, if the set has them
    response: str | None = None  # a model's answer, if already known
    label: str | None = None  # of the response: correct, wrong or refused; None: to be judged


@dataclass(frozen=True)
class Questions:
    """Questions with a name and a digest for the provenance of a map.

    Examples:
        >>> some = packaged_questions().sample(48)
        >>> len(some), len(some.topics)
        (48, 24)
    """

    name: str  # the atlas records it
    items: tuple[Question, ...]  # the questions

    def __len__(self) -> int:
        return len(self.items)

    @property
    def digest(self) -> str:
        """Changes when anything in any question does."""
        return digest_of(list(vars(item).values()) for item in self.items)

    @property
    def topics(self) -> list[str]:
        """In the order they first appear."""
        return list(dict.fromkeys(item.topic for item in self.items))

    def sample(self, count: int, seed: int = 0) -> Questions:
        """At most `count`, stratified by topic, in their original order; with one seed, smaller samples are subsets."""
        if count < 1:
            raise DataError(f"a sample needs at least one question, not {count}")
        rng = random.Random(seed)
        queues = []
        for topic in self.topics:
            queue = [index for index, item in enumerate(self.items) if item.topic == topic]
            rng.shuffle(queue)
            queues.append(queue)
        rng.shuffle(queues)
        return Questions(self.name, tuple(self.items[index] for index in sorted(interleave(queues)[:count])))

    def save(self, path: str | Path) -> Path:
        """Write a JSONL file that `read_questions` reads.

        Examples:
            >>> path = packaged_questions().sample(2).save(folder / "two.jsonl")
            >>> len(read_questions(path))
            2
        """
        usual = {field.name: field.default for field in fields(Question)}
        rows = ({name: value for name, value in vars(item).items() if value != usual[name]} for item in self.items)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_output(path, lines)
        return Path(path)


def packaged_questions() -> Questions:
    """The questions that come with Headwise, on 24 topics, easy to hard.

    Returns:
        All of them.

    Examples:
        >>> questions = packaged_questions()
        >>> len(questions), questions.items[0].question, questions.items[0].answers
        (2656, 'What is the young of a dog called?', ('puppy', 'pup'))
    """
    lines = files("headwise.corpora").joinpath("data/questions.jsonl").read_text(encoding="utf-8").splitlines()
    return Questions("packaged questions", tuple(parse(line, Question) for line in lines))


# ---- a user's own ---------------------------------------------------------------------------------------------------

ANSWER_FIELDS = ("answers", "answer", "gold", "golds")
BOOLEAN_LABELS = {"correct": True, "hallucinated": False}  # column -> whether true means correct
LABEL_WORDS = {
    "correct": "correct", "right": "correct", "wrong": "wrong", "incorrect": "wrong", "hallucinated": "wrong",
    "refused": "refused", "refusal": "refused",
}  # fmt: skip
Cells = Cell | list[Cell]


class QuestionRow(TypedDict, total=False):
    """A row of a user's file: its fields, if they are there."""

    question: Cell
    answers: Cells
    answer: Cells
    gold: Cells
    golds: Cells
    id: Cell
    topic: Cell
    difficulty: Cell
    context: Cell
    numeric: Cell
    wrong_answers: Cells
    response: Cell
    label: Cell
    correct: Cell
    hallucinated: Cell


BOOLEANS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


def read_questions(path: str | Path, *, one_means: str | None = None, judged: bool = True) -> Questions:
    """A user's questions: a .jsonl, .csv or .parquet file.

    Args:
        path: the file. Fields: question, answers; and id, topic, difficulty, context, response, label where known.
        one_means: "correct" or "wrong": the meaning of 1 (or true) in the column `label`.
        judged: whether answers will be judged, so that each question needs right answers or a label.

    Returns:
        The questions, named after the file.

    Examples:
        >>> row = '{"question": "What is the capital of Norway?", "answers": ["Oslo"], "response": "Bergen", "label": "wrong"}'
        >>> _ = (folder / "mine.jsonl").write_text(row)
        >>> read_questions(folder / "mine.jsonl").items[0].label
        'wrong'
    """
    if one_means not in (None, "correct", "wrong"):
        raise DataError(f"--one-means (one_means=) takes correct or wrong, not {one_means!r}.")
    path = Path(path)
    rows = read_rows(path)
    if not rows:
        raise DataError(f"{path} contains no rows; give at least one question")
    _require_fields(path, rows, judged)
    items = [_question(path, number, row, one_means, judged) for number, row in enumerate(rows, start=1)]
    usable = [item for item in items if item is not None]
    if not usable:
        raise DataError(f"no row of {path} has a question; fill the field 'question' in at least one")
    require_unique_ids(usable, "questions")
    return Questions(path.name, tuple(usable))


def parse_question_line(line: str, number: int, where: str) -> Question:
    """A line of JSON with a question and, optionally, the response to score (also: answer).

    >>> parse_question_line('{"question": "2 + 2?", "response": 5}', 1, "line 1").response
    '5'
    """
    try:
        row: QuestionRow = parse(line, QuestionRow)
    except ValueError as error:
        raise DataError(
            f'{where} is not a JSON object with a "question" and a "response" ({error}); correct it'
        ) from error
    text = cell_text(row.get("question"))
    if not text:
        raise DataError(f'{where} has no "question"; give one, and a "response" to score')
    answer = row.get("response", row.get("answer"))
    if isinstance(answer, list):
        raise DataError(f'{where} has a list where one response is expected; give a text as "response"')
    return Question(cell_text(row.get("id")) or str(number), text, (), response=given_response(answer))


def _require_fields(path: Path, rows: Sequence[Mapping[str, Any]], judged: bool) -> None:
    fields = list(dict.fromkeys(" ".join(str(name).split())[:80] for row in rows for name in row))
    listed = ", ".join(fields[:12]) + (" ..." if len(fields) > 12 else "")

    def advice(missing: str) -> str:
        guess = did_you_mean(missing, fields)
        close = guess.split("'")[1] if guess.startswith("Did") else None
        return f"Rename {close!r} to {missing!r}?" if close else f"Add {missing!r}, or rename the field that has it."

    if "question" not in fields:
        raise DataError(f"{path} has no field 'question'; it has {listed}. {advice('question')}")
    labelled = "label" in fields or any(name in fields for name in BOOLEAN_LABELS)
    if judged and not any(name in fields for name in ANSWER_FIELDS) and not ("response" in fields and labelled):
        raise DataError(
            f"{path} has no right answers (a field 'answers', 'answer' or 'gold'), and no 'response' with a 'label'; "
            f"it has {listed}. {advice('answers')}"
        )


def _question(
    path: Path, number: int, given: Mapping[str, Any], one_means: str | None, judged: bool
) -> Question | None:
    where = f"row {number} of {path}"
    row: QuestionRow = typed_row(given, QuestionRow, where)
    text = cell_text(row.get("question"))
    if not text:
        return None
    several: list[Cells] = [row.get("answers"), row.get("answer"), row.get("gold"), row.get("golds")]
    answers = next((_answers(value) for value in several if not _empty(value)), ())
    response, label = given_response(row.get("response")), given_label(row, where, one_means)
    if judged and not answers and label is None:
        raise DataError(
            f"{where} has no right answer and no label, so its response cannot be judged; fill one of the two"
        )
    if label is not None and response is None:
        raise DataError(f"{where} has a label but no response; a label refers to a response, so give both")
    return Question(
        id=cell_text(row.get("id")) or f"{path.stem}-{number}",
        question=text,
        answers=answers,
        topic=cell_text(row.get("topic")),
        difficulty=_difficulty(row.get("difficulty"), where),
        context=cell_text(row.get("context")),
        numeric=_numeric(row.get("numeric"), where),
        wrong_answers=() if _empty(row.get("wrong_answers")) else _answers(row["wrong_answers"]),
        response=response,
        label=label,
    )


def given_response(value: Cell) -> str | None:
    """A cell as a response: None where there is none."""
    return None if value is None or value != value else str(value).strip()


def _answers(value: Cells) -> tuple[str, ...]:
    """A list, "a|b", a JSON list in a string, or one text or number."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parse(value, list[Cell])
        except ValueError:
            value = list(str(value).split("|"))
    elif isinstance(value, str):
        value = list(value.split("|"))
    several = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(text for text in map(cell_text, several) if text))


def given_label(row: QuestionRow, where: str, one_means: str | None) -> str | None:
    """What a row says of its response: correct, wrong, refused, or None."""
    for column, true_is_correct in BOOLEAN_LABELS.items():
        given = row.get(column)
        if not _empty(given):
            truth = BOOLEANS.get(str(given).strip().casefold())
            if truth is None:
                raise DataError(f"{where} has {given!r} under {column!r}; give true or false (1 or 0)")
            return "correct" if truth == true_is_correct else "wrong"
    given = row.get("label")
    if _empty(given):
        return None
    word = str(given).strip().casefold()
    if word in LABEL_WORDS:
        return LABEL_WORDS[word]
    if word not in BOOLEANS:
        raise DataError(f"{where} has the label {given!r}. {did_you_mean(word, ('correct', 'wrong', 'refused'))}")
    if one_means is None:
        raise DataError(
            f"{where} has the label {given!r}, which may mean correct or wrong; add --one-means correct or --one-means wrong "
            "(in Python one_means='correct'), or write the labels as correct, wrong or refused."
        )
    other = {"correct": "wrong", "wrong": "correct"}[one_means]
    return one_means if BOOLEANS[word] else other


def _difficulty(value: Cell, where: str) -> int:
    if value is None or _empty(value):
        return 0
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not -1000 <= found <= 1000:
        raise DataError(f"{where} has the difficulty {str(value)[:40]!r}; give a whole number, such as 1, 2 or 3")
    return int(found)


def _numeric(value: Cell, where: str) -> bool:
    found = False if _empty(value) else BOOLEANS.get(str(value).strip().casefold())
    if found is None:
        raise DataError(f"{where} has {value!r} under 'numeric'; give true or false (1 or 0)")
    return found


def _empty(value: object) -> bool:
    return value is None or value == "" or value == [] or value != value
