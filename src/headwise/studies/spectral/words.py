"""The spectral study in words: which heads' attention differs between wrong and correct answers?

Overview, axes, caveats and the short form are here; the findings are in `findings.py`. Every number is
computed from the Dataset and kept, with what it is, in `Description.numbers`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.describe.narrative import Narrative
from headwise.describe.phrases import answers_of, grid_of, model_of, size_of
from headwise.describe.writer import Writer, listed
from headwise.stats import auroc_rows
from headwise.studies.spectral.accessor import LEVEL, WHOLE, SpectralReading
from headwise.studies.spectral.words_findings import PAIR, add_details, add_observations

RANGE = {"min": 0.0, "median": 0.5, "max": 1.0}  # quantiles
TINY = 0.001  # p-values below are not written out
FEW = 100  # answers of the rarer kind below which the sample is called small


def _add_overview(writer: Writer, reading: SpectralReading) -> None:
    text = "the whole text, prompt and answer" if reading.part == WHOLE else "the answer's tokens"
    what = writer.count(len(reading.measured), "features", "feature")
    writer.add(
        "overview",
        f"Which attention heads of {model_of(reading)} ({size_of(writer, reading)}) behave differently when its answer is "
        f"wrong: {what} of each head's attention map, compared between {answers_of(writer, reading)}, over {text}.",
    )
    data, refused = reading.origin.get("data", {}).get("name"), reading.counts.get("refused", 0)
    if data:
        writer.add("overview", f"The questions are those of the data '{data}'.")
    if refused:
        were = "was" if refused == 1 else "were"
        writer.add("overview", f"{writer.count(refused, 'count refused', 'refused answer')} {were} left out.")


def _add_axes(writer: Writer, reading: SpectralReading) -> None:
    writer.add("axes", f"{grid_of(writer, reading.layers, reading.heads)}.")
    zero, one = writer.number(0, "constant"), writer.number(1, "constant")
    writer.add(
        "axes",
        f"Each cell is the p-value of a two-sided Mann-Whitney U test; all maps share one colour scale from {zero} "
        f"(dark) to {one}. q is the Benjamini-Hochberg q-value over the heads of one map. AUROC is that of the single "
        f"feature: above {writer.number(0.5, 'constant')} it is larger in wrong answers.",
    )
    for key in (key for key in PAIR if key in reading.measured):
        writer.add("axes", _range(writer, reading, key))


def _range(writer: Writer, reading: SpectralReading, key: str) -> str:
    values = reading.map(key).values
    parts = [_p(writer, float(np.nanquantile(values, level)), f"{name} p {key}") for name, level in RANGE.items()]
    if np.isfinite(values).sum() == 1:
        return f"{reading.label(key)}: p {parts[1]}."
    return f"{reading.label(key)}: the smallest p is {parts[0]}, the median {parts[1]}, the largest {parts[2]}."


def _p(writer: Writer, value: float, of: str) -> str:
    """A p-value; the very small ones are only told to be so."""
    return f"below {writer.number(TINY, 'constant')}" if value < TINY else writer.number(value, of)


def _add_caveats(writer: Writer, reading: SpectralReading) -> None:
    rarer = min((reading.counts.get(kind, FEW) for kind in ("wrong", "correct")), default=FEW)
    if rarer < FEW:
        writer.add(
            "caveats",
            f"The rarer kind of answer has only {writer.count(rarer, 'rarer')}: small differences go unseen, and "
            "effects that are seen tend to be too large.",
        )
    writer.add("caveats", _multiplicity(writer, reading))
    writer.add("caveats", _length(writer, reading))
    if any(key in ("laplacian", "attention") for key in reading.measured):
        writer.add("caveats", "That the ten largest eigenvalues become one number by their mean is our choice.")
    if not reading.origin.get("parameters", {}).get("judge"):
        writer.add("caveats", "Answers were labelled by comparing strings, so some labels are mistaken.")
    writer.add(
        "caveats",
        "This is one model on one set of questions, and a head that differs need not be a cause of the error.",
    )


def _multiplicity(writer: Writer, reading: SpectralReading) -> str:
    tested = sum(reading.under(key).total for key in reading.measured)
    if not tested:
        return ""
    by_chance = writer.count(round(LEVEL * tested), "chance")
    return (
        f"With {writer.count(tested, 'tested', 'test')}, about {by_chance} would have p < "
        f"{writer.number(LEVEL, 'constant')} by chance alone. Heads are not independent of each other, so under chance "
        "that share varies more than a coin toss would; the comparison with shuffled labels allows for that."
    )


def _length(writer: Writer, reading: SpectralReading) -> str:
    lengths = reading.lengths()
    if lengths is None:
        return "Answer lengths are not recorded, so nothing is known about what length alone would explain."
    wrong, correct = lengths
    medians = [
        writer.number(float(np.median(tokens)), f"length {kind}")
        for tokens, kind in ((wrong, "wrong"), (correct, "correct"))
    ]
    is_wrong = np.arange(wrong.size + correct.size) < wrong.size
    area = float(auroc_rows(np.concatenate([wrong, correct]), is_wrong))
    text = (
        f"Length is a confounder: wrong answers have {medians[0]} tokens and correct ones {medians[1]} (medians), and "
        f"length alone tells them apart with an AUROC of {writer.number(area, 'length auroc')} "
        "over all answers at once"
    )
    if not any(reading.has(key, "p_matched") for key in reading.measured):
        return f"{text}."
    return (
        f"{text}. Pairing answers by length takes that away, but leaves fewer answers, so that some heads lose their "
        "p-value to sample size alone."
    )


def _headline(writer: Writer, reading: SpectralReading) -> str:
    pair = [key for key in PAIR if key in reading.measured]
    first = (
        f"{writer.count(len(pair), 'pair', 'layer x head map')} of p-values for {model_of(reading)} "
        f"({size_of(writer, reading)}): does a head's attention differ between {answers_of(writer, reading)}?"
    )
    shares = [
        f"{writer.percent(reading.under(key).share, f'under-percent p {key}')} of the heads have p < "
        f"{writer.number(LEVEL, 'constant')} for {reading.label(key)} ({_verdict(writer, reading, key)})"
        for key in pair
    ]
    told = f"{first} {listed(shares)}." if shares else first
    return f"{told} {_paired(writer, reading, pair)}".strip()


def _paired(writer: Writer, reading: SpectralReading, pair: Sequence[str]) -> str:
    """What is left of the maps with answers paired by length; nothing where that was not tested, or nothing was found."""
    tested = [(key, kept) for key in pair if (kept := reading.kept(key)) is not None and reading.under(key, "q").count]
    if not tested:
        return ""
    parts = [
        f"{writer.count(kept, f'stay {key}')} of {writer.count(reading.under(key, 'q').count, f'under q {key}', 'head')} "
        f"for {reading.label(key)}"
        for key, kept in tested
    ]
    pairs = f" ({writer.count(reading.counts['pairs'], 'count pairs', 'pair')})" if "pairs" in reading.counts else ""
    return (
        f"{_longer(writer, reading)}with wrong and correct answers paired by length{pairs}, q < "
        f"{writer.number(LEVEL, 'constant')} is kept by {listed(parts)}."
    )


def _longer(writer: Writer, reading: SpectralReading) -> str:
    """The beginning of a sentence, with the lengths where they are recorded."""
    lengths = reading.lengths()
    if lengths is None:
        return "Attention depends on the length of a text: "
    wrong, correct = (
        writer.number(float(np.median(tokens)), f"length {kind}")
        for tokens, kind in zip(lengths, ("wrong", "correct"), strict=True)
    )
    return f"Attention depends on length, and wrong answers have {wrong} tokens, correct ones {correct} (medians): "


def _verdict(writer: Writer, reading: SpectralReading, key: str) -> str:
    share = writer.percent(reading.under(key, "q").share, f"under-percent q {key}")
    q = f"{share} with q < {writer.number(LEVEL, 'constant')}"
    p = reading.level(key, "null_p")
    if p < LEVEL:
        return f"{q}; more than with shuffled labels"
    return f"{q}; not more than with shuffled labels" if p >= LEVEL else q


describe = Narrative(
    "Which heads differ between wrong and correct answers",
    SpectralReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
