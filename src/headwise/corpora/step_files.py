"""Files of steps: the packaged set, the layout of CogQA, and a user's own.

CogQA (Ma et al., 2025): a JSON list with one main question per row, its steps inside:

    [{"question": ..., "answer": ..., "generated": [{"subquestion": ..., "answer": ..., "cognitive_skill": ...}, ...]}]

A user's own: JSON lines (also CSV, Parquet) with one step per row, the steps of one question in order:

    question      the main question                                              (needed)
    subquestion   the question of this step                                      (needed)
    answer        the right answer; `answers`, a list or "a|b", for several      (needed)
    function      any label                                                      (needed)
    id, chain     names of the step and of its question                          (optional; rows of one question are a chain)
    earlier       [[subquestion, answer], ...]                                   (optional; else the rows before, of its chain)
    split         train or held-out                                              (optional)

A folder is read as all such files in it. Without a field `split`, the split is taken from the file names (train, test);
else `HELD_OUT_SHARE` of the questions is held out, drawn with a fixed seed. Labels that differ only in case, spaces or
hyphens are one function. A function with fewer than `MIN_STEPS` steps, or with none in one of the splits, can be neither
learnt nor tested: its steps are dropped (`Steps.dropped`), but still appear before later steps as context.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

from headwise.core.errors import DataError
from headwise.core.parsing import convert, parse
from headwise.corpora.rows import SUFFIXES, Cell, cell_text, read_rows, require_unique_ids, typed_row
from headwise.corpora.steps import FUNCTIONS, HELD_OUT, SPLITS, TRAIN, Step, Steps

__all__ = ["packaged_steps", "read_steps"]

MIN_STEPS = 5  # per function
HELD_OUT_SHARE, SEED = 0.4, 0  # of the questions, if no split is given
REQUIRED_FIELDS = ("question", "subquestion", "function")
COGQA_FIELDS = ("subquestion", "answer", "cognitive_skill")
SPLIT_WORDS = {"train": TRAIN, "training": TRAIN} | dict.fromkeys(
    ("held-out", "heldout", "held", "test", "testing", "validation", "valid", "val", "dev"), HELD_OUT
)

Row = Mapping[str, Any]
Earlier = list[tuple[Cell, Cell]]


class ChainRow(TypedDict, total=False):
    """A row of CogQA: a main question with its steps."""

    question: Cell
    generated: list[dict[str, Cell]]


class StepRow(TypedDict, total=False):
    """A row of a user's own file: one step."""

    question: Cell
    subquestion: Cell
    function: Cell
    answer: Cell | list[Cell]
    answers: Cell | list[Cell]
    id: Cell
    chain: Cell
    split: Cell


class PackagedStep(TypedDict):
    """A line of the packaged file."""

    id: str
    chain: str
    question: str
    earlier: list[tuple[str, str]]
    subquestion: str
    answers: list[str]
    function: str
    split: str
    number: int


def packaged_steps() -> Steps:
    """The steps that come with Headwise: main questions decomposed into steps, each labelled with a function.

    Returns:
        All of them.

    Examples:
        >>> steps = packaged_steps()
        >>> len(steps), len(steps.chains()), len(steps.functions)
        (960, 300, 8)
    """
    lines = files("headwise.corpora").joinpath("data/steps.jsonl").read_text(encoding="utf-8").splitlines()

    def step(line: str) -> Step:
        row: PackagedStep = parse(line, PackagedStep)
        several = {"answers": tuple(row["answers"]), "earlier": tuple(row["earlier"])}
        fields: dict[str, Any] = {**row, "answer": row["answers"][0], **several}
        return Step(**fields)

    return Steps("packaged steps", tuple(map(step, lines)))


