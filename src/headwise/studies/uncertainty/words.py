"""The study `uncertainty` in words: which scores beat what costs nothing, which add to the question, and what they cost.

"Beats" and "adds" mean q < 0.05 over all scores: the best of thirty scores is always better than the log-probability on the
answers at hand. Everything else is "not shown", with the gain that would have been found. Every number is computed from the
Dataset and recorded with its source in `Description.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
import xarray as xr

from headwise.core.dims import COST_CLASS
from headwise.core.parsing import parse_attribute
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import SMALL_SAMPLE, model_of, with_interval
from headwise.describe.writer import Writer, listed
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.spectral.detection_words import KINDS, DetectionAccessor
from headwise.studies.uncertainty.figure import COST_LABELS, LENGTH, LOGPROB_MIN, best_by_cost, relative_seconds

NAMED = 4  # scores in a sentence
SAMPLED = "Semantic entropy"  # the comparison that the study was made for


class ScoresAccessor(DetectionAccessor):
    """The table of scores; ``asked``: all that ask the model, best first, without the answer's length."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self.asked = [name for name in self.ranked if name != LENGTH]

    def beating(self, what: str) -> list[str]:
        """The scores whose difference is above 0 with q < 0.05, best first."""
        return [name for name in self.asked if self.at(name, what) > 0 and self.at(name, f"{what}_q") < ALPHA]

    def below(self, what: str) -> list[str]:
        """Those whose difference is below 0 with q < 0.05."""
        return [name for name in self.asked if self.at(name, what) < 0 and self.at(name, f"{what}_q") < ALPHA]

    def cost(self, name: str) -> str:
        """What a score needs, as a phrase."""
        cost = self.text(name, "cost", "pass")
        return COST_LABELS.get(cost, cost)


def _overview(writer: Writer, data: ScoresAccessor) -> Iterator[str]:
    counted = []
    for kind, (_, one, several) in KINDS.items():
        if count := len([name for name in data.every if data.text(name, "kind", "") == kind]):
            counted.append(f"{writer.count(count, f'kind {kind}')} {one if count == 1 else several}")
    counts = data.counts()
    answers = ""
    if counts is not None:
        wrong, correct = writer.count(counts[0], "wrong"), writer.count(counts[1], "correct")
        answers = f", on {wrong} wrong and {correct} correct answers of {model_of(data)}"
    yield f"How well wrong answers are found by {listed(counted)}{answers}."
    if samples := int(data.dataset.attrs.get("samples", 0)):
        yield f"{writer.count(samples, 'samples', 'sampled answer')} per question were compared with each other."
    yield f"AUROCs are means over {writer.count(int(data.dataset.attrs['folds']), 'folds', 'fold')}, the same for all rows."


def _axes(writer: Writer, _: ScoresAccessor) -> Iterator[str]:
    half, one = writer.number(0.5, "constant"), writer.number(1, "constant")
    yield (
        f"AUROC is how often a wrong answer scores higher than a correct one: {half} is chance, {one} is perfect; in brackets "
        "the 95 % confidence interval. Scores that are not fitted keep the direction of their paper and can be below chance."
    )


def _details(writer: Writer, data: ScoresAccessor) -> Iterator[str]:
    """One entry per score, best first."""
    for name in data.every:
        kind = data.text(name, "kind", "score")
        needs = "" if kind == "question" else f"; {data.cost(name)}"
        text = f"{name} ({KINDS[kind][0]}{needs}): AUROC {_ranged(writer, data, name, 'auroc')}"
        if math.isfinite(data.at(name, "auroc_within")):
            text += f", among similar questions {_value(writer, data, name, 'auroc_within')}"
        text += f", PRR {_value(writer, data, name, 'prr')}"
        yield f"{text}."


def _observations(writer: Writer, data: ScoresAccessor) -> Iterator[str]:
    if not data.asked:
        return
    yield _against_logprob(writer, data)
    yield _beyond_question(writer, data)
    yield _sampled(writer, data)
    yield _by_cost(writer, data)
    yield _turned(writer, data)
    yield _calibrated(writer, data)


def _against_logprob(writer: Writer, data: ScoresAccessor) -> str:
    better, worse = data.beating("gain_logprob"), data.below("gain_logprob")
    total = writer.count(len(data.asked) - (LOGPROB_MIN in data.asked), "tried", "other score")
    level = writer.number(ALPHA, "constant")
    if better:
        verb = "beats" if len(better) == 1 else "beat"
        text = f"Of {total}, {_named(writer, data, better, 'gain_logprob')} {verb} {LOGPROB_MIN} (q < {level})"
    else:
        text = f"That any of {total} beats {LOGPROB_MIN} is not shown (no gain with q < {level})"
    if worse:
        text += f"; {writer.count(len(worse), 'below gain_logprob')} {'is' if len(worse) == 1 else 'are'} below it"
    return f"{text}."


def _beyond_question(writer: Writer, data: ScoresAccessor) -> str:
    better, level = data.beating("added"), writer.number(ALPHA, "constant")
    if not data.reference:
        return ""
    known = _value(writer, data, str(data.reference), "auroc")
    if not better:
        return (
            f"That any score adds to what the question alone tells (AUROC {known}, {data.reference}) is not shown (q < "
            f"{level})."
        )
    return (
        f"To what the question alone tells (AUROC {known}, {data.reference}), {_named(writer, data, better, 'added')} "
        f"add{'s' * (len(better) == 1)} something (q < {level})."
    )


