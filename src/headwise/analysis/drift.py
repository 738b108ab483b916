"""Has a log of scored answers drifted from the answers that its threshold was set on? Tests, and the report in words.

    drift_report(read_log("week-2.jsonl"), read_log("week-1.jsonl"))

Compared are the score, the share of alarms, the share of unusual answers and the length of the answers, as far as both logs
have them; the score in windows, too, which say where the change began. The tests are those of `stats.drift`. No labels are
needed, so the report cannot say whether the score still finds wrong answers: only whether it meets the same kind of answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.analysis.drift_log import AnswerLog
from headwise.core.errors import DataError
from headwise.describe.writer import Description, Writer, listed
from headwise.stats import Drift, Shift, drift_test, wilson_interval

VALUE, ALARM, UNUSUAL, LENGTH = "value", "alarm", "unusual", "length"
QUANTITIES = {VALUE: "score", ALARM: "alarms", UNUSUAL: "unusual answers", LENGTH: "length"}
SHARES = (ALARM, UNUSUAL)
WINDOWS = "score in windows"
LEVEL, SMALLEST_Q = 0.05, 0.001  # smaller ones are written as below this


@dataclass(frozen=True)
class DriftReport:
    """A log against its reference.

    Examples:
        >>> from headwise.analysis import read_log
        >>> lines = [f'{{"score": "detector", "value": {n % 10 + n // 60}}}' for n in range(120)]
        >>> _ = (folder / "log.jsonl").write_text("\\n".join(lines))
        >>> log = read_log(folder / "log.jsonl")
        >>> found = drift_report(log.part("the second half", slice(60, 120)), log.part("the first half", slice(60)))
        >>> found.found.drifted, found.to_dict()["quantities"]["value"]["new"]
        (False, 5.5)
    """

    log: AnswerLog  # the new answers
    reference: AnswerLog  # what they are compared with
    found: Drift  # the tests

    def share(self, quantity: str) -> tuple[float, float, float]:
        """The share of new answers with an alarm (or of unusual ones), with Wilson's interval; NaN where nothing is known."""
        values = getattr(self.log, quantity)
        known = values[~np.isnan(values)]
        if not known.size:
            return math.nan, math.nan, math.nan
        low, high = wilson_interval(known.mean(), known.size)
        return float(known.mean()), float(low), float(high)

    def rows(self, window: int) -> tuple[int, int]:
        """The first and the last answer of a window, counted from 1 as in the file."""
        return int(self.found.start[window]) + self.log.offset + 1, int(self.found.stop[window]) + self.log.offset

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        windows = range(len(self.found.p))
        return {
            "score": self.log.score,
            "drifted": self.found.drifted,
            "answers": {"reference": len(self.reference), "new": len(self.log)},
            "quantities": {shift.name: _plain(shift._asdict()) for shift in self.found.shifts},
            **{
                f"{quantity}_share": _plain(dict(zip(("share", "low", "high"), self.share(quantity), strict=True)))
                for quantity in SHARES
            },
            "windows": [
                _plain(
                    {
                        "first": self.rows(one)[0],
                        "last": self.rows(one)[1],
                        "time": self.log.time[int(self.found.start[one])] or None,
                        "median": float(self.found.median[one]),
                        "p": float(self.found.p[one]),
                    }
                )
                for one in windows
            ],
            "windows_q": self.found.windows_q,
            "began": None if self.found.first is None else self.found.first,
        }


def drift_report(log: AnswerLog, reference: AnswerLog) -> DriftReport:
    """Compare new answers with the reference.

    Args:
        log: new answers, in the order in which they were given.
        reference: those that the threshold was set on, or an earlier part of the log.

    Returns:
        The tests of the score, the alarms, the unusual answers and the length, and of the score in windows.

    Examples:
        >>> from headwise.analysis import read_log
        >>> lines = [f'{{"score": "detector", "value": {n % 10 + n // 10}}}' for n in range(200)]
        >>> _ = (folder / "log.jsonl").write_text("\\n".join(lines))
        >>> log = read_log(folder / "log.jsonl")
        >>> found = drift_report(log.part("the last 100", slice(100, 200)), log.part("the first 100", slice(100)))
        >>> found.found.drifted, found.rows(found.found.first)
        (True, (101, 150))
    """
    if log.score != reference.score:
        raise DataError(
            f"{log.name} has the score {log.score!r} and {reference.name} {reference.score!r}; scores of different kinds "
            "cannot be compared, so give a reference with the same score."
        )
    sides = [{name: getattr(one, name) for name in QUANTITIES} for one in (reference, log)]
    both = [name for name in QUANTITIES if all((~np.isnan(side[name])).any() for side in sides)]
    before, after = ({name: side[name] for name in both} for side in sides)
    return DriftReport(log, reference, drift_test(before, after, follow=VALUE, shares=SHARES))


