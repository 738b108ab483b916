"""The detection study in words: how well do detectors separate wrong answers from correct ones?

The first statement is whether heads tell more than the question does: the gain of `HEADS` over the strongest question-only row,
which was fixed beforehand. "Not shown" where its interval contains 0, with the gain that would have been found; a published
result "does not replicate" only where it lies outside the interval. A sentence whose premise does not hold is omitted; for a
table in which no detector is better than chance, the text says so.
Every number is computed from the Dataset and recorded with its source in `Description.numbers`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from statistics import NormalDist, fmean

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, LAYER, OTHERS, RANK, SIZE, TOPIC, TRAINED_ON
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import SMALL_SAMPLE, Accessor, model_of, with_interval
from headwise.describe.writer import Writer, listed
from headwise.stats.auroc import Auroc, AurocDifference, auroc_by_fold, delong_test

PUBLISHED = (  # from worst to best in the paper, by the names they may have here
    ("attnscore", "attentionscore"),
    ("attneigvals", "attentioneigenvalues", "attention"),
    ("lapeigvals", "laplacianeigenvalues", "laplacian"),
)
PUBLISHED_GAINS = (0.311, 0.046)  # between them, Llama-3.1-8B on TriviaQA
MODEL_ALONE = ("supervised", "combined", "probe", "score")  # kinds of rows that see nothing but the model
POWER = 0.8  # of the gains that would have been found
KINDS = {  # kind: adjective, singular, plural
    "supervised": ("fitted", "fitted detector", "fitted detectors"),
    "combined": ("combined", "combination", "combinations"),
    "probe": ("fitted without labels", "probe that is fitted without labels", "probes that are fitted without labels"),
    "score": ("a score, not fitted", "score that is not fitted", "scores that are not fitted"),
    "question": ("the question alone", "detector of the question alone", "detectors of the question alone"),
    "with question": ("with the question", "combination with the question", "combinations with the question"),
}


class DetectionAccessor(Accessor):
    """The parts of a table of detectors by name."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self.names = [str(name) for name in dataset[DETECTOR].values]
        self.row = {name: row for row, name in enumerate(self.names)}
        reference = str(dataset.attrs.get("reference", ""))
        self.reference = reference if reference in self.names else None
        order = sorted(self.names, key=lambda name: -np.nan_to_num(self.at(name), nan=-1))
        self.every = [name for name in order if math.isfinite(self.at(name))]
        self.ranked = [name for name in self.every if self.text(name, "kind", "supervised") in MODEL_ALONE]
        alone = [name for name in self.names if self.text(name, "kind", "supervised") in MODEL_ALONE]
        self.length = next((name for name in alone if "length" in f"{name} {self.label(name)}".lower()), None)
        with_heads = str(dataset.attrs.get("heads", ""))
        self.with_heads = with_heads if with_heads in self.every else None
        self.question = self.reference if self.reference in self.of_kind("question") else None

    def at(self, name: str, variable: str = "auroc") -> float:
        """A number of one row; NaN where it does not apply."""
        return float(self.dataset.variables[variable].values[self.row[name]]) if variable in self.dataset else math.nan

    def interval(self, name: str, variable: str = "auroc") -> tuple[float, float] | None:
        low, high = self.at(name, f"{variable}_low"), self.at(name, f"{variable}_high")
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None

    def beats_chance(self, name: str) -> bool:
        """Whether the whole interval of a detector is above 0.5."""
        ends = self.interval(name)
        return ends is not None and ends[0] > 0.5

    def finds(self) -> bool:
        """Whether any row is better than chance, corrected for the number of rows.

        Bonferroni: the lower half of the interval is widened to a level of 5 % over the whole table.
        """
        wider = NormalDist().inv_cdf(1 - 0.025 / max(len(self.ranked), 1)) / NormalDist().inv_cdf(1 - 0.025)
        rows = [(self.at(name), ends[0]) for name in self.ranked if (ends := self.interval(name)) is not None]
        return any(value - wider * (value - low) > 0.5 for value, low in rows)

    def text(self, name: str, coord: str, default: str) -> str:
        return str(self.dataset.variables[coord].values[self.row[name]]) if coord in self.dataset.coords else default

    def label(self, name: str) -> str:
        return self.text(name, "label", name)

    def of_kind(self, *kinds: str) -> list[str]:
        """Best first."""
        return [name for name in self.every if self.text(name, "kind", "supervised") in kinds]

    def difference(self, first: str, second: str) -> AurocDifference | None:
        """One AUROC minus another, paired, from the stored scores; None in tables without them."""
        if not {"score", "wrong", "fold_of"} <= set(self.dataset.variables):
            return None
        wrong, fold_of = self.dataset["wrong"].values.astype(bool), self.dataset["fold_of"].values

        def area(name: str) -> Auroc:
            score = self.dataset["score"].sel({DETECTOR: name}).values
            return auroc_by_fold(score, wrong, fold_of, learnt=self.text(name, "kind", "supervised") != "score")[0]

        return delong_test(area(first), area(second))

    def published(self) -> list[str]:
        """The rows of the paper's order, worst first; empty unless all are there."""

        def find(known: tuple[str, ...]) -> str:
            spellings = ((name, text) for name in self.ranked for text in (name, self.label(name)))
            return next((name for name, text in spellings if re.sub(r"[^a-z]", "", text.lower()) in known), "")

        found = [find(known) for known in PUBLISHED]
        return found if all(found) else []

    def curve(self, name: str, variable: str, dim: str) -> dict[int, float]:
        """Coordinate -> AUROC, where it was measured."""
        if variable not in self.dataset:
            return {}
        row = self.dataset[variable].sel({DETECTOR: name})
        pairs = zip(self.dataset[dim].values, row.values, strict=True)
        return {int(x): float(value) for x, value in pairs if math.isfinite(value)}

    def transfer(self, name: str) -> tuple[list[float], list[float], list[float]] | None:
        """AUROCs inside a topic, from one topic to another, and from all others to one; None when one is empty."""
        if "transfer" not in self.dataset:
            return None
        grid = self.dataset["transfer"].sel({DETECTOR: name}).transpose(TRAINED_ON, TOPIC)
        rows, columns = ([str(each) for each in grid[dim].values] for dim in (TRAINED_ON, TOPIC))
        inside, across, others = list[float](), list[float](), list[float]()
        for row, values in zip(rows, grid.values, strict=True):
            for column, value in zip(columns, values, strict=True):
                if math.isfinite(value):
                    (others if row == OTHERS else inside if row == column else across).append(float(value))
        return (inside, across, others) if inside and across and others else None

    def counts(self) -> tuple[int, int] | None:
        """Wrong and correct answers."""
        attrs = self.dataset.attrs
        if {"n_wrong", "n_right"} <= set(attrs):
            return int(attrs["n_wrong"]), int(attrs["n_right"])
        if "wrong" not in self.dataset.variables:
            return None
        wrong = self.dataset["wrong"].values.astype(bool)
        return int(wrong.sum()), int((~wrong).sum())


