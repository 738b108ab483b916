"""Files of steps: the packaged set, the layout of CogQA, and a user's own.

CogQA (Ma et al., 2025): a JSON list, one main question a row, its steps inside:

    [{"question": ..., "answer": ..., "generated": [{"subquestion": ..., "answer": ..., "cognitive_skill": ...}, ...]}]

One's own: JSON lines (also CSV, Parquet), one step a row, the steps of one question in their order:

    question      the main question                                              (needed)
    subquestion   what is asked                                                  (needed)
    answer        the right answer; `answers`, a list or "a|b", if several are   (needed)
    function      any label                                                      (needed)
    id, chain     names of the step and of its question                          (optional; rows of one question are a chain)
    earlier       [[subquestion, answer], ...]                                   (optional; else the rows before, of its chain)
    split         train or held-out                                              (optional)

A folder is all such files in it. Where nobody says the split, it is that of the files' names if they tell (train, test);
else `SHARE` of the questions is held out, drawn with a fixed seed. Labels that differ in case, blanks or hyphens only
are one function. A function of fewer than `LEAST` steps, or with none in one of the splits, can be neither learnt nor
tested: its steps are left out, and `Steps.dropped` says so. They still stand before later steps as what is known.

This module does not know what the functions mean.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import chain as joined
from pathlib import Path
from typing import Any

from headwise.core.errors import DataError
from headwise.corpora.rows import SUFFIXES, read_rows
from headwise.corpora.steps import FUNCTIONS, HELD_OUT, SPLITS, TRAIN, Step, Steps

__all__ = ["packaged_steps", "read_steps"]

LEAST = 5  # steps of a function
SHARE, SEED = 0.4, 0  # of the questions that are held out where nobody says which
NEEDED = ("question", "subquestion", "function")
OF_COGQA = ("subquestion", "answer", "cognitive_skill")
WORDS = {"train": TRAIN, "training": TRAIN} | dict.fromkeys(
    ("held-out", "heldout", "held", "test", "testing", "validation", "valid", "val", "dev"), HELD_OUT
)

Row = Mapping[str, Any]


def packaged_steps() -> Steps:
    """The steps that come with Headwise: main questions worked out in steps, each labelled with a function.

    Returns:
        All of them.

    Examples:
        >>> steps = packaged_steps()
        >>> len(steps), len(steps.chains()), len(steps.functions)
        (960, 300, 8)
    """
    lines = files("headwise.corpora").joinpath("data/steps.jsonl").read_text(encoding="utf-8").splitlines()
    return Steps("packaged steps", tuple(map(_packaged, map(json.loads, lines))))


def _packaged(row: Row) -> Step:
    tuples = {"answers": tuple(row["answers"]), "earlier": tuple((asked, answer) for asked, answer in row["earlier"])}
    return Step(**dict(row) | {"answer": row["answers"][0]} | tuples)


def read_steps(path: str | Path) -> Steps:
    r"""A user's steps: a file of either layout, or a folder of them.

    Args:
        path: the file or folder; the layouts are told on the page about own data.

    Returns:
        The steps of functions that have enough of them; `dropped` says what was left out, and why.

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
    given = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES)) if path.is_dir() else [path]
    if not given:
        raise DataError(f"the folder {path} holds no file of steps; put one of {', '.join(SUFFIXES)} into it")
    found = [step for file in given for step in _steps_of(file, several=len(given) > 1)]
    _refuse_repeated_ids(found)
    spelled = _spellings(found)
    items = [replace(step, function=spelled[_key(step.function)]) for step in found]
    items = _with_splits(items, path)
    kept, dropped = _usable(items, path)
    return Steps(path.name, tuple(kept), tuple(dropped))


def _steps_of(path: Path, several: bool) -> list[Step]:
    """The steps of one file; the split is empty where neither a row nor, among several files, the name says it."""
    rows = read_rows(path)
    if not rows:
        raise DataError(f"{path} holds no rows; give at least one question with its steps")
    nested = ["generated" in row for row in rows]
    if any(nested) and not all(nested):
        first = nested.index(not nested[0]) + 1
        raise DataError(
            f"row {first} of {path} is of another layout than row 1 (one has 'generated', the other has not); "
            "put the two into files of their own"
        )
    steps = _nested(path, rows) if nested[0] else _flat(path, rows)
    named = {WORDS[word] for word in re.findall(r"[a-z]+", path.stem.casefold()) if word in WORDS}
    if several and len(named) == 1:
        steps = [replace(step, split=step.split or min(named)) for step in steps]
    return steps


# ---- the layout of CogQA --------------------------------------------------------------------------------------------


def _nested(path: Path, rows: Sequence[Row]) -> list[Step]:
    return list(joined.from_iterable(_chain(row, path, number) for number, row in enumerate(rows, start=1)))


def _chain(row: Row, path: Path, number: int) -> list[Step]:
    where, name = f"row {number} of {path}", f"{path.stem}-{number}"
    question, parts = _needed(row, "question", where), row["generated"]
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise DataError(f"{where} has no list of steps under 'generated'; give a list of {_object(OF_COGQA)}")
    steps: list[Step] = []
    for place, part in enumerate(parts, start=1):
        asked, answer, label = (_needed(part, field, f"step {place} of {where}") for field in OF_COGQA)
        earlier = tuple((step.subquestion, step.answer) for step in steps)
        steps.append(Step(f"{name}-{place}", name, question, earlier, asked, answer, (answer,), label, "", place))
    return steps


