"""What a table of detectors shows: the best and by how much, length alone, the order of the paper, curves, transfer.

A sentence whose premise does not hold is not written; a table in which nothing is better than a coin toss is told so.
"""

from __future__ import annotations

import math
from statistics import fmean

from headwise.core.dims import LAYER, RANK, SIZE
from headwise.describe.writer import Writer, listed
from headwise.studies.spectral.detection_accessor import DetectionReading

KINDS = {"supervised": "fitted", "combined": "combined", "score": "a score, not fitted"}


def value(writer: Writer, reading: DetectionReading, name: str) -> str:
    """``0.83 (0.79 to 0.87)``."""
    text = writer.number(reading.at(name), f"auroc {name}")
    ends = reading.interval(name)
    if ends is None:
        return text
    low, high = (writer.number(end, f"auroc_{side} {name}") for end, side in zip(ends, ("low", "high"), strict=True))
    return f"{text} ({low} to {high})"


def looked_at(writer: Writer, reading: DetectionReading) -> str:
    """What the verdict on a whole table allows for."""
    if len(reading.ranked) < 2:
        return ""
    return f", allowing for the {writer.count(len(reading.ranked), 'rows')} that were looked at"


def add_details(writer: Writer, reading: DetectionReading) -> None:
    """One entry a detector, best first."""
    for name in reading.ranked:
        what = KINDS.get(reading.kind(name), reading.kind(name))
        text = f"{reading.label(name)} ({what}): AUROC {value(writer, reading, name)}{_chance(reading, name)}."
        sentences = (text, _gain(writer, reading, name), _cut(writer, reading, name), _paper(writer, reading, name))
        writer.add("detail", " ".join(sentence for sentence in sentences if sentence))


def add_observations(writer: Writer, reading: DetectionReading) -> None:
    """What holds over the table."""
    if not reading.ranked:
        return
    for sentence in (_best, _alone, _ours, _order):
        writer.add("observations", sentence(writer, reading))
    fitted = [name for name in reading.of_kind("supervised") if reading.knows(name)] if reading.finds() else []
    for curve in (_sweep, _layers, _sizes, _transfer):
        writer.add("observations", next((text for name in fitted if (text := curve(writer, reading, name))), ""))


def _chance(reading: DetectionReading, name: str) -> str:
    ends = reading.interval(name)
    if ends is None or reading.knows(name):
        return ""
    return ", the wrong way round" if ends[1] < 0.5 else ", not told from a coin toss"


def _gain(writer: Writer, reading: DetectionReading, name: str) -> str:
    ends, gain = reading.interval(name, "gain"), reading.at(name, "gain")
    if reading.reference in (None, name) or ends is None or not math.isfinite(gain):
        return ""
    low, high = (writer.number(end, f"gain_{side} {name}") for end, side in zip(ends, ("low", "high"), strict=True))
    clear = "" if ends[0] > 0 or ends[1] < 0 else "; not a clear difference"
    return (
        f"Minus that of {reading.label(str(reading.reference))}: {writer.number(gain, f'gain {name}')} "
        f"({low} to {high}{clear})."
    )


def _cut(writer: Writer, reading: DetectionReading, name: str) -> str:
    precision, recall = reading.at(name, "precision"), reading.at(name, "recall")
    if not (reading.knows(name) and math.isfinite(precision) and math.isfinite(recall)):
        return ""
    return (
        f"At its usual threshold {writer.percent(precision, f'precision {name}')} of the flagged answers are wrong, "
        f"and {writer.percent(recall, f'recall {name}')} of the wrong ones are flagged."
    )


def _paper(writer: Writer, reading: DetectionReading, name: str) -> str:
    paper = reading.at(name, "paper")
    if not math.isfinite(paper):
        return ""
    return f"The paper's protocol, which chooses on the test set, would report {writer.number(paper, f'paper {name}')}."


def _best(writer: Writer, reading: DetectionReading) -> str:
    best, rest = reading.ranked[0], reading.ranked[1:]
    if not reading.finds():
        return (
            f"No detector is told from a coin toss{looked_at(writer, reading)}; the highest AUROC is "
            f"{value(writer, reading, best)}, of {reading.label(best)}."
        )
    text = f"The best detector is {reading.label(best)}, with an AUROC of {value(writer, reading, best)}."
    ends, close = reading.interval(best), list[str]()
    if ends is not None:
        close = [name for name in rest if (other := reading.interval(name)) is not None and other[1] >= ends[0]]
    if not close:
        return text
    verb = "that of" if len(close) == 1 else "those of"
    return f"{text} Its interval overlaps with {verb} {listed(map(reading.label, close))}: their order is not settled."