# ---- overview and axes ----------------------------------------------------------------------------------------------


def _overview(writer: Writer, data: DetectionAccessor) -> Iterator[str]:
    counted = []
    for kind, (_, one, several) in KINDS.items():
        if count := len(data.of_kind(kind)):
            counted.append(f"{writer.count(count, f'kind {kind}')} {one if count == 1 else several}")
    answers, folds = "", data.dataset.attrs.get("folds")
    if (counts := data.counts()) is not None:
        wrong, correct = writer.count(counts[0], "wrong"), writer.count(counts[1], "correct")
        answers = f", on {wrong} wrong and {correct} correct answers"
    detectors = listed(counted) or "no detector"
    yield f"How well wrong answers of {model_of(data)} are separated from correct ones by {detectors}{answers}."
    if folds:
        yield (
            f"Each number is a mean over {writer.count(int(folds), 'folds', 'fold')}; all choices were made inside the "
            "training folds."
        )
    if name := data.data.get("name"):
        yield f"The questions are those of the data '{name}'."


def _axes(writer: Writer, _: DetectionAccessor) -> Iterator[str]:
    half, one = writer.number(0.5, "constant"), writer.number(1, "constant")
    yield (
        f"AUROC is how often a wrong answer scores higher than a correct one: {half} is chance, {one} is perfect. "
        "The range in brackets is the 95 % confidence interval. A score that is not fitted can be below chance: then it "
        "points the other way."
    )


# ---- each detector --------------------------------------------------------------------------------------------------


def _details(writer: Writer, data: DetectionAccessor) -> Iterator[str]:
    """One entry per detector, best first."""
    for name in data.every:
        kind, ends = data.text(name, "kind", "supervised"), data.interval(name)
        text = f"{data.label(name)} ({KINDS[kind][0] if kind in KINDS else kind}): AUROC {_auroc(writer, data, name)}"
        if ends is not None and not data.beats_chance(name):
            text += ", below chance" if ends[1] < 0.5 else ", not significantly better than chance"
        sentences = [f"{text}.", _within(writer, data, name), _gain(writer, data, name), _threshold(writer, data, name)]
        paper = data.at(name, "paper")
        if math.isfinite(paper) and kind != "question":
            value = writer.number(paper, f"paper {name}")
            sentences.append(f"The paper's protocol, which chooses on the test set, would report {value}.")
        yield " ".join(filter(None, sentences))


