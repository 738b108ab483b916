"""The detection study in words: how well do detectors tell wrong answers from correct ones?

Overview, axes, caveats and the short form are here; the findings are in `findings.py`. Every number is
computed from the Dataset and kept, with what it is, in `Description.numbers`.
"""

from __future__ import annotations

import math

from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_of
from headwise.describe.writer import Writer, listed
from headwise.studies.spectral.detection_accessor import DetectionReading
from headwise.studies.spectral.detection_findings import add_details, add_observations, looked_at, value

FEW = 100  # answers of the rarer kind below which the sample is called small
NOUNS = {"supervised": "fitted detector", "combined": "combination", "score": "score that is not fitted"}
SEVERAL = {"score": "scores that are not fitted"}


def _add_overview(writer: Writer, reading: DetectionReading) -> None:
    kinds = {kind: len(reading.of_kind(kind)) for kind in NOUNS}
    rows = listed(_counted(writer, kind, count) for kind, count in kinds.items() if count)
    answers, folds = "", reading.dataset.attrs.get("folds")
    if (counts := reading.counts()) is not None:
        wrong, correct = writer.count(counts[0], "wrong"), writer.count(counts[1], "correct")
        answers = f", on {wrong} wrong and {correct} correct answers"
    text = (
        f"How well wrong answers of {model_of(reading)} are told from correct ones by {rows or 'no detector'}{answers}."
    )
    writer.add("overview", text)
    if folds:
        writer.add(
            "overview",
            f"Each number is a mean over {writer.count(int(folds), 'folds', 'fold')}; what is to be chosen was chosen "
            "inside the training folds.",
        )
    if data := reading.origin.get("data", {}).get("name"):
        writer.add("overview", f"The questions are those of the data '{data}'.")


def _counted(writer: Writer, kind: str, count: int) -> str:
    if count > 1 and kind in SEVERAL:
        return f"{writer.count(count, f'kind {kind}')} {SEVERAL[kind]}"
    return writer.count(count, f"kind {kind}", NOUNS[kind])


def _add_axes(writer: Writer, _: DetectionReading) -> None:
    half, one = writer.number(0.5, "constant"), writer.number(1, "constant")
    writer.add(
        "axes",
        f"AUROC is how often a wrong answer scores higher than a correct one: {half} is a coin toss, {one} is perfect. "
        "The range in brackets is the 95 % interval. A score that is not fitted can be below a coin toss: then it "
        "points the other way.",
    )


def _add_caveats(writer: Writer, reading: DetectionReading) -> None:
    counts = reading.counts()
    if counts is not None and min(counts) < FEW:
        rarer = writer.count(min(counts), "rarer")
        writer.add("caveats", f"The rarer kind of answer has only {rarer}, so intervals are wide.")
    if len(reading.ranked) > 1:
        writer.add(
            "caveats",
            f"The best of {writer.count(len(reading.ranked), 'rows')} detectors tends to be a little too good; "
            "intervals are of each one by itself, for other answers of the same kind, not for another training set.",
        )
    if reading.length is not None:
        writer.add("caveats", "Length is a confounder: a detector near the level of length may know nothing else.")
    if not reading.origin.get("parameters", {}).get("judge"):
        writer.add("caveats", "Answers were labelled by comparing strings, so some labels are mistaken.")
    writer.add("caveats", "This is one model on one set of questions.")


def _headline(writer: Writer, reading: DetectionReading) -> str:
    rows = writer.count(len(reading.names), "all-rows", "detector")
    first = f"AUROC of {rows} of wrong answers of {model_of(reading)}."
    if not reading.ranked:
        return first
    best = reading.ranked[0]
    verdict = (
        "The best" if reading.finds() else f"None is told from a coin toss{looked_at(writer, reading)}; the highest"
    )
    text = f"{verdict} is {reading.label(best)}, {value(writer, reading, best)}"
    if reading.length is None or reading.length == best or not math.isfinite(reading.at(reading.length)):
        return f"{first} {text}."
    return (
        f"{first} {text}; length alone reaches {writer.number(reading.at(reading.length), f'auroc {reading.length}')}."
    )


describe = Narrative(
    "How well wrong answers are told from correct ones",
    DetectionReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