def describe_drift(report: DriftReport) -> Description:
    """The report in words.

    Args:
        report: from `drift_report`.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import read_log
        >>> lines = [f'{{"score": "detector", "value": {n % 10}}}' for n in range(80)]
        >>> _ = (folder / "log.jsonl").write_text("\\n".join(lines))
        >>> log = read_log(folder / "log.jsonl")
        >>> print(describe_drift(drift_report(log, log)).headline)
        No drift was found: none of 2 tests has q < 0.05.
    """
    writer = Writer(f"Drift: {report.log.name} against {report.reference.name}")
    headline = _headline(writer, report)
    new = writer.count(len(report.log), "new answers", "new answer")
    reference = writer.count(len(report.reference), "reference answers")
    writer.add("overview", headline)
    writer.add("overview", f"{new} are compared with {reference} of the reference, by the score {report.log.score}.")
    for shift in report.found.shifts:
        writer.add("detail", _share_words(writer, report, shift) if shift.is_share else _number_words(writer, shift))
    tested = {shift.name for shift in report.found.shifts}
    for quantity in SHARES:
        if quantity not in tested:
            writer.add("detail", _share_alone(writer, report, quantity))
    if len(report.found.p) > 1:
        writer.add("observations", _beginning(writer, report))
    for caveat in _caveats(report):
        writer.add("caveats", caveat)
    return writer.finish(headline)


def _headline(writer: Writer, report: DriftReport) -> str:
    found = report.found
    tests = {QUANTITIES[shift.name]: shift.q for shift in found.shifts if not math.isnan(shift.q)}
    tests[WINDOWS] = found.windows_q
    moved = [name for name, q in tests.items() if q < LEVEL]
    total = writer.count(len(tests), "tests", "test")
    if not moved:
        return f"No drift was found: none of {total} has q < 0.05."
    count = writer.count(len(moved), "tests with q < 0.05")
    return f"The answers drifted: {count} of {total} {'has' if len(moved) == 1 else 'have'} q < 0.05 ({listed(moved)})."


def _number_words(writer: Writer, shift: Shift) -> str:
    name = "Score" if shift.name == VALUE else "Length in characters"
    new, before = (writer.number(value, f"median {shift.name}") for value in (shift.new, shift.reference))
    words = f"{name}: median {new}, in the reference {before}"
    if math.isnan(shift.p):
        return f"{words}; too few answers have one for a test."
    effect, low, high = (
        writer.percent(one, f"P(new > reference), {shift.name}") for one in (shift.effect, shift.low, shift.high)
    )
    pairs = f"{effect} of pairs ({low} to {high}; 50 % is no shift)"
    return f"{words}; a new answer has the larger one in {pairs}, {_q(writer, shift)}."


def _share_words(writer: Writer, report: DriftReport, shift: Shift) -> str:
    words = _share_alone(writer, report, shift.name).rstrip(".")
    words += f", in the reference {writer.percent(shift.reference, f'share {shift.name}')}"
    if math.isnan(shift.p):
        return f"{words}; too few answers say for a test."
    effect, low, high = (
        writer.number(100 * one, f"difference {shift.name}", digits=2) for one in (shift.effect, shift.low, shift.high)
    )
    return f"{words}; difference in percentage points {effect} ({low} to {high}), {_q(writer, shift)}."


def _share_alone(writer: Writer, report: DriftReport, quantity: str) -> str:
    """Of the new answers alone; empty text where it is not known."""
    share, low, high = report.share(quantity)
    if math.isnan(share):
        return ""
    name = QUANTITIES[quantity].capitalize()
    ends = " to ".join(writer.percent(one, f"share {quantity}") for one in (low, high))
    return f"{name}: {writer.percent(share, f'share {quantity}')} of the new answers ({ends})."


def _q(writer: Writer, shift: Shift) -> str:
    return "q < 0.001" if shift.q < SMALLEST_Q else f"q = {writer.number(shift.q, f'q {shift.name}', digits=2)}"


def _beginning(writer: Writer, report: DriftReport) -> str:
    found = report.found
    count = writer.count(len(found.p), "windows")
    if found.first is None:
        return f"In none of {count} windows (equal parts of the new answers) does the score differ."
    first, last = (writer.count(row, "row of the log") for row in report.rows(found.first))
    when = report.log.time[int(found.start[found.first])]
    since = f" (from {when})" if when else ""
    median = writer.number(float(found.median[found.first]), "median of the window")
    return (
        f"The score first differs from the reference in answers {first} to {last} of the log{since}, where its median is "
        f"{median}. Windows are {count} equal parts of the new answers; the change may have begun earlier."
    )


def _caveats(report: DriftReport) -> list[str]:
    found = [
        "The tests take answers as independent; the same question asked many times counts as more than it is.",
        "Drift says that answers or questions changed, not that the score is worse at finding wrong answers: for that, label a "
        "sample of the new ones.",
    ]
    if report.found.drifted:
        found.append(
            "A threshold or probability that was calibrated on the reference promises nothing for answers that differ from it; "
            "calibrate on new ones."
        )
    return found


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in values.items()}
