"""The profile study in words: where does each head look?

Overview, axes and caveats are here; the findings are in `findings.py`. Every number is computed from the
Dataset and kept, with what it is, in `Description.numbers`.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from headwise.describe import maps
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import grid_of, model_of, size_of
from headwise.describe.writer import Writer, listed
from headwise.studies.profile.accessor import ProfileReading
from headwise.studies.profile.words_findings import HALF, ROLES, add_details, add_observations, role_heads

MOST_REGISTERS = 8
FEWEST_CELLS = 100  # from how many cells on chance is spoken of


def _add_overview(writer: Writer, reading: ProfileReading) -> None:
    what = writer.count(len(reading.keys), "statistics", "statistic")
    each = "its only head" if reading.total == 1 else f"each of its {writer.count(reading.total, 'total', 'head')}"
    writer.add(
        "overview",
        f"A profile of where the attention heads of {model_of(reading)} look: {what} for {each} "
        f"({size_of(writer, reading)}), one layer x head map a statistic.",
    )
    data = reading.origin.get("data", {}).get("name")
    of_data = f" of the data '{data}'" if data else ""
    groups = reading.example_groups()
    for index, (keys, registers) in enumerate(groups):
        count = writer.count(registers.total(), f"examples {keys[0]}", "example")
        over = f"over {count}{of_data if index == 0 else ''}{_registers(writer, registers)}"
        if len(groups) == 1:
            writer.add("overview", f"Each value is the mean {over}.")
        elif index == 0:
            writer.add("overview", f"Most values are means {over}.")
        else:
            one = len(keys) == 1
            writer.add("overview", f"{listed(reading.labels(keys))} {'is a mean' if one else 'are means'} {over}.")


def _registers(writer: Writer, registers: Counter[str]) -> str:
    if len(registers) == 1:
        return f" ({next(iter(registers))})"
    if len(registers) > MOST_REGISTERS:
        return f" in {writer.count(len(registers), 'registers', 'register')}"
    return f" ({listed(writer.count(count, 'register') + f' {name}' for name, count in registers.most_common())})"


def _add_axes(writer: Writer, reading: ProfileReading) -> None:
    grid = grid_of(writer, reading.layers, reading.heads)
    writer.add("axes", f"{grid}. Each panel has a colour scale of its own: colours compare within a panel.")
    if any(reading.has_intervals(key) for key in reading.measured):
        writer.add("axes", "In the detail, the range in brackets after a head is the 95 % interval of its mean.")
    for key in reading.measured:
        writer.add("axes", _range(writer, reading, key))


def _range(writer: Writer, reading: ProfileReading, key: str) -> str:
    values = reading.map(key).values.astype(float)
    low = writer.number(float(np.nanmin(values)), f"min {key}")
    middle = writer.number(float(np.nanmedian(values)), f"median {key}")
    high = writer.number(float(np.nanmax(values)), f"max {key}")
    baseline, unit = "no uniform baseline", reading.text(key, "unit")
    if math.isfinite(uniform := reading.uniform(key)):
        baseline = f"a uniform head would get {writer.number(uniform, f'uniform {key}')}"
    name = f"{reading.label(key)}{f', {unit}' if unit else ''}"
    if np.isfinite(values).sum() == 1:
        return f"{name}: {middle}; {baseline}."
    return f"{name}: {low} to {high}, median {middle}; {baseline}."


def _add_caveats(writer: Writer, reading: ProfileReading) -> None:
    _add_intervals(writer, reading)
    writer.add("caveats", _unsettled(writer, reading))
    if "sink" in reading.measured:
        writer.add(
            "caveats",
            "A high share on the first token is ordinary in decoder models, a place where unused attention goes; it "
            "says little about that token.",
        )
    random: list[str] = [key for key in ("induction", "duplicate") if key in reading.measured]
    if random:
        are, show = ("is", "it shows") if len(random) == 1 else ("are", "they show")
        writer.add(
            "caveats",
            f"{listed(reading.labels(random))} {are} measured on repeated random tokens: {show} what a head can do, "
            "not how often it does so in text.",
        )


def _add_intervals(writer: Writer, reading: ProfileReading) -> None:
    widths = {key: reading.half_width(key) for key in reading.measured if reading.has_intervals(key)}
    if not widths:
        writer.add("caveats", "There are no intervals, so no value can be told from an accident of the examples.")
        return
    parts = [
        f"± {writer.number(widths[key], f'half-width {key}', digits=2)} for {reading.label(key)}"
        for key in ("sink", "induction")
        if key in widths
    ]
    typical = f" (of the median head: {listed(parts)})" if parts else ""
    writer.add(
        "caveats",
        f"The 95 % intervals{typical} tell how the mean would vary with other examples of the same kind, not with "
        "other kinds of text.",
    )
    cells = sum(reading.total - reading.missing(key) for key in widths)
    if cells >= FEWEST_CELLS:
        writer.add(
            "caveats",
            f"With {writer.count(cells, 'cells', 'cell')} looked at, about {writer.count(round(cells / 20), 'chance')} "
            "such intervals miss the true mean by chance alone, and the largest values of a map tend to be a little "
            "too large.",
        )


def _unsettled(writer: Writer, reading: ProfileReading) -> str:
    """Panels in which the strongest head cannot be told from the second."""
    count = 0
    for key in reading.measured:
        heads = maps.strongest(reading.map(key), 2)
        if len(heads) == 2 and reading.at(heads[0], key, "low") <= reading.at(heads[1], key, "high"):
            count += 1
    if not count:
        return ""
    panels = writer.count(count, "unsettled", "panel")
    return f"In {panels} the intervals of the two strongest heads overlap, so their order is not settled."


def _headline(writer: Writer, reading: ProfileReading) -> str:
    first = (
        f"{writer.count(len(reading.keys), 'statistics', 'layer x head map')} of where the attention heads of "
        f"{model_of(reading)} ({size_of(writer, reading)}) look."
    )
    found = []
    if "sink" in reading.measured and reading.total > 1:
        share = writer.percent(maps.share_over(reading.map("sink"), HALF).share, f"over-percent sink {HALF}")
        found.append(f"{share} of the heads put more than half of their attention on the first token")
    for key in ("previous", "induction"):
        heads = role_heads(reading, key) if key in reading.measured else []
        if heads:
            value = writer.number(heads[0].value, f"value {key} {heads[0].name}")
            found.append(f"the strongest {ROLES[key][0]} is {heads[0].name} ({value})")
    if not found:
        return first
    second = "; ".join(found)
    return f"{first} {second[0].upper()}{second[1:]}."


describe = Narrative(
    "Where each head looks",
    ProfileReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