def _object(fields: Sequence[str]) -> str:
    return "{" + ", ".join(fields) + "}"


# ---- one step a row -------------------------------------------------------------------------------------------------


def _flat(path: Path, rows: Sequence[Row]) -> list[Step]:
    chains: dict[str, list[Step]] = {}  # by the chain's own name, or the question
    steps = []
    for number, row in enumerate(rows, start=1):
        where = f"row {number} of {path}"
        question, asked, function = (_needed(row, field, where) for field in NEEDED)
        so_far = chains.setdefault(_text(row.get("chain")) or question, [])
        name = _text(row.get("chain")) or (so_far[0].chain if so_far else f"{path.stem}-{len(chains)}")
        answers, place = _answers(row, where), len(so_far) + 1
        earlier = tuple((step.subquestion, step.answer) for step in so_far)
        if row.get("earlier") not in (None, ""):
            earlier = _earlier(row["earlier"], where)
        own = _text(row.get("id")) or f"{name}-{place}"
        step = Step(own, name, question, earlier, asked, answers[0], answers, function, _split(row, where), place)
        _refuse_a_torn_chain(so_far, step, where)
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
    given = value if isinstance(value, list) else [value]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in given):
        raise DataError(f"{where} has {value!r} under 'earlier'; give a list of [subquestion, answer], or leave it out")
    return tuple((_text(asked), _text(answer)) for asked, answer in given)


def _split(row: Row, where: str) -> str:
    given = _text(row.get("split")).casefold().replace("_", "-")
    if given and given not in WORDS:
        raise DataError(f"{where} has the split {given!r}; write one of {' or '.join(SPLITS)}, or leave the field out")
    return WORDS.get(given, "")


def _refuse_a_torn_chain(so_far: Sequence[Step], step: Step, where: str) -> None:
    if not so_far:
        return
    if so_far[0].split != step.split:
        raise DataError(
            f"{where} is {step.split or 'in no split'}, and an earlier step of its question "
            f"{so_far[0].split or 'in none'}; put all steps of a question into one split"
        )
    if so_far[0].question != step.question:
        raise DataError(f"{where} has another question than earlier rows of the chain {step.chain!r}; rename the chain")


# ---- fields ---------------------------------------------------------------------------------------------------------


def _needed(row: Row, field: str, where: str) -> str:
    text = _text(row.get(field))
    if not text:
        there = ", ".join(map(str, row)) or "nothing"
        what = f"an empty field {field!r}" if field in row else f"no field {field!r}, but {there}"
        raise DataError(f"{where} has {what}; fill it, or take the row out")
    return text


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).replace("\\n", "\n").strip()


def _refuse_repeated_ids(steps: Sequence[Step]) -> None:
    for name, count in Counter(step.id for step in steps).items():
        if count > 1:
            raise DataError(f"the id {name!r} stands on {count} steps; give every step its own")


# ---- labels and splits ----------------------------------------------------------------------------------------------


def _key(label: str) -> str:
    return re.sub(r"[\s_-]+", "", label).casefold()


def _spellings(steps: Sequence[Step]) -> dict[str, str]:
    """One spelling of each label: that of the eight, else the first in the file."""
    first: dict[str, str] = {}
    for label in [*FUNCTIONS, *(step.function for step in steps)]:
        first.setdefault(_key(label), label)
    return first


def _with_splits(steps: list[Step], path: Path) -> list[Step]:
    told = {step.split for step in steps}
    if told == {""}:
        return _drawn(steps)
    if "" in told:
        one = next(step for step in steps if not step.split)
        raise DataError(f"the step {one.id!r} of {path} is in no split while others are; give all a split, or none")
    if len(told) == 1:
        raise DataError(
            f"all steps of {path} are in the split {min(told)!r}; put some questions into the other, or "
            "leave the field out and it is drawn"
        )
    return steps


def _drawn(steps: list[Step]) -> list[Step]:
    """Whole questions are held out; questions with the same words are one."""
    questions = list(dict.fromkeys(step.question.casefold() for step in steps))
    held = set(random.Random(SEED).sample(questions, round(SHARE * len(questions))))
    return [replace(step, split=HELD_OUT if step.question.casefold() in held else TRAIN) for step in steps]


def _usable(steps: Sequence[Step], path: Path) -> tuple[list[Step], list[str]]:
    """The steps that can be learnt and tested, and what is said about the others."""
    counts = Counter(step.function for step in steps)
    splits = Counter((step.function, step.split) for step in steps)
    dropped = {}
    for function, count in counts.items():
        missing = [split for split in SPLITS if not splits[function, split]]
        if count < LEAST:
            dropped[function] = f"{function}: {count} step{'s' * (count > 1)}, and a function needs {LEAST}"
        elif missing:
            dropped[function] = f"{function}: none of its {count} steps is in the split {missing[0]}"
    kept = [step for step in steps if step.function not in dropped]
    if len(counts) - len(dropped) < 2:
        found = "; ".join(dropped.values()) or f"all are {min(counts)!r}"
        raise DataError(
            f"{path} has fewer than two functions to tell apart ({found}); give at least {LEAST} steps of each of two"
        )
    return kept, list(dropped.values())