def read_steps(path: str | Path) -> Steps:
    r"""A user's steps: a file of either layout, or a folder of them.

    Args:
        path: the file or folder; the guide on own data describes the layouts.

    Returns:
        The steps of functions that have enough of them; `dropped` lists the others, with the reason.

    Examples:
        >>> import json
        >>> rows = [
        ...     {"question": f"Word {n}, and {n} plus {n}?", "subquestion": asked, "answer": answer, "function": function}
        ...     for n in range(20)
        ...     for asked, answer, function in (
        ...         ("Which number is named?", str(n), "Retrieval"),
        ...         (f"What is {n} plus {n}?", str(2 * n), "Math Calculation"),
        ...     )
        ... ]
        >>> _ = (folder / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
        >>> steps = read_steps(folder / "mine.jsonl")
        >>> len(steps), steps.functions
        (40, ('Retrieval', 'Math Calculation'))
    """
    path = Path(path)
    files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES)) if path.is_dir() else [path]
    if not files:
        raise DataError(f"the folder {path} contains no file of steps; add one of {', '.join(SUFFIXES)}")
    found = [step for file in files for step in _steps_of(file, several=len(files) > 1)]
    require_unique_ids(found, "steps")
    spelling: dict[str, str] = {}  # one per label: that of the eight functions, else the first in the file
    for label in [*FUNCTIONS, *(step.function for step in found)]:
        spelling.setdefault(_key(label), label)
    items = [replace(step, function=spelling[_key(step.function)]) for step in found]
    return _usable(_with_splits(items, path), path)


def _key(label: str) -> str:
    return re.sub(r"[\s_-]+", "", label).casefold()


def _steps_of(path: Path, several: bool) -> list[Step]:
    """The steps of one file; the split is empty if neither a row nor, among several files, the file name gives it."""
    rows = read_rows(path)
    if not rows:
        raise DataError(f"{path} contains no rows; give at least one question with its steps")
    nested = ["generated" in row for row in rows]
    if any(nested) and not all(nested):
        first = nested.index(not nested[0]) + 1
        raise DataError(
            f"row {first} of {path} has another layout than row 1 (one has 'generated', the other has not); "
            "put the two layouts into separate files"
        )
    if nested[0]:
        steps = [step for number, row in enumerate(rows, start=1) for step in _chain(row, path, number)]
    else:
        steps = _flat(path, rows)
    named = {SPLIT_WORDS[word] for word in re.findall(r"[a-z]+", path.stem.casefold()) if word in SPLIT_WORDS}
    if several and len(named) == 1:
        steps = [replace(step, split=step.split or min(named)) for step in steps]
    return steps


def _chain(row: Row, path: Path, number: int) -> list[Step]:
    """One row of CogQA: a main question with its steps."""
    where, name = f"row {number} of {path}", f"{path.stem}-{number}"
    question = _required(row, "question", where)
    try:
        parts = convert(row, ChainRow)["generated"]
    except ValueError as error:
        raise DataError(
            f"{where} has no list of steps under 'generated' ({error}); give a list of {{{', '.join(COGQA_FIELDS)}}}"
        ) from error
    if not parts:
        raise DataError(f"{where} has no list of steps under 'generated'; give a list of {{{', '.join(COGQA_FIELDS)}}}")
    steps: list[Step] = []
    for position, part in enumerate(parts, start=1):
        asked, answer, label = (_required(part, field, f"step {position} of {where}") for field in COGQA_FIELDS)
        earlier = tuple((step.subquestion, step.answer) for step in steps)
        own = f"{name}-{position}"
        steps.append(Step(own, name, question, earlier, asked, answer, (answer,), label, "", position))
    return steps


# ---- one step per row -----------------------------------------------------------------------------------------------


def _flat(path: Path, rows: Sequence[Row]) -> list[Step]:
    chains: dict[str, list[Step]] = {}  # by the chain's own name, or the question
    steps = []
    for number, row in enumerate(rows, start=1):
        where = f"row {number} of {path}"
        typed_row(row, StepRow, where)
        question, asked, function = (_required(row, field, where) for field in REQUIRED_FIELDS)
        so_far = chains.setdefault(_text(row.get("chain")) or question, [])
        name = _text(row.get("chain")) or (so_far[0].chain if so_far else f"{path.stem}-{len(chains)}")
        answers, position = _answers(row, where), len(so_far) + 1
        earlier = tuple((step.subquestion, step.answer) for step in so_far)
        if row.get("earlier") not in (None, ""):
            earlier = _earlier(row["earlier"], where)
        own = _text(row.get("id")) or f"{name}-{position}"
        step = Step(own, name, question, earlier, asked, answers[0], answers, function, _split(row, where), position)
        if so_far and so_far[0].split != step.split:
            raise DataError(
                f"{where} is {step.split or 'in no split'}, and an earlier step of its question "
                f"{so_far[0].split or 'in none'}; put all steps of a question into one split"
            )
        if so_far and so_far[0].question != step.question:
            raise DataError(
                f"{where} has another question than earlier rows of the chain {step.chain!r}; rename the chain"
            )
        so_far.append(step)
        steps.append(step)
    return steps