def _auroc(writer: Writer, data: DetectionAccessor, name: str, variable: str = "auroc") -> str:
    """``0.83 (0.79 to 0.87)``."""
    if data.interval(name, variable) is None:
        return writer.number(data.at(name, variable), f"{variable} {name}")
    return with_interval(writer, lambda key: data.at(name, key), variable, name, write=writer.number)


def _gain(writer: Writer, data: DetectionAccessor, name: str) -> str:
    ends = data.interval(name, "gain")
    if data.reference in (None, name) or ends is None or not math.isfinite(data.at(name, "gain")):
        return ""
    clear = "" if ends[0] > 0 or ends[1] < 0 else "; not a significant difference"
    gain = _auroc(writer, data, name, "gain").removesuffix(")")
    return f"Difference from {data.label(str(data.reference))}: {gain}{clear})."


def _within(writer: Writer, data: DetectionAccessor, name: str) -> str:
    if data.interval(name, "auroc_within") is None or not math.isfinite(data.at(name, "auroc_within")):
        return ""
    return f"Among similar questions {_auroc(writer, data, name, 'auroc_within')}."


def _threshold(writer: Writer, data: DetectionAccessor, name: str) -> str:
    precision, recall = data.at(name, "precision"), data.at(name, "recall")
    if not (data.beats_chance(name) and math.isfinite(precision) and math.isfinite(recall)):
        return ""
    return (
        f"At its default threshold {writer.percent(precision, f'precision {name}')} of the flagged answers are wrong, "
        f"and {writer.percent(recall, f'recall {name}')} of the wrong ones are flagged."
    )


# ---- observations ---------------------------------------------------------------------------------------------------


def _observations(writer: Writer, data: DetectionAccessor) -> Iterator[str]:
    if not data.ranked:
        return
    for sentence in (_beyond_question, _alike, _best, _question_alone, _length_alone, _combination, _published_order):
        yield sentence(writer, data)
    fitted = [name for name in data.of_kind("supervised") if data.beats_chance(name)] if data.finds() else []
    for curve in (_by_k, _by_layer, _by_size, _transfer):
        yield next((text for name in fitted if (text := curve(writer, data, name))), "")


def _beyond_question(writer: Writer, data: DetectionAccessor) -> str:
    """Do heads tell more than the question? The one comparison that was fixed beforehand."""
    if data.with_heads is None or data.question is None or (ends := data.interval(data.with_heads, "gain")) is None:
        return ""
    name, reference = data.with_heads, data.question
    gain = _auroc(writer, data, name, "gain")
    before = f"{writer.number(data.at(reference), f'auroc {reference}')} that {data.label(reference)} has"
    if ends[0] > 0:
        return (
            f"Heads tell more than the question does: added to it, they raise the AUROC by {gain}, from the {before}."
        )
    if ends[1] < 0:
        return f"Heads tell no more than the question does: added to it, they change the AUROC by {gain}, from the {before}."
    text = "That heads tell more than the question does is not shown: added to it, they change the AUROC by "
    text += f"{gain}, from the {before}"
    detectable = data.at(name, "gain_detectable")
    if not math.isfinite(detectable):
        return f"{text}."
    power = writer.percent(POWER, "constant")
    return (
        f"{text}; a gain of {writer.number(detectable, f'gain_detectable {name}')} would be found with {power} power."
    )


def _beyond_in_short(writer: Writer, data: DetectionAccessor) -> str:
    """The same for the headline."""
    if data.with_heads is None or data.question is None or (ends := data.interval(data.with_heads, "gain")) is None:
        return ""
    gain = _auroc(writer, data, data.with_heads, "gain")
    if ends[0] > 0:
        return f"Heads add {gain} to what the question tells."
    if ends[1] < 0:
        return f"Heads add nothing to what the question tells: {gain}."
    return f"That heads add to what the question tells is not shown: {gain}."


def _alike(writer: Writer, data: DetectionAccessor) -> str:
    """The published detector among answers to similar questions."""
    strata, published = str(data.dataset.attrs.get("strata", "")), data.published()
    name = published[-1] if published else next(iter(data.of_kind("supervised")), "")
    ends = data.interval(name, "auroc_within") if name else None
    if not strata or ends is None:
        return ""
    value = _auroc(writer, data, name, "auroc_within")
    count = writer.count(int(data.dataset.attrs["n_strata"]), "strata", "stratum").replace("stratums", "strata")
    chance = "" if ends[0] > 0.5 or ends[1] < 0.5 else ", not significantly different from chance"
    return (
        f"Among answers to similar questions ({strata}, {count}) {data.label(name)} has an AUROC of {value}{chance}; "
        f"among all, {writer.number(data.at(name), f'auroc {name}')}."
    )


