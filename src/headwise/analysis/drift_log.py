"""A log of scored answers: JSON lines, one answer each, as `headwise detect` and the server write them.

    {"id": "q17", "question": "...", "answer": "Oslo.", "score": "detector", "value": 1.7, "probability": 0.85,
     "alarm": true, "unusual": [], "time": "2026-03-01T12:00:05Z"}

``score`` names what the ``value`` is, larger for answers more likely wrong; a log has one score. A null value is that of an
empty answer, and is left out. The other fields may be missing or null, and further ones are left unread. Rows stand in the
order in which the answers were given. A row that does not fit is refused with its line: a report on half a log would look like
one on all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from headwise.atlas import Atlas
from headwise.core.dims import DETECTOR, SHARE
from headwise.core.errors import AtlasError, DataError, did_you_mean
from headwise.core.parsing import Finite, parse

Floats = NDArray[np.float64]
STUDY = "streaming"  # whose held-out answers are a reference
TINY = float(np.finfo(np.float64).epsneg)  # 1 - TINY is the largest probability below 1


class LogRow(msgspec.Struct, frozen=True):
    """A row of a log."""

    score: str
    value: Finite | None
    id: str | int | None = None
    question: str | None = None
    answer: str | None = None
    probability: float | None = None
    alarm: bool | None = None
    unusual: list[str] | None = None
    time: datetime | None = None


@dataclass(frozen=True)
class AnswerLog:
    """What a log says of its answers, one value each and NaN where it is unknown.

    Examples:
        >>> line = '{"score": "detector", "value": 1.5, "answer": "Oslo.", "alarm": false}'
        >>> _ = (folder / "log.jsonl").write_text(line)
        >>> log = read_log(folder / "log.jsonl")
        >>> log.score, log.value, log.length, log.alarm, log.unusual
        ('detector', array([1.5]), array([5.]), array([0.]), array([nan]))
    """

    name: str  # of the file
    score: str  # what was scored
    value: Floats  # (answer,) larger: more likely wrong
    alarm: Floats  # (answer,) 1 where it raised an alarm
    unusual: Floats  # (answer,) 1 where something was outside the range of the training answers
    length: Floats  # (answer,) characters
    time: tuple[str, ...]  # (answer,) when it was given, as ISO text; empty where unknown
    offset: int = 0  # answers of the file before these

    def __len__(self) -> int:
        return len(self.value)

    def part(self, name: str, rows: slice) -> AnswerLog:
        """Some of its answers, under another name."""
        columns = {column: getattr(self, column)[rows] for column in ("value", "alarm", "unusual", "length", "time")}
        return replace(self, name=name, **columns, offset=self.offset + (rows.start or 0))


def read_log(path: str | Path) -> AnswerLog:
    """Read a log of scored answers.

    Args:
        path: a file of JSON lines with at least ``score`` and ``value``.

    Returns:
        Its columns, in the order of the file.

    Examples:
        >>> rows = ['{"score": "detector", "value": 1.5}', '{"score": "detector"}']
        >>> _ = (folder / "log.jsonl").write_text("\\n".join(rows))
        >>> read_log(folder / "log.jsonl")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.DataError: line 2 of ...log.jsonl is not a scored answer (Object missing required field ...
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it first."
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path.") from error
    rows: list[LogRow] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            rows.append(_row(line, f"line {number} of {path}"))
            if rows[-1].score != rows[0].score:
                raise DataError(
                    f"line {number} of {path} has the score {rows[-1].score!r}, and those before it {rows[0].score!r}; scores "
                    "of different kinds cannot be compared, so write one log for each."
                )
    rows = [row for row in rows if row.value is not None]
    if not rows:
        raise DataError(
            f"{path} contains no scored answers; give a log that headwise detect or the server has written."
        )
    return _columns(path.name, rows)


def reference_of(path: str | Path, score: str) -> AnswerLog:
    """The answers that new ones are compared with.

    Args:
        path: another log of the same score; or an atlas, whose answers that were held out of the score are taken.
        score: which one, for an atlas.

    Returns:
        Its columns.

    Examples:
        >>> _ = (folder / "calibration.jsonl").write_text('{"score": "detector", "value": 1.5}')
        >>> len(reference_of(folder / "calibration.jsonl", "detector"))
        1
    """
    return _held_out(Atlas.open(path), score) if Path(path).is_dir() else read_log(path)


def _held_out(atlas: Atlas, score: str) -> AnswerLog:
    """Scores of the whole answers that were held out in the study `streaming`."""
    if STUDY not in atlas.studies:
        raise AtlasError(
            f"{atlas.location} has no scores to compare with; build them with headwise build --studies {STUDY} -o "
            f"{atlas.location}, or give another log."
        )
    dataset = atlas[STUDY]
    names = [str(name) for name in dataset[DETECTOR].values]
    if score not in names:
        raise DataError(
            f"The log has the score {score!r}, which {atlas.location} does not know. {did_you_mean(score, names)}"
        )
    one = dataset.sel({DETECTOR: score})
    p = one["probability"].values.astype(np.float64)
    known = np.isfinite(p)
    if not known.any():
        raise DataError(f"{atlas.location} has no held-out answers for the score {score!r}; give another log.")
    if str(one["kind"].item()) == "score":
        value = one["score"].isel({SHARE: -1}).values[known]  # of the whole answer
    else:  # `score` is out of fold; the stored detector's follows from the probability, the ends rounded to 0 or 1 included
        odds = logit(np.clip(p[known], TINY, 1 - TINY))
        value = (odds - float(one["offset"])) / float(one["slope"])
    nothing = np.full(len(value), math.nan)
    return AnswerLog(
        f"the held-out answers of {atlas.location}", score, value, alarm=nothing, unusual=nothing, length=nothing,
        time=("",) * len(value),
    )  # fmt: skip


def _row(line: str, where: str) -> LogRow:
    try:
        return parse(line, LogRow)
    except ValueError as error:
        raise DataError(
            f'{where} is not a scored answer ({error}); write one JSON object per line, with a "score" (its name) and a '
            '"value" (a number, larger for answers more likely wrong).'
        ) from error


def _columns(name: str, rows: Sequence[LogRow]) -> AnswerLog:
    def column(values: Sequence[float | None]) -> Floats:
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)

    return AnswerLog(
        name,
        rows[0].score,
        value=column([row.value for row in rows]),
        alarm=column([row.alarm for row in rows]),
        unusual=column([None if row.unusual is None else bool(row.unusual) for row in rows]),
        length=column([None if row.answer is None else len(row.answer) for row in rows]),
        time=tuple("" if row.time is None else row.time.isoformat() for row in rows),
    )
