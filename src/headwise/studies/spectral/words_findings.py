"""What the spectral maps show: each map by itself, then the two of the figure against each other.

Thresholds are few, fixed and always stated in the sentence. A map in which no more heads differ than with shuffled
labels is told as such, and nothing else is said of it.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.describe import maps
from headwise.describe.writer import Writer, listed, span
from headwise.studies.spectral.accessor import ANSWER, LEVEL, SpectralReading

PAIR = ("attention_score", "laplacian")  # the two maps of the figure
MANY = 0.3  # share of heads under q < 0.05 from which on clusters are sought among the strongest tenth instead
TENTH = 0.9
SMALLEST_CLUSTER = 4
FEWEST_LAYERS = 6  # for early, middle and late
FEWEST_HEADS = 20  # for correlations over the heads of a model
BOXES = 3


def add_details(writer: Writer, reading: SpectralReading) -> None:
    """One entry a feature: how many heads differ, which most, which way, where, what is left with lengths paired."""
    for key in reading.keys:
        meaning = reading.definition(key)
        intro = f"{reading.label(key)}{f' ({meaning})' if meaning else ''}:"
        if key not in reading.measured:
            writer.add("detail", f"{intro} not measured.")
            continue
        sentences = [f"{intro} {_shares(writer, reading, key)}.", _chance(writer, reading, key)]
        if reading.finds(key):
            sentences += [_strongest(writer, reading, key), _direction(writer, reading, key)]
            sentences += [_clusters(writer, reading, key), _matched(writer, reading, key)]
        sentences.append(_missing(writer, reading, key))
        writer.add("detail", " ".join(sentence for sentence in sentences if sentence))


def add_observations(writer: Writer, reading: SpectralReading) -> None:
    """The two maps of the figure side by side; then depth, and the answer alone."""
    pair = [key for key in PAIR if key in reading.measured]
    found = [key for key in pair if reading.finds(key)]
    if pair and not found:
        names = listed((reading.label(key) for key in pair), last="or")
        writer.add("observations", f"No sign that {names} differs between wrong and correct answers in any head.")
    if len(found) == 2:
        writer.add("observations", _overlap(writer, reading, *found))
        writer.add("observations", _agreement(writer, reading, *found))
    for key in found:
        writer.add("observations", _depth(writer, reading, key))
    writer.add("observations", _richest(writer, reading))
    for key in pair:
        writer.add("observations", _answer(writer, reading, key))


def _shares(writer: Writer, reading: SpectralReading, key: str) -> str:
    raw, total = reading.under(key), writer.count(reading.under(key).total, f"measured {key}", "head")
    text = (
        f"{writer.count(raw.count, f'under p {key}')} of {total} "
        f"({writer.percent(raw.share, f'under-percent p {key}')}) "
        f"{'has' if raw.count == 1 else 'have'} p < {writer.number(LEVEL, 'constant')}"
    )
    adjusted, level = reading.under(key, "q"), writer.number(LEVEL, "constant")
    if not adjusted.count:
        return f"{text}, and none q < {level}"
    share = writer.percent(adjusted.share, f"under-percent q {key}")
    return f"{text}, and {writer.count(adjusted.count, f'under q {key}')} ({share}) q < {level}"


def _chance(writer: Writer, reading: SpectralReading, key: str) -> str:
    mean, high, p = (reading.level(key, name) for name in ("null_mean", "null_high", "null_p"))
    if not (math.isfinite(mean) and math.isfinite(high) and math.isfinite(p)):
        return ""
    levels = (
        f"with shuffled labels {writer.percent(mean, f'level null_mean {key}')} of the heads have p < "
        f"{writer.number(LEVEL, 'constant')} on average, and at most {writer.percent(high, f'level null_high {key}')} "
        f"in 95 % of shuffles (permutation p = {writer.number(p, f'level null_p {key}', digits=2)})"
    )
    if p < LEVEL:
        return f"That is more than chance: {levels}."
    rest = " As a share it is no finding, but single heads remain." if reading.finds(key) else " It is no finding."
    return f"That is not more than chance: {levels}.{rest}"


def _strongest(writer: Writer, reading: SpectralReading, key: str) -> str:
    if not reading.has(key, "effect"):
        return ""
    parts = []
    for head in maps.strongest(reading.strength(key), 3):
        effect = reading.at(head, key, "effect")
        value = writer.number(effect, f"at effect {key} {head.name}")
        parts.append(f"{head.name} (AUROC {value}{_interval(writer, reading, key, head)}, {_way(effect)})")
    verb = "The head that differs most is" if len(parts) == 1 else "The heads that differ most are"
    return f"{verb} {listed(parts)}."


def _interval(writer: Writer, reading: SpectralReading, key: str, head: maps.HeadValue) -> str:
    if not all(reading.has(key, name) for name in ("effect_low", "effect_high")):
        return ""
    low, high = reading.at(head, key, "effect_low"), reading.at(head, key, "effect_high")
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    ends = [
        writer.number(end, f"at {name} {key} {head.name}") for end, name in ((low, "effect_low"), (high, "effect_high"))
    ]
    return f", {ends[0]} to {ends[1]}"


def _way(effect: float) -> str:
    return "larger in wrong answers" if effect > 0.5 else "smaller in wrong answers" if effect < 0.5 else "no direction"


def _direction(writer: Writer, reading: SpectralReading, key: str) -> str:
    if not (reading.has(key, "effect") and reading.under(key, "q").count):
        return ""
    chosen = reading.map(key, "effect").where(reading.chosen(key) > 0)
    larger, smaller = int((chosen > 0.5).sum()), int((chosen < 0.5).sum())
    total = writer.count(larger + smaller, f"directed {key}", "head")
    rule = f"with q < {writer.number(LEVEL, 'constant')}"
    if not larger or not smaller:
        way = "larger" if larger else "smaller"
        if larger + smaller == 1:
            return f"In the only head {rule} it is {way} in wrong answers."
        return f"In all {total} {rule} it is {way} in wrong answers."
    return (
        f"Of the {total} {rule}, it is larger in wrong answers in {writer.count(larger, f'larger {key}')} and "
        f"smaller in {writer.count(smaller, f'smaller {key}')}."
    )


def _clusters(writer: Writer, reading: SpectralReading, key: str) -> str:
    """Boxes of neighbouring heads: those with q < 0.05, or where these are many, the strongest tenth."""
    share = reading.under(key, "q")
    if share.count > 0 and share.share <= MANY:
        values, level, rule = reading.chosen(key), 1.0, f"with q < {writer.number(LEVEL, 'constant')}"
        kind, total = "chosen", share.count
    elif reading.has(key, "effect"):
        values = reading.strength(key)
        level = float(np.nanquantile(values.values, TENTH))
        rule, kind, total = "in the strongest tenth by AUROC", "tenth", int((values >= level).sum())
    else:
        return ""
    smallest = max(SMALLEST_CLUSTER, maps.cluster_by_chance(values, level) + 1)
    found = maps.clusters(values, level, smallest=smallest)[:BOXES]
    if not found:
        return ""
    boxes = [_box(writer, key, kind, box) for box in found]
    count = writer.count(total, f"{kind}-count {key}", "head")
    return f"Of the {count} {rule}, neighbours stand together, more than in 95 % of shuffled maps, in {listed(boxes)}."


def _box(writer: Writer, key: str, kind: str, box: maps.Cluster) -> str:
    edges = (box.first_layer, box.last_layer, box.first_head, box.last_head)
    of = f"{key} {' '.join(str(edge) for edge in edges)}"
    for edge in edges:
        writer.number(edge, "edge")
    return (
        f"{span('layer', box.first_layer, box.last_layer)}, {span('head', box.first_head, box.last_head)} "
        f"({writer.count(box.size, f'{kind}-box {of}')} of {writer.count(box.area, f'box-area {of}')})"
    )


def _matched(writer: Writer, reading: SpectralReading, key: str) -> str:
    if not reading.has(key, "p_matched"):
        return ""
    left, pairs = reading.under(key, "p_matched"), ""
    if "pairs" in reading.counts:
        pairs = f" ({writer.count(reading.counts['pairs'], 'count pairs', 'pair')})"
    text = (
        f"With wrong and correct answers paired by length{pairs}, {writer.count(left.count, f'under p_matched {key}')} "
        f"({writer.percent(left.share, f'under-percent p_matched {key}')}) "
        f"{'has' if left.count == 1 else 'have'} p < {writer.number(LEVEL, 'constant')}"
    )
    chosen, stay = reading.under(key, "q").count, reading.kept(key)
    if not chosen or stay is None:
        return f"{text}."
    of = f"the {writer.count(chosen, f'under q {key}')} heads" if chosen > 1 else "the one head"
    kept = f"{writer.count(stay, f'stay {key}')} {'keeps' if stay == 1 else 'keep'}" if stay else "none keeps"
    return f"{text}; of {of} with q < {writer.number(LEVEL, 'constant')}, {kept} it."


def _missing(writer: Writer, reading: SpectralReading, key: str) -> str:
    missing = reading.missing(key)
    if not missing:
        return ""
    return f"{writer.count(missing, f'missing {key}', 'head')} {'was' if missing == 1 else 'were'} not measured."


def _overlap(writer: Writer, reading: SpectralReading, one: str, other: str) -> str:
    first, second = reading.chosen(one), reading.chosen(other)
    both, either = int(((first > 0) & (second > 0)).sum()), int(((first > 0) | (second > 0)).sum())
    if not either:
        return ""
    total = int((first.notnull() & second.notnull()).sum())
    expected = float((first > 0).sum()) * float((second > 0).sum()) / total if total else math.nan
    rule = f"q < {writer.number(LEVEL, 'constant')}"
    if not both:
        return (
            f"The two maps single out different heads: none of the {writer.count(either, f'either {one} {other}')} "
            f"with {rule} in one of them has it in both (by chance "
            f"{writer.number(expected, f'expected {one} {other}')})."
        )
    return (
        f"{writer.count(both, f'both {one} {other}', 'head')} {'has' if both == 1 else 'have'} {rule} in both maps, of "
        f"{writer.count(either, f'either {one} {other}')} in at least one (Jaccard index "
        f"{writer.fixed(both / either, f'jaccard {one} {other}')}; two independent maps of these sizes would share "
        f"{writer.number(expected, f'expected {one} {other}')})."
    )


def _agreement(writer: Writer, reading: SpectralReading, one: str, other: str) -> str:
    if reading.total < FEWEST_HEADS:
        return ""
    rho = maps.rank_correlation(reading.map(one), reading.map(other))
    signed = maps.rank_correlation(reading.map(one, "effect"), reading.map(other, "effect"))
    if not (math.isfinite(rho) and math.isfinite(signed)):
        return ""
    return (
        f"The p-values of {reading.label(one)} and {reading.label(other)} have a rank correlation of "
        f"{writer.fixed(rho, f'correlation p {one} {other}')} over the heads, their signed effects one of "
        f"{writer.fixed(signed, f'correlation effect {one} {other}')}."
    )


def _depth(writer: Writer, reading: SpectralReading, key: str) -> str:
    """Where in the model heads differ: the share under 0.05 by thirds, and the layer with the largest effects."""
    if len(reading.layers) < FEWEST_LAYERS or not reading.under(key).count:
        return ""
    p = reading.map(key)
    shares = maps.depth_trend((p < LEVEL).astype(float).where(p.notnull()))
    effects = maps.depth_trend(reading.strength(key)) if reading.has(key, "effect") else None
    if shares is None:
        return ""
    parts = [writer.percent(mean, f"third {key} {index}") for index, mean in enumerate(shares.means)]
    text = (
        f"{reading.label(key)}: p < {writer.number(LEVEL, 'constant')} in {parts[0]} of the heads of the early, "
        f"{parts[1]} of the middle and {parts[2]} of the late third of the layers"
    )
    if effects is None:
        return f"{text}."
    return f"{text}; effects are largest in layer {writer.number(effects.peak_layer, f'peak {key}')}."


def _richest(writer: Writer, reading: SpectralReading) -> str:
    """Which feature has the most heads that survive FDR."""
    counts = {key: reading.under(key, "q").count for key in reading.measured if reading.has(key, "q")}
    if len(counts) < 3 or not any(counts.values()):
        return ""
    best = max(counts, key=lambda key: counts[key])
    if list(counts.values()).count(counts[best]) > 1:
        return ""
    share = writer.percent(reading.under(best, "q").share, f"under-percent q {best}")
    return (
        f"Of the {writer.count(len(counts), 'features', 'feature')} tested, {reading.label(best)} differs in most "
        f"heads ({share} with q < {writer.number(LEVEL, 'constant')})."
    )


def _answer(writer: Writer, reading: SpectralReading, key: str) -> str:
    if reading.part == ANSWER or not reading.has(key, "p", ANSWER):
        return ""
    alone, whole = reading.under(key, "p", ANSWER), reading.under(key)
    p, chance = reading.level(key, "null_p", ANSWER), ""
    if math.isfinite(p):
        more = "more" if p < LEVEL else "not more"
        chance = f", {more} than chance (permutation p = {writer.number(p, f'answer-level null_p {key}', digits=2)})"
    return (
        f"On the answer's tokens alone {writer.percent(alone.share, f'answer-percent p {key}')} of the heads have p < "
        f"{writer.number(LEVEL, 'constant')} for {reading.label(key)}{chance}; on the whole text it is "
        f"{writer.percent(whole.share, f'under-percent p {key}')}."
    )
