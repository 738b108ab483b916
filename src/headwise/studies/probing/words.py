"""The probing study in words: at which layer and token does the model know that it errs?

Overview, axes, caveats and the short form are here; the findings are in `findings.py`. Every number is computed
from the Dataset and kept, with what it is, in `Description.numbers`.
"""

from __future__ import annotations

import numpy as np

from headwise.describe.narrative import Narrative
from headwise.describe.phrases import answers_of, model_of
from headwise.describe.writer import Writer, listed
from headwise.studies.probing.accessor import NAMES, ProbingReading
from headwise.studies.probing.words_findings import add_details, add_observations, interval, place

FEW = 100  # answers of the rarer kind below which the sample is called small


def _add_overview(writer: Writer, reading: ProbingReading) -> None:
    tokens = writer.count(len(reading.tokens), "tokens", "token")
    layers = writer.count(reading.layers, "layers", "layer")
    sites = listed(NAMES.get(site, site) for site in reading.sites)
    writer.add(
        "overview",
        f"At which layer and token {model_of(reading)} knows that its answer is wrong: a linear probe at each of {layers} "
        f"and {tokens}, on {sites}, fitted to tell {answers_of(writer, reading)} apart.",
    )
    if data := reading.origin.get("data", {}).get("name"):
        writer.add("overview", f"The questions are those of the data '{data}'.")
    left = {
        "refused": reading.counts.get("refused", 0),
        "without an exact answer": sum(reading.counts.get(f"without_exact_{kind}", 0) for kind in ("wrong", "correct")),
    }
    parts = [f"{writer.count(count, f'left {what}')} {what}" for what, count in left.items() if count]
    if parts:
        writer.add("overview", f"Left out: {listed(parts)}.")


def _add_axes(writer: Writer, reading: ProbingReading) -> None:
    last = writer.number(reading.layers - 1, "edge")
    half, one = writer.number(0.5, "constant"), writer.number(1, "constant")
    writer.add(
        "axes",
        f"Rows are layers, from {writer.number(0, 'edge')} at the top (next to the embedding) to {last}; columns are "
        f"tokens in the order of the text: {listed(reading.tokens)}. Negative numbers count from the end of the answer.",
    )
    writer.add(
        "axes",
        f"Each cell is the AUROC on answers the probe has not seen: {half} is a coin toss (white), {one} is perfect (dark "
        "blue). The second map is the mean weight that later tokens put on each of these tokens.",
    )
    values = reading.map()
    ends = [writer.number(float(f(values)), f"{name} auroc") for f, name in ((np.nanmin, "min"), (np.nanmax, "max"))]
    middle = writer.number(float(np.nanmedian(values)), "median auroc")
    writer.add("axes", f"The cells of the first site go from {ends[0]} to {ends[1]}; the median is {middle}.")


def _add_caveats(writer: Writer, reading: ProbingReading) -> None:
    rarer = min((reading.counts.get(kind, FEW) for kind in ("wrong", "correct")), default=FEW)
    if rarer < FEW:
        writer.add(
            "caveats", f"The rarer kind of answer has only {writer.count(rarer, 'rarer')}, so intervals are wide."
        )
    best = reading.best()
    wide = reading.at(best, "high") - reading.at(best, "low")
    writer.add(
        "caveats",
        f"The interval of the best cell is {writer.number(wide, 'width best', digits=2)} wide, and neighbouring cells are "
        "much alike: differences between cells that are smaller than that are not settled. The map's maximum is optimistic.",
    )
    writer.add("caveats", _in_prompt(writer, reading))
    if cut := reading.counts.get("cut", 0):
        writer.add(
            "caveats", f"{writer.count(cut, 'count cut', 'answer')} {'was' if cut == 1 else 'were'} cut at the limit."
        )
    if reading.dataset.attrs.get("spans") == "blind":
        writer.add("caveats", "Exact answers were found by rule, without the label; some spans are mistaken.")
    else:
        writer.add("caveats", "Exact answers were found with the label in hand: part of what probes see may be that.")
    if not reading.origin.get("parameters", {}).get("judge"):
        writer.add("caveats", "Answers were labelled by comparing strings, so some labels are mistaken.")
    writer.add(
        "caveats",
        "That a probe can read an error does not say that the model uses it. This is one model on one set of questions.",
    )


def _in_prompt(writer: Writer, reading: ProbingReading) -> str:
    counts = reading.dataset["in_prompt"].values.astype(int)
    if not counts.any():
        return ""
    total = sum(reading.counts.get(kind, 0) for kind in ("wrong", "correct"))
    worst = int(counts.argmax())
    return (
        f"Answers of fewer than eight tokens push the first of the last eight into the prompt: at {reading.tokens[worst]} in "
        f"{writer.count(int(counts[worst]), f'in_prompt {reading.tokens[worst]}')} of {writer.count(total, 'rows')} answers."
    )


def _headline(writer: Writer, reading: ProbingReading) -> str:
    first = (
        f"Layer x token map of probes for errors of {model_of(reading)} on {NAMES.get(reading.sites[0], reading.sites[0])} "
        f"({writer.count(reading.layers, 'layers', 'layer')}, {writer.count(len(reading.tokens), 'tokens', 'token')}; "
        f"{answers_of(writer, reading)})."
    )
    best = reading.best()
    if not reading.finds():
        return f"{first} No cell is told from chance; the highest AUROC is {writer.number(best.value, 'value best headline')}."
    value, low, high = (reading.level(name) for name in ("nested", "nested_low", "nested_high"))
    return (
        f"{first} It peaks in {place(writer, best)}, with an AUROC of "
        f"{writer.number(best.value, 'value best headline')}; chosen on other folds than it is judged on, the best cell "
        f"has {interval(writer, value, low, high, 'nested headline')}."
    )


describe = Narrative(
    "Where the model knows that it errs",
    ProbingReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
