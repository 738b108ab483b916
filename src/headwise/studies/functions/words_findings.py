"""What the functions' maps show: each function's heads, then what they share, which maps are alike, and what speaks against.

Thresholds are few, fixed and always stated in the sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from headwise.describe import maps
from headwise.describe.phrases import best, named, others_as_large, with_interval
from headwise.describe.writer import Writer, listed
from headwise.studies.functions.accessor import FunctionsReading

NAMED = 3  # heads named of a function
SHARED = 4  # heads of several functions that are named
PAIRS = 3  # pairs of functions named at the upper end
FEWEST_LAYERS = 6  # for early, middle and late
MOST_LAYERS = 4  # that are named as having most heads
PUBLISHED = 0.001  # the threshold of the published maps
LEVEL = 0.05


def add_details(writer: Writer, reading: FunctionsReading) -> None:
    """One entry a function."""
    for name in reading.functions:
        order = {"low": " (low order)", "high": " (high order)"}.get(reading.of("order", name), "")
        sentences = [f"{name}{order}: {_known(writer, reading, name)}"]
        if name in reading.refused:
            sentences.append(f"No map: {reading.of('reason', name)}.")
        else:
            parts = (_strongest, _elbow, _depth, _spread, _null, _second_opinion)
            sentences += [part(writer, reading, name) for part in parts]
        writer.add("detail", " ".join(sentence for sentence in sentences if sentence))


def add_observations(writer: Writer, reading: FunctionsReading) -> None:
    """What holds over the functions."""
    for part in (_probe, _form, _single, _sparsity, _shared, _alike, _agreement, _thirds):
        writer.add("observations", part(writer, reading))


def _of(writer: Writer, reading: FunctionsReading, variable: str, name: str) -> str:
    return with_interval(writer, lambda key: float(reading.of(key, name)), variable, f"of {name}")


def _known(writer: Writer, reading: FunctionsReading, name: str) -> str:
    chance = writer.fixed(reading.of("recall_chance", name), f"recall_chance of {name}")
    held_out = writer.count(int(reading.of("held_out", name)), f"held_out of {name}", "held-out step")
    return (
        f"the model answers {_of(writer, reading, 'accuracy', name)} of its steps right; the probe names "
        f"{_of(writer, reading, 'recall', name)} of its {held_out} (guessing: {chance}), AUROC "
        f"{_of(writer, reading, 'auroc', name)}."
    )


def _strongest(writer: Writer, reading: FunctionsReading, name: str) -> str:
    found = [
        f"{head.name} ({writer.number(head.value, f'magnitude {head.name} of {name}', digits=2)} ± "
        f"{writer.number(reading.at(head, name, 'importance_sd'), f'importance_sd {head.name} of {name}', digits=2)})"
        for head in maps.strongest(reading.map(name), NAMED)
    ]
    return f"The most important heads, with the spread over seeds, are {listed(found)}."


def _elbow(writer: Writer, reading: FunctionsReading, name: str) -> str:
    own, total = reading.chosen(name), reading.measured(name)
    text = (
        f"Up to the elbow there are {writer.count(len(own), f'elbow of {name}', 'head')} of "
        f"{writer.count(total, f'measured of {name}')} ({writer.percent(len(own) / total, f'elbow-share of {name}')}), with "
        f"{writer.percent(reading.mass(name), f'mass of {name}')} of all importance"
    )
    if len(reading.mapped) > 1:
        text += f"; {writer.count(reading.exclusive(name), f'exclusive of {name}')} of them of no other function"
    return f"{text}."


def _null(writer: Writer, reading: FunctionsReading, name: str) -> str:
    count = reading.beyond(name)
    heads = writer.count(count, f"beyond of {name}", "head")
    level = writer.number(LEVEL, "constant")
    return f"{heads} {'has' if count == 1 else 'have'} an importance beyond shuffled labels (q < {level})."


def _depth(writer: Writer, reading: FunctionsReading, name: str) -> str:
    trend = reading.by_third(name)
    if trend is None or len(reading.layers) < FEWEST_LAYERS or not reading.chosen(name):
        return ""
    parts = [writer.percent(share, f"third {index} of {name}") for index, share in enumerate(trend.shares)]
    layers = reading.fullest_layers(name)
    if len(layers) > MOST_LAYERS:
        fullest = f"no layer stands out: {writer.count(len(layers), f'fullest of {name}')} have as many"
    else:
        peaks = listed(writer.number(layer, f"peak {layer} of {name}") for layer in layers)
        noun, verb = ("layer", "is") if len(layers) == 1 else ("layers", "are")
        fullest = f"the {noun} with most of them {verb} {peaks}"
    return (
        f"Of these heads {parts[0]} stand in the early, {parts[1]} in the middle and {parts[2]} in the late third of the "
        f"layers; {fullest}."
    )


def _spread(writer: Writer, reading: FunctionsReading, name: str) -> str:
    found = maps.concentration(reading.map(name))
    if found is None:
        return ""
    heads = writer.count(found.heads, f"top-heads of {name}", "head")
    return (
        f"The {heads} at the top (5 %) carry {writer.percent(found.share, f'top-share of {name}')}; Gini's coefficient is "
        f"{writer.fixed(found.gini, f'gini of {name}')}."
    )


def _second_opinion(writer: Writer, reading: FunctionsReading, name: str) -> str:
    if not math.isfinite(reading.of("rank_correlation", name)):
        return ""
    agreed = reading.of("agreement", name)
    seeds = (
        f"; maps of two seeds agree by {writer.fixed(agreed, f'agreement of {name}')}" if math.isfinite(agreed) else ""
    )
    return (
        "With probes on each head alone the map has a rank correlation of "
        f"{_of(writer, reading, 'rank_correlation', name)}{seeds}."
    )


# ---- observations ---------------------------------------------------------------------------------------------------


def _probe(writer: Writer, reading: FunctionsReading) -> str:
    told = with_interval(writer, reading.level, "probe_accuracy")
    majority, permuted, high = (writer.fixed(reading.level(of), of) for of in ("majority", "permuted", "permuted_high"))
    return (
        f"The probe on all heads names {told} of the held-out steps right; the most frequent function would get {majority}, "
        f"and probes trained on shuffled labels get {permuted} on average and {high} at most."
    )


def _form(writer: Writer, reading: FunctionsReading) -> str:
    """How far the form of the answer goes."""
    told = with_interval(writer, reading.level, "confound_accuracy")
    text = f"A probe that sees only the answer's length and the kind of its first token gets {told}"
    names = reading.form_tells()
    if not names:
        return f"{text}; for no function does it come within the interval of the probe on all heads."
    rows = (
        f"{name} ({writer.fixed(reading.of('confound_auroc', name), f'confound_auroc of {name}')})" for name in names
    )
    return (
        f"{text}. By AUROC it comes within the interval of the probe on all heads, or above it, for {listed(rows)}: there the "
        "map may show the form of answers rather than the function."
    )


def _single(writer: Writer, reading: FunctionsReading) -> str:
    """What single heads know, of all functions together and of each."""
    (first,) = maps.strongest(reading.dataset["alone_accuracy"], 1)
    value = with_interval(writer, lambda key: reading.whole(first, key), "alone_accuracy", first.name)
    tied = others_as_large(reading.dataset["alone_accuracy"], [first])
    as_good = f" ({writer.count(tied, 'tied-alone', 'other')} as good)" if tied else ""
    text = (
        f"A probe on one head alone, cross-validated over all steps, names {value} right for {first.name}{as_good}, the best "
        f"of {writer.count(reading.total(), 'total', 'head')}; chosen as the best, it is too high"
    )
    shares = {name: reading.alone(name) for name in reading.functions}
    low, high = _ends(writer, shares, "alone", writer.percent)
    return (
        f"{text}. Of the heads, {low} to {high} tell a function from the others by themselves "
        f"(q < {writer.number(LEVEL, 'constant')})."
    )


def _ends(writer: Writer, values: dict[str, float], of: str, write: Callable[[float, str], str]) -> list[str]:
    """The smallest and the largest value, each with all the functions that have it."""
    found = {end: best(values, smallest=end == "least") for end in ("least", "most")}
    return [
        f"{write(values[names[0]], f'{of} of {names[0]}')} ({named(names, writer, f'{end} {of}', 'function')})"
        for end, names in found.items()
    ]


def _sparsity(writer: Writer, reading: FunctionsReading) -> str:
    half = reading.scale.high / 2
    found = reading.over(half)
    if not found.total:
        return ""
    total = writer.count(found.total, "cells", "head x function cell")
    upper = writer.percent(found.share, "over-half")
    over = writer.percent(reading.over(PUBLISHED).share, "over-published")
    return (
        f"Of {total}, {upper} are over {writer.number(half, 'half-cap')}, half of the colour scale, and {over} over "
        f"{writer.number(PUBLISHED, 'constant')}, the threshold of the published maps."
    )


def _shared(writer: Writer, reading: FunctionsReading) -> str:
    owners = reading.owners()
    if len(reading.mapped) < 2 or not owners:
        return ""
    shared = {name: functions for name, functions in owners.items() if len(functions) > 1}
    text = (
        f"{writer.count(len(owners), 'owned', 'head')} {'is' if len(owners) == 1 else 'are'} up to the elbow of some function, "
        f"{writer.count(len(owners) - len(shared), 'exclusive')} of one alone and {writer.count(len(shared), 'shared')} of "
        "several"
    )
    if not shared:
        return f"{text}."
    named = [f"{name} ({', '.join(functions)})" for name, functions in list(shared.items())[:SHARED]]
    return f"{text}{', among them' if len(shared) > SHARED else ':'} {listed(named)}."


def _alike(writer: Writer, reading: FunctionsReading) -> str:
    pairs = reading.pairs()
    if not pairs:
        return ""

    def told(pair: tuple[str, str, float]) -> str:
        return f"{pair[0]} and {pair[1]} ({writer.fixed(pair[2], f'correlation of {pair[0]} | {pair[1]}')})"

    if len(pairs) == 1:
        return f"By correlation over heads the maps are alike so far: {told(pairs[0])}."
    mean = writer.fixed(sum(pair[2] for pair in pairs) / len(pairs), "mean-correlation")
    most = ", ".join(told(pair) for pair in pairs[: min(PAIRS, len(pairs) - 1)])
    return (
        f"By correlation over heads the most similar maps are those of {most}; the least similar are those of "
        f"{told(pairs[-1])}. The mean over all pairs is {mean}."
    )


def _agreement(writer: Writer, reading: FunctionsReading) -> str:
    known = [name for name in reading.mapped if math.isfinite(reading.of("rank_correlation", name))]
    if not known:
        return ""
    values = {name: float(reading.of("rank_correlation", name)) for name in known}
    low, high = _ends(writer, values, "rank_correlation", writer.fixed)
    sure = sum(reading.of("rank_correlation_low", name) > 0 for name in known)
    mean = writer.fixed(sum(values.values()) / len(values), "mean-rank_correlation")
    return (
        f"The second opinion, probes on each head alone, ranks heads like the maps by {mean} on average, from {low} to "
        f"{high}; the interval is above nought for {writer.count(sure, 'sure')} of "
        f"{writer.count(len(known), 'ranked', 'function')}. {_seeds(writer, reading)}"
    ).strip()


def _seeds(writer: Writer, reading: FunctionsReading) -> str:
    values = [float(reading.of("agreement", name)) for name in reading.mapped]
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    return f"The maps of two seeds agree by {writer.fixed(sum(values) / len(values), 'mean-agreement')} on average."


def _thirds(writer: Writer, reading: FunctionsReading) -> str:
    """Where the importance itself sits, function by function."""
    found = {name: maps.depth_trend(reading.map(name)) for name in reading.mapped}
    if len(reading.layers) < FEWEST_LAYERS or not found or None in found.values():
        return ""
    groups = {
        third: [name for name, trend in found.items() if trend is not None and trend.peak_third == third]
        for third in maps.THIRDS
    }
    parts = [
        f"in the {third} third for {listed(names) if len(names) < len(found) else 'every function'}"
        for third, names in groups.items()
        if names
    ]
    return f"The mean importance of a head is largest {'; '.join(parts)}."
