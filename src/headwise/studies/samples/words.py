"""The sampling study in words: how the model errs when asked many times, and which of its answers to take.

Every number is computed from the Dataset and stored, with its source, in `Description.numbers`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import DRAW, ERROR_TYPE, EXAMPLE, STRATEGY
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import SMALL_SAMPLE, model_in, with_interval
from headwise.describe.writer import Writer, listed
from headwise.figures.provenance import provenance_of
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.power import minimum_detectable_gain

STRATEGY_NAMES = {
    "greedy": "the greedy answer",
    "random": "a random sample",
    "majority": "the majority's answer",
    "probe": "the probe's choice",
    "trust": "the vote weighted by the probe",
    "any": "any correct sample (the upper bound)",
}
PUBLISHED_GAINS = (0.04, 0.08)  # Orgad et al., TriviaQA: Llama-3-8B, Mistral-7B


def _overview(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    questions = writer.count(dataset.sizes[EXAMPLE], "questions", "question")
    draws = writer.count(dataset.sizes[DRAW], "samples", "time")
    yield (
        f"{model_in(dataset)} was asked {questions}, {draws} each with tokens sampled at random; types of errors are defined "
        "by how its answers differ, and a probe chooses among them."
    )
    layer = writer.count(int(dataset.attrs["layer"]), "layer")
    yield (
        f"The probe reads the site {dataset.attrs['site']} of layer {layer} at the last token of the exact answer, and was "
        f"fitted on {_fitted(writer, dataset)}; its AUROC over samples is {_ranged(writer, dataset, 'probe_auroc')}"
        f"{_within(writer, dataset)}."
    )


def _fitted(writer: Writer, dataset: xr.Dataset) -> str:
    if "fit_questions" not in dataset:
        return "the samples of other questions"
    questions, answers = (int(dataset[name]) for name in ("fit_questions", "fit_answers"))
    return (
        f"{writer.count(answers, 'fit_answers', 'greedy or sampled answer')} to "
        f"{writer.count(questions, 'fit_questions', 'question')}, each of which weighs the same, but never on those to the "
        "question it chooses for"
    )


def _within(writer: Writer, dataset: xr.Dataset) -> str:
    if "within_auroc" not in dataset or not np.isfinite(dataset["within_auroc"]):
        return ""
    return f", and over pairs of samples of the same question {_ranged(writer, dataset, 'within_auroc')}"


def _axes(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    yield (
        "Accuracy is the share of questions whose chosen answer is correct, a refusal counting as not correct. The range in "
        "brackets is the 95 % confidence interval, from a bootstrap over questions; gains over the greedy answer are paired by "
        "question."
    )
    yield (
        "With K samples: A, refusals are the largest group; B, at least half are correct; C, at least half are one and the "
        "same wrong answer; D, correct answers and one wrong answer are about as many; E, at least a third as many "
        "different wrong answers as samples. A question can be of several types."
    )


def _accuracies(writer: Writer, dataset: xr.Dataset) -> str:
    parts = [
        f"{STRATEGY_NAMES[name]} {_ranged(writer, dataset.sel({STRATEGY: name}), 'accuracy', name)}"
        for name in _strategies(dataset)
    ]
    return f"Accuracy: {listed(parts)}."


def _types(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    total = dataset.sizes[EXAMPLE]
    for name in (str(name) for name in dataset[ERROR_TYPE].values):
        one = dataset.sel({ERROR_TYPE: name})
        size = int(one["is_type"].sum())
        count = writer.count(size, f"size {name}", "question")
        text = f"{name}, {one['type_name'].item()}: {count} ({writer.percent(size / total, f'share {name}')})"
        if size:
            greedy, probe = (
                _ranged(writer, one.sel({STRATEGY: way}), "type_accuracy", f"{name} {way}")
                for way in ("greedy", "probe")
            )
            text += f"; greedy {greedy}, probe {probe}"
        if np.isfinite(one["type_auroc"]):
            null = writer.fixed(float(one["type_null_high"]), f"type_null_high {name}")
            auroc, low, high = (
                writer.fixed(float(one[part]), f"{part} {name}") for part in ("type_auroc", "type_low", "type_high")
            )
            text += f"; separated from the rest with AUROC {auroc} ({low} to {high}; permuted labels, 95th percentile: {null})"
        elif size:
            text += "; too few questions, of it or of the rest, to fit a probe"
        yield f"{text}."


def _observations(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    for name in (name for name in ("majority", "probe", "trust") if name in _strategies(dataset)):
        one = dataset.sel({STRATEGY: name})
        gain = _ranged(writer, one, "gain", name)
        yield f"Taking {STRATEGY_NAMES[name]} instead of the greedy answer changes accuracy by {gain}{_sure(one)}."
    yield _published(writer, dataset)
    low, value = (dataset[part].sel({STRATEGY: "probe"}) for part in ("type_gain_low", "type_gain"))
    sure = [str(name) for name in dataset[ERROR_TYPE].values if float(low.sel({ERROR_TYPE: name})) > 0]
    if sure:
        rows = (
            f"{name} (by {writer.fixed(float(value.sel({ERROR_TYPE: name})), f'type_gain {name}')})" for name in sure
        )
        yield f"The probe's choice gains significantly on questions of type {listed(rows)}."
    separated = [
        str(name)
        for name in dataset[ERROR_TYPE].values
        if float(dataset["type_low"].sel({ERROR_TYPE: name})) > float(dataset["type_null_high"].sel({ERROR_TYPE: name}))
    ]
    tried = int(np.isfinite(dataset["type_auroc"].values).sum())
    if tried:
        count, total = writer.count(len(separated), "separated"), writer.count(tried, "tried", "type")
        yield (
            f"Of {total} with enough questions, {count} are separated from the rest by one activation better than with "
            f"permuted labels{': ' + listed(separated) if separated else ''}."
        )


def _published(writer: Writer, dataset: xr.Dataset) -> str:
    """The probe's gain next to the published one, and what these questions could have shown."""
    one = dataset.sel({STRATEGY: "probe"})
    low, high = float(one["gain_low"]), float(one["gain_high"])
    published = [writer.fixed(gain, "constant") for gain in PUBLISHED_GAINS]
    least = writer.fixed(minimum_detectable_gain((high - low) / (2 * HALF_WIDTH)), "detectable")
    verdict = "such a gain is found here" if low > 0 else "a gain is not shown here, nor is the published one excluded"
    if high < PUBLISHED_GAINS[0]:
        verdict = "which does not replicate here"
    return (
        f"Published gains of the probe's choice over the greedy answer are {published[0]} to {published[1]}, for models of 7 "
        f"and 8 billion parameters: {verdict}. With these questions, a gain of {least} would be found in 80 % of such studies."
    )