def _question_alone(writer: Writer, data: DetectionAccessor) -> str:
    """The question-only rows, strongest first."""
    names = data.of_kind("question")
    if not names:
        return ""
    text = f"The question alone, with nothing of the model, reaches an AUROC of {_auroc(writer, data, names[0])}"
    text += f", by {data.label(names[0])}"
    model = data.of_kind("supervised", "combined")
    over = [name for name in model if (ends := data.interval(name, "gain")) is not None and ends[0] > 0]
    if data.question is None or not model:
        return f"{text}."
    count = writer.count(len(over), "over-question") if over else "none"
    total = writer.count(len(model), "model-fitted", "fitted detector")
    return f"{text}; {count} of {total} {'are' if len(over) > 1 else 'is'} significantly better."


def _corrected(writer: Writer, data: DetectionAccessor) -> str:
    """What the verdict on a whole table is corrected for."""
    if len(data.ranked) < 2:
        return ""
    return f" after correction for {writer.count(len(data.ranked), 'rows')} detectors"


def _best(writer: Writer, data: DetectionAccessor) -> str:
    best, rest = data.ranked[0], data.ranked[1:]
    if not data.finds():
        return (
            f"No detector is significantly better than chance{_corrected(writer, data)}; the highest AUROC is "
            f"{_auroc(writer, data, best)}, of {data.label(best)}."
        )
    text = f"The best detector is {data.label(best)}, with an AUROC of {_auroc(writer, data, best)}."
    ends, close = data.interval(best), list[str]()
    if ends is not None:
        close = [name for name in rest if (other := data.interval(name)) is not None and other[1] >= ends[0]]
    if not close:
        return text
    verb = "that of" if len(close) == 1 else "those of"
    return f"{text} Its interval overlaps with {verb} {listed(map(data.label, close))}: their order is not certain."


def _length_alone(writer: Writer, data: DetectionAccessor) -> str:
    if data.length is None or not math.isfinite(data.at(data.length)):
        return "The answer's length is not in this table, so what it alone would achieve is unknown."
    text = f"Length alone reaches an AUROC of {_auroc(writer, data, data.length)}"
    level, fitted = data.at(data.length), data.of_kind("supervised", "combined")
    over = [name for name in fitted if (ends := data.interval(name)) is not None and ends[0] > level]
    if not fitted:
        return f"{text}."
    count = writer.count(len(over), "over-length") if over else "none"
    total = writer.count(len(fitted), "fitted", "fitted detector")
    verb = "have their" if len(over) > 1 else "has its"
    return f"{text}; {count} of {total} {verb} whole interval above that."


def _combination(writer: Writer, data: DetectionAccessor) -> str:
    """The combination against the best single fitted detector."""
    both, single = data.of_kind("combined"), data.of_kind("supervised")
    if not both or not single or not data.beats_chance(both[0]):
        return ""
    gain = data.at(both[0]) - data.at(single[0])
    return (
        f"{data.label(both[0])} is {writer.number(abs(gain), f'away {both[0]} {single[0]}', digits=2)} "
        f"{'above' if gain > 0 else 'below'} the best single fitted detector, {data.label(single[0])} "
        f"({writer.number(data.at(single[0]), f'auroc {single[0]}')})."
    )


def _published_order(writer: Writer, data: DetectionAccessor) -> str:
    names = data.published()
    if not names:
        return ""
    values = [data.at(name) for name in names]
    parts = [writer.number(value, f"auroc {name}") for name, value in zip(names, values, strict=True)]
    order = " < ".join(map(data.label, names))
    return f"The published order {order} {_replicates(data, names, values)} here: {listed(parts)}."


def _replicates(data: DetectionAccessor, names: list[str], values: list[float]) -> str:
    """Whether each row is better than the one before it; what is published, where that lies outside the interval."""
    found = [data.difference(second, first) for first, second in pairwise(names)]
    gains = [gain for gain in found if gain is not None]
    if len(gains) < len(found):  # no scores are stored
        return "holds" if values == sorted(values) and len(set(values)) == len(values) else "does not hold"
    if all(gain.low > 0 for gain in gains):
        return "holds"
    outside = any(gain.low <= 0 and gain.high < known for gain, known in zip(gains, PUBLISHED_GAINS, strict=True))
    return "does not replicate" if outside else "is not shown"


