"""What the maps look like, number by number: over all heads, in which heads most, and how each number changed.

Thresholds are few, fixed and always stated in the sentence.
"""

from __future__ import annotations

import math

from headwise.describe import maps
from headwise.describe.phrases import others_as_large, with_others
from headwise.describe.writer import Writer, listed, significant
from headwise.describe.writer import percent as share_text
from headwise.studies.patterns.accessor import LEVEL, Estimate, PatternsReading

SHOWN = 3  # heads named in a sentence
TINY = 0.001  # p and q below are not written out


def add_details(writer: Writer, reading: PatternsReading) -> None:
    """One entry a number."""
    for key in reading.keys:
        entry = f"{reading.label(key)} ({reading.definition(key)}): {_levels(writer, reading, key)}."
        sentences = [entry, _strongest(writer, reading, key)]
        if reading.two:
            sentences.append(_changes(writer, reading, key))
        writer.add("detail", " ".join(sentence for sentence in sentences if sentence))


def estimate(writer: Writer, found: Estimate, of: str, *, percent: bool = False) -> str:
    """A value with its interval: "0.149 (0.145 to 0.152)"; without where there is none, or none to speak of."""
    write, text_of = (writer.percent, share_text) if percent else (writer.number, significant)
    text = write(found.value, of)
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return text
    if text_of(found.low) == text_of(found.value) == text_of(found.high):
        return text
    return f"{text} ({write(found.low, f'low {of}')} to {write(found.high, f'high {of}')})"


def surely(writer: Writer, p: float, of: str, sign: str = "p") -> str:
    """A p- or q-value; very small ones are only told to be so."""
    if p < TINY:
        return f"{sign} < {writer.number(TINY, 'constant')}"
    return f"{sign} = {writer.number(p, of, digits=2)}"


def _levels(writer: Writer, reading: PatternsReading, key: str) -> str:
    parts = [estimate(writer, reading.whole(key), f"whole 0 {key}")]
    if reading.two:
        parts.append(f"{estimate(writer, reading.whole(key, 1), f'whole 1 {key}')} in {reading.names[1]}")
    level = writer.number(reading.uniform(key), f"uniform {key}")
    return f"over all heads {listed(parts)}; a head that looks evenly has {level}"


def _strongest(writer: Writer, reading: PatternsReading, key: str) -> str:
    """The heads with the largest values, where heads differ."""
    values = reading.value(key)
    if key in ("open", "mass") or reading.total < 2 * SHOWN:
        return ""
    heads = maps.strongest(values, SHOWN)
    told = [f"{head.name} ({writer.number(head.value, f'at value {key} {head.name}')})" for head in heads]
    return f"Largest in {with_others(writer, told, others_as_large(values, heads), f'tied {key}')}."


def _changes(writer: Writer, reading: PatternsReading, key: str) -> str:
    """How many heads changed, and which most."""
    count = reading.changed(key)
    total = writer.count(int(reading.change(key, "q").notnull().sum()), f"tested {key}", "head")
    level = writer.number(LEVEL, "constant")
    if not count:
        return f"It changed in none of {total} (q < {level})."
    changed = reading.change(key).where(reading.change(key, "q") < LEVEL)
    up = writer.count(int((changed > 0).sum()), f"up {key}")
    text = f"It changed in {writer.count(count, f'changed {key}')} of {total} (q < {level}), upwards in {up}"
    clear = abs(changed).where(reading.clear(key))
    heads = maps.strongest(clear, SHOWN)
    if not heads:
        return f"{text}; in none of them does the interval of the mean leave out 0."
    told = with_others(
        writer, [_changed(writer, reading, key, head) for head in heads], others_as_large(clear, heads),
        f"tied-change {key}",
    )  # fmt: skip
    few = writer.count(int(clear.notnull().sum()), f"clear {key}")
    whose = "" if int(clear.notnull().sum()) == count else f", of the {few} whose interval of the mean leaves out 0,"
    return f"{text}; most{whose} in {told}."


def _changed(writer: Writer, reading: PatternsReading, key: str, head: maps.HeadValue) -> str:
    ends = [reading.at(head, reading.change(key, f"change{end}")) for end in ("", "_low", "_high")]
    of = f"at change {key} {head.name}"
    value, low, high = (
        writer.number(end, f"{name}{of}") for end, name in zip(ends, ("", "low ", "high "), strict=True)
    )
    return f"{head.name} ({value}, {low} to {high})"