def _caveats(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    if dataset.sizes[EXAMPLE] < SMALL_SAMPLE:
        yield f"Only {writer.count(dataset.sizes[EXAMPLE], 'questions')} questions, so intervals are wide."
    yield (
        "The layer was chosen on greedy answers to the same questions, which is slightly optimistic; "
        "the probe's weights are those of other questions. Choosing among samples costs as many answers as there are "
        "samples. Types are defined by the same samples. Wrong answers with the same words count as equal."
    )
    if not provenance_of(dataset).get("parameters", {}).get("judge"):
        yield "Answers were labelled by comparing strings, so some labels are wrong."
    yield "This is one model on one set of questions."


def _headline(writer: Writer, dataset: xr.Dataset) -> str:
    greedy, probe = (
        writer.fixed(float(dataset["accuracy"].sel({STRATEGY: name})), f"accuracy {name}")
        for name in ("greedy", "probe")
    )
    one = dataset.sel({STRATEGY: "probe"})
    return (
        f"Of {writer.count(dataset.sizes[DRAW], 'samples', 'sample')} per question of {model_in(dataset)}, the one that a "
        f"probe selects is correct for {probe} of questions, the greedy answer for {greedy}; the difference is "
        f"{_ranged(writer, one, 'gain', 'probe')}{_sure(one)}."
    )


def _sure(one: xr.Dataset) -> str:
    if float(one["gain_low"]) > 0:
        return ", a gain"
    return ", a loss" if float(one["gain_high"]) < 0 else ", not a significant difference"


def _ranged(writer: Writer, one: xr.Dataset, name: str, of: str = "") -> str:
    return with_interval(writer, one.__getitem__, name, of)


def _strategies(dataset: xr.Dataset) -> list[str]:
    return [str(name) for name in dataset[STRATEGY].values]


describe = Narrative(
    "Asked many times",
    lambda dataset: dataset,
    (_overview, _axes, (_accuracies, _types), _observations, _caveats),
    _headline,
)
