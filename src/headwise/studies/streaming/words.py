"""The streaming study in words: how early, by which score, against the log-probability and against the question alone.

Every number is computed from the Dataset and stored, with its source, in `Description.numbers`. "Shows" and "beats" mean that
a 95 % interval lies above 0; everything else is "not shown".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, EXAMPLE, HEAD, LAYER, PREFIX, SHARE, STATISTIC
from headwise.describe.maps import strongest
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_in
from headwise.describe.writer import Writer
from headwise.studies.streaming.figure import LABELS, PREFIX_LABELS

ALPHA = 0.05
LOGPROB = "Log-probability, min"


def _overview(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    wrong, right = (writer.count(int(dataset.attrs[name]), name) for name in ("n_wrong", "n_right"))
    yield (
        f"{model_in(dataset)} gave {writer.count(dataset.sizes[EXAMPLE], 'answers', 'answer')} that were judged, {wrong} wrong "
        f"and {right} correct. Scores of their beginnings were compared: what a decoder knows while it writes."
    )
    yield (
        f"{writer.count(int(dataset['held_out'].sum()), 'held_out', 'answer')} were held out of the stored detector and of the "
        "choice of the default score; all thresholds and probabilities come from these alone."
    )


def _axes(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    yield (
        "Top left: AUROC of wrong against correct answers by the share of the answer that is written, 0 % being its first "
        "token; dashed: the length of the whole answer, and the best prediction from the question alone. Top right: gain of "
        "every score over the smallest log-probability on whole answers. Below: share of wrong answers by predicted "
        "probability; on the diagonal the probability is right."
    )


def _details(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    for name in dataset[DETECTOR].values.astype(str):
        one = dataset.sel({DETECTOR: name})
        first, end = (_ranged(writer, one.isel({SHARE: place}), "auroc", f"{name} {place}") for place in (0, -1))
        text = f"{name}: AUROC {end} on whole answers"
        if str(one["kind"].item()) != "question" and name != "Length":
            text = f"{name}: AUROC {first} after the first token, {end} on whole answers"
        if np.isfinite(one["auroc_within"].values[-1]):
            text += (
                f"; among similar questions {_ranged(writer, one.isel({SHARE: -1}), 'auroc_within', f'{name} within')}"
            )
        yield f"{text}."
    for prefix in dataset[PREFIX].values.astype(str):
        yield _heads(writer, dataset, prefix)


def _heads(writer: Writer, dataset: xr.Dataset, prefix: str) -> str:
    """Which statistic of single heads differs most, plainly and within strata."""
    parts = []
    for statistic in dataset[STATISTIC].values.astype(str):
        one = dataset.sel({PREFIX: prefix, STATISTIC: statistic})
        if not np.isfinite(one["q"].values).any():
            continue
        plain, within = (int((one[name] < ALPHA).sum()) for name in ("q", "q_within"))
        far = strongest(abs(one["effect"] - 0.5), 1)
        head = f" (most {far[0].name})" if plain and far else ""
        counts = f"{writer.count(plain, f'{prefix} {statistic}')} heads{head}"
        parts.append(
            f"{LABELS[statistic]} {counts}, {writer.count(within, f'{prefix} {statistic} within')} among similar questions"
        )
    total = writer.count(dataset.sizes[LAYER] * dataset.sizes[HEAD], "heads", "head")
    return (
        f"Single heads, {PREFIX_LABELS[prefix]}: of {total} these statistics differ between wrong and correct answers (q < "
        f"{writer.fixed(ALPHA, 'alpha')}): {'; '.join(parts)}."
    )


def _observations(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    fitted = str(dataset[DETECTOR].values[0])
    yield _against(writer, dataset, fitted, "gain", LOGPROB)
    yield _against(writer, dataset, fitted, "gain_question", "the question alone")
    yield _against(writer, dataset, LOGPROB, "gain_question", "the question alone")
    yield (
        f"By default {dataset.attrs['default']} is watched, because of the AUROC difference between {fitted} and {LOGPROB} on "
        f"the answers that are not held out: {_ranged(writer, dataset, 'choice_gain', 'choice')}."
    )
    default = dataset.sel({DETECTOR: str(dataset.attrs["default"])})
    early = int(np.argmax(default["auroc_low"].values > 0.5))
    if (default["auroc_low"].values > 0.5).any():
        share = float(dataset[SHARE].values[early])
        when = "the first token" if share == 0 else f"{writer.percent(share, 'early')} of the answer"
        yield f"{dataset.attrs['default']} is above chance from {when} on."
    yield _reliable(writer, dataset)


def _against(writer: Writer, dataset: xr.Dataset, name: str, gain: str, other: str) -> str:
    end = dataset.sel({DETECTOR: name}).isel({SHARE: -1})
    found = _ranged(writer, end, gain, f"{name} {gain}")
    verdict = "beats" if float(end[f"{gain}_low"]) > 0 else "is below" if float(end[f"{gain}_high"]) < 0 else ""
    if verdict:
        return f"On whole answers {name} {verdict} {other}: AUROC difference {found}."
    return f"That {name} differs from {other} on whole answers is not shown: AUROC difference {found}."


def _reliable(writer: Writer, dataset: xr.Dataset) -> str:
    name = str(dataset.attrs["default"])
    one = dataset.sel({DETECTOR: name})
    ece, null = (writer.fixed(float(one[key]), f"{name} {key}") for key in ("ece", "ece_null"))
    brier = _ranged(writer, one, "brier", f"{name} brier")
    return (
        f"Probabilities of {name} on held-out answers: Brier score {brier}, calibration error {ece}, where perfect "
        f"probabilities show {null} with so few answers."
    )


def _caveats(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    yield (
        "Thresholds and probabilities hold for questions of the same kind, answered in the same format; for others nothing is "
        "promised. The length of an answer is not known while it is written, and is a confounder of every score at its end."
    )
    yield (
        f"Similar questions: {dataset.attrs.get('strata')}. Answers were labelled by comparing strings, so some labels are "
        "wrong."
    )


def _headline(writer: Writer, dataset: xr.Dataset) -> str:
    default = str(dataset.attrs["default"])
    end = dataset.sel({DETECTOR: default}).isel({SHARE: -1})
    fitted = str(dataset[DETECTOR].values[0])
    text = (
        f"{default} detects wrong answers of {model_in(dataset)} with AUROC {_ranged(writer, end, 'auroc', 'headline')}"
    )
    compared = dataset.sel({DETECTOR: fitted}).isel({SHARE: -1})
    gain, shown = _ranged(writer, compared, "gain", "headline gain"), float(compared["gain_low"]) > 0
    if default == fitted:
        text += f", better than {LOGPROB} ({gain})" if shown else f"; a gain over {LOGPROB} is not shown ({gain})"
    else:
        text += f"; {fitted} is better ({gain})" if shown else f"; that heads add to it is not shown ({gain})"
    beats = (
        "better than the question alone"
        if float(end["gain_question_low"]) > 0
        else "a gain over the question is not shown"
    )
    return f"{text}; {beats} ({_ranged(writer, end, 'gain_question', 'headline question')})."


def _ranged(writer: Writer, one: xr.Dataset, name: str, source: str) -> str:
    middle, low, high = (
        writer.fixed(float(one[f"{name}{end}"]), f"{source} {name}{end}") for end in ("", "_low", "_high")
    )
    return f"{middle} [{low}, {high}]"


describe = Narrative(
    "How early one can tell that an answer is wrong",
    lambda dataset: dataset,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