def _sampled(writer: Writer, data: ScoresAccessor) -> str:
    """Does sampling several answers pay? The comparison that was fixed beforehand."""
    ends = data.interval(SAMPLED, "gain_logprob") if SAMPLED in data.asked else None
    if ends is None:
        return ""
    gain = _ranged(writer, data, SAMPLED, "gain_logprob")
    if ends[0] > 0:
        return f"{SAMPLED}, the one comparison that was fixed beforehand, is better than {LOGPROB_MIN} by {gain}."
    if ends[1] < 0:
        return f"{SAMPLED}, the one comparison that was fixed beforehand, is worse than {LOGPROB_MIN}: {gain}."
    least = writer.number(data.at(SAMPLED, "detectable"), f"detectable {SAMPLED}")
    return (
        f"That {SAMPLED}, the one comparison that was fixed beforehand, is better than {LOGPROB_MIN} is not shown: {gain}; a "
        f"gain of {least} would be found in {writer.percent(0.8, 'constant')} of such studies."
    )


def _by_cost(writer: Writer, data: ScoresAccessor) -> str:
    """The best score of each cost, and its time."""
    times, parts = relative_seconds(data.dataset), []
    for cost, name in best_by_cost(data.dataset).items():
        text = f"{COST_LABELS[cost]} {name} ({_value(writer, data, name, 'auroc')})"
        if times.get(cost, 1.0) > 1:
            text += f", {writer.number(times[cost], f'time {cost}', digits=2)} times the time of the answer"
        parts.append(text)
    return f"The best AUROC by what a score needs: {'; '.join(parts)}."


def _turned(writer: Writer, data: ScoresAccessor) -> str:
    """Scores that point the other way, beyond what the best of so many does by chance (Bonferroni)."""
    normal = NormalDist()
    wider = normal.inv_cdf(1 - 0.025 / len(data.asked)) / normal.inv_cdf(1 - 0.025)
    ends = {name: (data.at(name), data.interval(name)) for name in data.asked}
    turned = [name for name, (at, pair) in ends.items() if pair is not None and at + wider * (pair[1] - at) < 0.5]
    if not turned:
        return ""
    named = listed(f"{name} ({_value(writer, data, name, 'auroc')})" for name in turned[-NAMED:])
    return f"Significantly below chance, so that their published direction is wrong here: {named}."


def _calibrated(writer: Writer, data: ScoresAccessor) -> str:
    name = data.asked[0]
    return (
        f"Probabilities made from {name}, the highest AUROC, have a calibration error of "
        f"{_value(writer, data, name, 'ece')}; perfect ones show {_value(writer, data, name, 'ece_null')} with so few answers."
    )


def _caveats(writer: Writer, data: ScoresAccessor) -> Iterator[str]:
    counts = data.counts()
    if counts is not None and min(counts) < SMALL_SAMPLE:
        yield f"The rarer class of answers has only {writer.count(min(counts), 'rarer')}, so intervals are wide."
    yield (
        f"The best of {writer.count(len(data.asked), 'asked')} scores is slightly optimistic; whether scores differ is decided "
        "by q-values. Fitted rows hold for answers of the same kind. Whether samples say the same is decided "
        f"by {'an entailment model' if data.parameters.get('entailment') else 'comparing exact answers'}, and SAR's "
        "similarity is the model's own embedding, not a cross-encoder."
    )
    for name, reason in parse_attribute(data.dataset.attrs, "left_out", dict[str, str], "{}").items():
        yield f"{name} is left out: {reason}."
    if np.isfinite(data.dataset["seconds"].sel({COST_CLASS: "pass"}).item()):
        yield "Times are of this machine and batch size; what a pass reads can be read while the answer is written, at less."
    if not data.parameters.get("judge"):
        yield "Answers were labelled by comparing strings, so some labels are mistaken."
    yield "This is one model on one set of questions."


def _headline(writer: Writer, data: ScoresAccessor) -> str:
    if not data.asked:
        return f"No score of wrong answers of {model_of(data)} could be computed."
    best, better = data.asked[0], data.beating("gain_logprob")
    rows = writer.count(len(data.asked), "all asked", "score")
    highest = f"{best} has the highest AUROC, {_ranged(writer, data, best, 'auroc')}"
    text = f"Of {rows} of wrong answers of {model_of(data)}, {highest}"
    if better:
        return f"{text}; {writer.count(len(better), 'beat')} beat{'s' * (len(better) == 1)} {LOGPROB_MIN}."
    return f"{text}; that any beats {LOGPROB_MIN} ({_value(writer, data, LOGPROB_MIN, 'auroc')}) is not shown."


def _named(writer: Writer, data: ScoresAccessor, names: Sequence[str], what: str) -> str:
    """A few with their differences, and how many there are."""
    shown = sorted(names, key=lambda name: -data.at(name, what))[:NAMED]
    text = listed(f"{name} by {_ranged(writer, data, name, what)}" for name in shown)
    count = writer.count(len(names), f"beating {what}", "score")
    return f"{count}{', most' if len(names) > NAMED else ''} ({text})"


def _ranged(writer: Writer, data: ScoresAccessor, name: str, variable: str) -> str:
    return with_interval(writer, lambda key: data.at(name, key), variable, name)


def _value(writer: Writer, data: ScoresAccessor, name: str, variable: str) -> str:
    return writer.fixed(data.at(name, variable), f"{variable} {name}")


describe = Narrative(
    "Which score of an answer finds wrong answers best",
    ScoresAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
