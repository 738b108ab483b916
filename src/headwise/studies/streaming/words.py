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
from headwise.describe.phrases import model_in, with_interval
from headwise.describe.writer import Writer
from headwise.stats.multiple_testing import ALPHA

LOGPROB = "Log-probability, min"
PHRASES = {  # rows of the table, inside a sentence
    LOGPROB: "the smallest log-probability",
    "Log-probability, mean": "the mean log-probability",
    "Heads + log-probability": "the score of heads and log-probability",
}


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
        label = one["label"].item()
        counts = f"{writer.count(plain, f'{prefix} {statistic}', 'head')}{head}"
        parts.append(
            f"{label} {counts}, {writer.count(within, f'{prefix} {statistic} within')} among similar questions"
        )
    total = writer.count(dataset.sizes[LAYER] * dataset.sizes[HEAD], "heads", "head")
    return (
        f"Single heads, {prefix}: of {total} these statistics differ between wrong and correct answers (q < "
        f"{writer.fixed(ALPHA, 'alpha')}): {'; '.join(parts)}."
    )


def _observations(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    fitted = str(dataset[DETECTOR].values[0])
    default = str(dataset.attrs["default"])
    yield _against(writer, dataset, fitted, "gain", PHRASES[LOGPROB])
    yield _against(writer, dataset, fitted, "gain_question", "the question alone")
    yield _against(writer, dataset, LOGPROB, "gain_question", "the question alone")
    yield (
        f"{_sentence(default)} is watched by default: on the answers that are not held out, the fitted score changes the AUROC "
        f"of the smallest log-probability by {_ranged(writer, dataset, 'choice_gain', 'choice')}."
    )
    above = dataset.sel({DETECTOR: default})["auroc_low"].values > 0.5
    if above.any():
        early = int(np.argmax(above))
        share = float(dataset[SHARE].values[early])
        when = "the first token" if share == 0 else f"{writer.percent(share, 'early')} of the answer"
        yield f"{_sentence(default)} is above chance from {when} on."
    yield _reliable(writer, dataset)


def _against(writer: Writer, dataset: xr.Dataset, name: str, gain: str, other: str) -> str:
    end = dataset.sel({DETECTOR: name}).isel({SHARE: -1})
    found = _ranged(writer, end, gain, f"{name} {gain}")
    verdict = "beats" if float(end[f"{gain}_low"]) > 0 else "is worse than" if float(end[f"{gain}_high"]) < 0 else ""
    if verdict:
        return f"On whole answers {_phrase(name)} {verdict} {other}: AUROC difference {found}."
    return f"A difference between {_phrase(name)} and {other} on whole answers is not shown: AUROC difference {found}."


def _phrase(name: str) -> str:
    """A row of the table inside a sentence."""
    return PHRASES.get(name, name)


def _sentence(name: str) -> str:
    """A row of the table at the beginning of a sentence."""
    return _phrase(name)[:1].upper() + _phrase(name)[1:]


def _reliable(writer: Writer, dataset: xr.Dataset) -> str:
    name = str(dataset.attrs["default"])
    one = dataset.sel({DETECTOR: name})
    ece, null = (writer.fixed(float(one[key]), f"{name} {key}") for key in ("ece", "ece_null"))
    brier = _ranged(writer, one, "brier", f"{name} brier")
    return (
        f"Probabilities by {_phrase(name)} on held-out answers: Brier score {brier}, calibration error {ece}, where perfect "
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
    default, fitted = str(dataset.attrs["default"]), str(dataset[DETECTOR].values[0])
    end, compared = (dataset.sel({DETECTOR: name}).isel({SHARE: -1}) for name in (default, fitted))
    auroc = _ranged(writer, end, "auroc", "headline")
    gain = _ranged(writer, compared, "gain", "headline gain").replace(" (", ", ").rstrip(")")
    question = _ranged(writer, end, "gain_question", "headline question").replace(" (", ", ").rstrip(")")
    text = f"{_sentence(default)} detects wrong answers of {model_in(dataset)} with AUROC {auroc}"
    if float(compared["gain_low"]) > 0:
        text += f"; heads improve on the log-probability ({gain})"
    else:
        text += f"; that heads add to the log-probability is not shown ({gain})"
    if float(end["gain_question_low"]) > 0:
        return f"{text}; it beats the question alone ({question})."
    return f"{text}; a gain over the question alone is not shown ({question})."


def _ranged(writer: Writer, one: xr.Dataset, name: str, source: str) -> str:
    return with_interval(writer, one.__getitem__, name, source)


describe = Narrative(
    "How early one can tell that an answer is wrong",
    lambda dataset: dataset,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
