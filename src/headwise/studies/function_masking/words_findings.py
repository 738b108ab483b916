"""What masking shows: each function's curve against random heads, then the matrix, augmenting, and whole chains.

A difference is called one only where its whole 95 % interval is on one side of 0.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.describe.phrases import best, with_interval
from headwise.describe.writer import Writer, listed
from headwise.studies.function_masking.accessor import MaskingReading


def add_details(writer: Writer, reading: MaskingReading) -> None:
    """One entry a function."""
    for name in reading.functions:
        if name in reading.masked:
            parts = [f"{name}: {_asked(writer, reading, name)} {_curve(writer, reading, name)}"]
            parts += [_lost(writer, reading, name), _spill(writer, reading, name), _failed(writer, reading, name)]
        else:
            parts = [f"{name} was not masked: {reading.of('reason', name)}."]
        parts.append(_augmented(writer, reading, name))
        writer.add("detail", " ".join(part for part in parts if part))


def add_observations(writer: Writer, reading: MaskingReading) -> None:
    """What holds over the functions."""
    for part in (_needed, _together, _specific, _matrix, _overlap, _raised, _hierarchy):
        writer.add("observations", part(writer, reading))


def _of(writer: Writer, reading: MaskingReading, variable: str, name: str) -> str:
    return with_interval(writer, lambda key: float(reading.of(key, name)), variable, f"of {name}")


def _at(writer: Writer, reading: MaskingReading, variable: str, name: str, step: float) -> str:
    """A point of a curve with its interval."""
    return with_interval(writer, lambda key: reading.at(key, name, step), variable, f"{step:g} of {name}")


def _verdict(low: float, high: float) -> str:
    if low > 0:
        return "more than random heads cost"
    return "less than random heads cost" if high < 0 else "no more than random heads cost, as far as can be told"


def _asked(writer: Writer, reading: MaskingReading, name: str) -> str:
    right, tried, asked = (
        writer.count(int(reading.of(key, name)), f"{key} of {name}") for key in ("right", "tried", "asked")
    )
    return (
        f"the whole model does {right} of {tried} held-out steps, {_of(writer, reading, 'whole', name)}; {asked} of them "
        f"{'is' if int(reading.of('asked', name)) == 1 else 'are'} asked again."
    )


def _curve(writer: Writer, reading: MaskingReading, name: str) -> str:
    known = reading.known(name)
    if not known:
        return ""
    parts = []
    for count in dict.fromkeys((known[0], known[len(known) // 2], known[-1])):
        heads = writer.count(count, f"removed {count}", "head")
        own, random = (
            writer.fixed(reading.at(key, name, count), f"{key} {count} of {name}") for key in ("own", "random")
        )
        parts.append(f"{own} with {heads} masked (random: {random})")
    return f"Of these it still does {listed(parts)}."


def _lost(writer: Writer, reading: MaskingReading, name: str) -> str:
    low, high = reading.of("mean_effect_low", name), reading.of("mean_effect_high", name)
    if not math.isfinite(low):
        return ""
    text = f"Beyond random heads it loses {_of(writer, reading, 'mean_effect', name)}, mean over all numbers of heads: "
    if name not in reading.enough():
        return f"{text}too few steps to tell."
    text += _verdict(low, high)
    parted = reading.parted(name)
    if parted:
        counts = listed(writer.number(count, f"removed {count}") for count in parted)
        text += f"; taken singly, the interval is above nought at {counts} heads"
    return f"{text}."


def _spill(writer: Writer, reading: MaskingReading, name: str) -> str:
    if not math.isfinite(reading.of("spill", name)):
        return ""
    size = writer.count(reading.size, "size", "head")
    return f"With its {size} masked, the steps of other functions lose {_of(writer, reading, 'spill', name)}."


def _failed(writer: Writer, reading: MaskingReading, name: str) -> str:
    own, random = (reading.of(f"recovered_{key}", name) for key in ("own", "random"))
    if not (int(reading.of("wrong_asked", name)) and math.isfinite(own) and math.isfinite(random)):
        return ""
    asked = writer.count(int(reading.of("wrong_asked", name)), f"wrong_asked of {name}", "step")
    return (
        f"Of {asked} that the whole model fails, {writer.fixed(own, f'recovered_own of {name}')} come out right then "
        f"(random: {writer.fixed(random, f'recovered_random of {name}')})."
    )


def _augmented(writer: Writer, reading: MaskingReading, name: str) -> str:
    if name not in reading.augmented:
        reason = reading.of("augment_reason", name)
        return f"Not augmented: {reason}." if name in reading.masked else ""
    amounts = reading.amounts_known(name)
    if not amounts:
        return ""
    first = reading.best_amounts(name)
    zero = writer.fixed(
        reading.at("augmented", name, reading.amounts[0]), f"augmented {reading.amounts[0]:g} of {name}"
    )
    if not first or reading.at("gain", name, first[0]) <= 0:
        return f"Augmented by any of the amounts its accuracy does not rise from {zero}."
    alpha = listed(writer.number(amount, "constant") for amount in first)
    equally = "equally well" if len(first) > 1 else "best"
    random = (f"{_at(writer, reading, 'gain_over_random', name, amount)}" for amount in first)
    return (
        f"Augmented by alpha {alpha}, where it does {equally}, accuracy changes from {zero} by "
        f"{_at(writer, reading, 'gain', name, first[0])}, and compared with random directions by {listed(random)}."
    )


# ---- observations ---------------------------------------------------------------------------------------------------


def _needed(writer: Writer, reading: MaskingReading) -> str:
    if not reading.masked:
        return ""
    names, total = reading.needed(), writer.count(len(reading.masked), "masked", "function")
    if names:
        count = writer.count(len(names), "needed")
        text = (
            f"Masking a function's heads costs its steps more than random heads in {count} of {total}: {listed(names)}."
        )
    else:
        text = f"In none of {total} does masking the function's heads cost more than random heads beyond doubt."
    spared = reading.spared()
    if spared:
        text += f" It costs less than random heads in {writer.count(len(spared), 'spared')}: {listed(spared)}."
    return text


def _together(writer: Writer, reading: MaskingReading) -> str:
    low, high = (reading.level(f"pooled_mean_effect_{end}") for end in ("low", "high"))
    if not math.isfinite(low):
        return ""
    lost = with_interval(writer, reading.level, "pooled_mean_effect")
    return f"Over the steps of all of them together, masking their own heads costs {lost}: {_verdict(low, high)}."


def _specific(writer: Writer, reading: MaskingReading) -> str:
    if not reading.needed():
        return ""
    names = reading.specific()
    if not names:
        spill = [name for name in reading.needed() if reading.of("spill_low", name) > 0]
        also = f" The steps of others lose beyond doubt with the heads of {listed(spill)}." if spill else ""
        return (
            f"At {writer.count(reading.size, 'size', 'head')}, in none of these do the function's own steps lose beyond doubt "
            f"more than the steps of the others.{also}"
        )
    count = writer.count(len(names), "specific")
    return f"Its own steps lose beyond doubt more than those of the others in {count} of these: {listed(names)}."


def _matrix(writer: Writer, reading: MaskingReading) -> str:
    own, others = reading.diagonal(), reading.others()
    if not own or not others:
        return ""
    lows = [reading.cell("cross_effect_low", a, b) for a in reading.masked for b in reading.enough() if a != b]
    alone, shared = reading.tops()
    tops = f"{writer.count(len(alone), 'tops')} of {writer.count(len(own), 'rows', 'row')}"
    if shared:
        tops += f", and as large as the largest in {writer.count(len(shared), 'tied-tops')}"
    return (
        f"Over the matrix, at {writer.count(reading.size, 'size', 'head')}, a function's own steps lose "
        f"{writer.fixed(float(np.mean(own)), 'mean-own')} on average beyond random heads, and those of the others "
        f"{writer.fixed(float(np.mean(others)), 'mean-others')}; the own loss is the largest of its row in {tops}. Off the "
        "diagonal "
        f"{writer.count(sum(low > 0 for low in lows), 'sure-others')} of {writer.count(len(lows), 'cells-others', 'cell')} "
        "(those with enough steps) have an interval above nought."
    )


def _overlap(writer: Writer, reading: MaskingReading) -> str:
    found = [reading.cell("overlap", one, other) for one in reading.masked for other in reading.masked if one != other]
    found = [value for value in found if math.isfinite(value)]
    if not found:
        return ""
    return f"Two functions share {writer.percent(float(np.mean(found)), 'overlap')} of these heads on average."


def _raised(writer: Writer, reading: MaskingReading) -> str:
    if not reading.augmented:
        return ""
    total = writer.count(len(reading.augmented), "augmented", "function")
    names = [name for name in reading.augmented if reading.raised(name)]
    rule = "beyond doubt, over nothing added and over random directions"
    if not names:
        return f"Augmenting raises the accuracy of none of {total} {rule}."
    rows = []
    for name in names:
        first = best({one: reading.at("gain", name, one) for one in reading.raised(name)})
        alpha = listed(writer.number(amount, "constant") for amount in first)
        rows.append(f"{name} (alpha {alpha}: {_at(writer, reading, 'gain', name, first[0])})")
    count = writer.count(len(names), "raised")
    return f"Augmenting raises the accuracy of {count} of {total} {rule}: {listed(rows)}."


def _hierarchy(writer: Writer, reading: MaskingReading) -> str:
    names = reading.hierarchy()
    if not names:
        reason = str(reading.dataset.attrs["chain_reason"])
        return f"Whole chains were not run without heads: {reason}." if reason else ""
    chains = writer.count(reading.chains, "chains", "whole chain")
    rows = (f"{name} {_of(writer, reading, 'chain_effect', name)}" for name in names)
    text = f"In {chains}, beyond random heads, high-order steps lose without the heads of {listed(rows)}"
    sure = [name for name in names if reading.of("chain_effect_low", name) > 0]
    if sure:
        return f"{text}: more than random heads cost for {listed(sure)}."
    return f"{text}: in no case more than random heads cost, as far as can be told."