def _alone(writer: Writer, reading: DetectionReading) -> str:
    """What length alone achieves: always told."""
    if reading.length is None or not math.isfinite(reading.at(reading.length)):
        return "The answer's length is not in this table, so what it alone would achieve is not known."
    text = f"Length alone reaches an AUROC of {value(writer, reading, reading.length)}"
    level, fitted = reading.at(reading.length), reading.of_kind("supervised", "combined")
    over = [name for name in fitted if (ends := reading.interval(name)) is not None and ends[0] > level]
    if not fitted:
        return f"{text}."
    count = writer.count(len(over), "over-length") if over else "none"
    total = writer.count(len(fitted), "fitted", "fitted detector")
    verb = "has its" if len(over) == 1 else "have their" if over else "has its"
    return f"{text}; {count} of {total} {verb} whole interval above that."


def _ours(writer: Writer, reading: DetectionReading) -> str:
    """The combination against the best single fitted detector."""
    both, single = reading.of_kind("combined"), reading.of_kind("supervised")
    if not both or not single or not reading.knows(both[0]):
        return ""
    gain = reading.at(both[0]) - reading.at(single[0])
    way = "above" if gain > 0 else "below"
    away = writer.number(abs(gain), f"away {both[0]} {single[0]}", digits=2)
    return (
        f"{reading.label(both[0])} is {away} {way} the best single fitted detector, {reading.label(single[0])} "
        f"({writer.number(reading.at(single[0]), f'auroc {single[0]}')})."
    )


def _order(writer: Writer, reading: DetectionReading) -> str:
    names = reading.published()
    if not names:
        return ""
    values = [reading.at(name) for name in names]
    told = " < ".join(map(reading.label, names))
    parts = [writer.number(reading.at(name), f"auroc {name}") for name in names]
    holds = values == sorted(values) and len(set(values)) == len(values)
    verdict = "holds here" if holds else "does not hold here"
    return f"The published order {told} {verdict}: {listed(parts)}."


def _sweep(writer: Writer, reading: DetectionReading, name: str) -> str:
    curve = reading.curve(name, "by_k", RANK)
    if len(curve) < 2:
        return ""
    first, last, best = min(curve), max(curve), max(curve, key=lambda k: curve[k])
    ends = [f"{writer.number(curve[k], f'by_k {name} {k}')} with k = {writer.number(k, 'edge')}" for k in (first, last)]
    text = f"{reading.label(name)} has an AUROC of {ends[0]} and of {ends[1]} eigenvalues a head"
    if best in (first, last):
        return f"{text}; no k between is better." if len(curve) > 2 else f"{text}."
    return f"{text}; the best k is {writer.number(best, 'edge')} ({writer.number(curve[best], f'by_k {name} {best}')})."


def _layers(writer: Writer, reading: DetectionReading, name: str) -> str:
    curve = reading.curve(name, "by_layer", LAYER)
    if len(curve) < 2:
        return ""
    best = max(curve, key=lambda layer: curve[layer])
    alone = writer.number(curve[best], f"by_layer {name} {best}")
    count = writer.count(len(curve), f"layer-count {name}", "layer")
    text = f"On one layer alone {reading.label(name)} is best in layer {writer.number(best, 'edge')} ({alone})"
    if not reading.chooses_layer(name):
        text += f"; all layers together give {writer.number(reading.at(name), f'auroc {name}')}"
    return f"{text}. To name the best of {count} is a choice on the test folds, so its AUROC is a little too high."


def _sizes(writer: Writer, reading: DetectionReading, name: str) -> str:
    curve = reading.curve(name, "by_size", SIZE)
    if len(curve) < 2:
        return ""
    sizes = sorted(curve)
    parts = [
        f"{writer.number(curve[n], f'by_size {name} {n}')} on {writer.number(n, 'edge')}" for n in (sizes[0], sizes[-1])
    ]
    step = curve[sizes[-1]] - curve[sizes[-2]]
    brought = writer.number(step, f"step {name}", digits=2)
    last = f"the last step, from {writer.number(sizes[-2], 'edge')}, brought {brought}"
    return f"Fitted on more answers {reading.label(name)} goes from {parts[0]} to {parts[1]}; {last}."


def _transfer(writer: Writer, reading: DetectionReading, name: str) -> str:
    found = reading.transfer(name)
    if found is None:
        return ""
    inside, across, others = (
        writer.number(fmean(values), f"{what} {name}")
        for values, what in zip(found, ("inside", "across", "others"), strict=True)
    )
    return (
        f"Across topics {reading.label(name)} has a mean AUROC of {inside} inside a topic, {across} when fitted on one "
        f"topic and tested on another, and {others} on a topic when fitted on all others."
    )