def _answers(row: Row, where: str) -> tuple[str, ...]:
    value = row.get("answers") if row.get("answers") is not None else row.get("answer")
    several = value if isinstance(value, list | tuple) else _text(value).split("|")
    found = tuple(dict.fromkeys(text for text in map(_text, several) if text))
    if not found:
        raise DataError(f"{where} has no right answer; fill its field 'answer' (or 'answers', a list)")
    first = _text(row.get("answer"))
    return tuple(dict.fromkeys([first, *found])) if first and "|" not in first else found


def _earlier(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    try:
        earlier: Earlier = convert(value, Earlier)
    except ValueError as error:
        raise DataError(
            f"{where} has {str(value)[:80]!r} under 'earlier'; give a list of [subquestion, answer], or leave it out"
        ) from error
    return tuple((_text(asked), _text(answer)) for asked, answer in earlier)


def _split(row: Row, where: str) -> str:
    split = _text(row.get("split")).casefold().replace("_", "-")
    if split and split not in SPLIT_WORDS:
        raise DataError(f"{where} has the split {split!r}; write one of {' or '.join(SPLITS)}, or omit the field")
    return SPLIT_WORDS.get(split, "")


# ---- fields and splits ----------------------------------------------------------------------------------------------


def _required(row: Row, field: str, where: str) -> str:
    text = _text(row.get(field))
    if not text:
        present = " ".join(", ".join(map(str, row)).split())[:200]
        what = f"an empty field {field!r}" if field in row else f"no field {field!r}, only {present}"
        raise DataError(f"{where} has {what}; fill it, or remove the row")
    return text


def _text(value: Any) -> str:
    return cell_text(value).replace("\\n", "\n").strip()


def _with_splits(steps: list[Step], path: Path) -> list[Step]:
    splits = {step.split for step in steps}
    if splits == {""}:  # hold out complete questions; questions with the same words are one
        questions = list(dict.fromkeys(step.question.casefold() for step in steps))
        held = set(random.Random(SEED).sample(questions, round(HELD_OUT_SHARE * len(questions))))
        return [replace(step, split=HELD_OUT if step.question.casefold() in held else TRAIN) for step in steps]
    if "" in splits:
        one = next(step for step in steps if not step.split)
        raise DataError(f"the step {one.id!r} of {path} is in no split while others are; give all a split, or none")
    if len(splits) == 1:
        raise DataError(
            f"all steps of {path} are in the split {min(splits)!r}; put some questions into the other, or omit the "
            "field to have it drawn"
        )
    return steps


def _usable(steps: Sequence[Step], path: Path) -> Steps:
    """The steps of functions that can be learnt and tested."""
    counts = Counter(step.function for step in steps)
    splits = Counter((step.function, step.split) for step in steps)
    dropped = {}
    for function, count in counts.items():
        missing = [split for split in SPLITS if not splits[function, split]]
        if count < MIN_STEPS:
            dropped[function] = f"{function}: {count} step{'s' * (count > 1)}, and a function needs {MIN_STEPS}"
        elif missing:
            dropped[function] = f"{function}: none of its {count} steps is in the split {missing[0]}"
    if len(counts) - len(dropped) < 2:
        found = "; ".join(dropped.values()) or f"all are {min(counts)!r}"
        raise DataError(
            f"{path} has fewer than two usable functions ({found}); give at least {MIN_STEPS} steps of each of two"
        )
    retained = tuple(step for step in steps if step.function not in dropped)
    return Steps(path.name, retained, tuple(dropped.values()))