def _by_k(writer: Writer, data: DetectionAccessor, name: str) -> str:
    curve = data.curve(name, "by_k", RANK)
    if len(curve) < 2:
        return ""
    first, last, best = min(curve), max(curve), max(curve, key=lambda k: curve[k])
    ends = [f"{writer.number(curve[k], f'by_k {name} {k}')} with k = {writer.number(k, 'edge')}" for k in (first, last)]
    text = f"{data.label(name)} has an AUROC of {ends[0]} and of {ends[1]} eigenvalues per head"
    if best in (first, last):
        return f"{text}; no k in between is better." if len(curve) > 2 else f"{text}."
    return f"{text}; the best k is {writer.number(best, 'edge')} ({writer.number(curve[best], f'by_k {name} {best}')})."


def _by_layer(writer: Writer, data: DetectionAccessor, name: str) -> str:
    curve = data.curve(name, "by_layer", LAYER)
    if len(curve) < 2:
        return ""
    best = max(curve, key=lambda layer: curve[layer])
    value = writer.number(curve[best], f"by_layer {name} {best}")
    count = writer.count(len(curve), f"layer-count {name}", "layer")
    text = f"On one layer alone {data.label(name)} is best in layer {writer.number(best, 'edge')} ({value})"
    if data.text(name, "choice", "") != LAYER:  # it reads all layers, not one chosen inside the training folds
        text += f"; all layers together give {writer.number(data.at(name), f'auroc {name}')}"
    return f"{text}. The best of {count} is chosen on the test folds, so its AUROC is slightly optimistic."


def _by_size(writer: Writer, data: DetectionAccessor, name: str) -> str:
    curve = data.curve(name, "by_size", SIZE)
    if len(curve) < 2:
        return ""
    sizes = sorted(curve)
    first, end = (
        f"{writer.number(curve[n], f'by_size {name} {n}')} on {writer.number(n, 'edge')}" for n in (sizes[0], sizes[-1])
    )
    gained = writer.number(curve[sizes[-1]] - curve[sizes[-2]], f"step {name}", digits=2)
    step = f"the last step, from {writer.number(sizes[-2], 'edge')}, added {gained}"
    return f"Fitted on more answers {data.label(name)} goes from {first} to {end}; {step}."


def _transfer(writer: Writer, data: DetectionAccessor, name: str) -> str:
    found = data.transfer(name)
    if found is None:
        return ""
    inside, across, others = (
        writer.number(fmean(values), f"{what} {name}")
        for values, what in zip(found, ("inside", "across", "others"), strict=True)
    )
    return (
        f"Across topics {data.label(name)} has a mean AUROC of {inside} inside a topic, {across} when fitted on one "
        f"topic and tested on another, and {others} on a topic when fitted on all others."
    )


# ---- caveats and the short form -------------------------------------------------------------------------------------


def _caveats(writer: Writer, data: DetectionAccessor) -> Iterator[str]:
    counts = data.counts()
    if counts is not None and min(counts) < SMALL_SAMPLE:
        rarer = writer.count(min(counts), "rarer")
        yield f"The rarer class of answers has only {rarer}, so intervals are wide."
    if len(data.ranked) > 1:
        yield (
            f"The AUROC of the best of {writer.count(len(data.ranked), 'rows')} detectors is slightly optimistic; each "
            "interval is for one detector on other answers of the same kind, not for another training set."
        )
    if data.question is not None:
        yield (
            "Gains are counted from the strongest row of the question alone, which as the best of several is slightly too "
            "high: they are rather too small than too large."
        )
    if data.length is not None:
        yield "Length is a confounder: a detector no better than length may have learnt nothing else."
    if not data.parameters.get("judge"):
        yield "Answers were labelled by comparing strings, so some labels are mistaken."
    yield "This is one model on one set of questions."


def _headline(writer: Writer, data: DetectionAccessor) -> str:
    rows = writer.count(len(data.names), "all-rows", "detector")
    first = f"AUROC of {rows} of wrong answers of {model_of(data)}."
    if not data.ranked:
        return first
    best, verdict = data.ranked[0], "The best"
    if not data.finds():
        verdict = f"None is significantly better than chance{_corrected(writer, data)}; the highest"
    text = f"{first} {verdict} is {data.label(best)}, {_auroc(writer, data, best)}"
    if beyond := _beyond_in_short(writer, data):
        return f"{text}. {beyond}"
    if data.length is None or data.length == best or not math.isfinite(data.at(data.length)):
        return f"{text}."
    return f"{text}; length alone reaches {writer.number(data.at(data.length), f'auroc {data.length}')}."


describe = Narrative(
    "How well wrong answers are separated from correct ones",
    DetectionAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
