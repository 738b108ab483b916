"""What a profile shows: the strongest heads of each statistic, and what can be said over all of them.

Thresholds are few, fixed and always stated in the sentence. A sentence whose premise does not hold is not written.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from headwise.describe import maps
from headwise.describe.writer import Writer, listed, span
from headwise.studies.profile.accessor import ProfileReading

HALF = 0.5  # of a head's attention on the first token: the head is a sink
ROLE = 0.4  # a head has a role when the whole interval of its score is above this
TOP = 0.05  # share of heads whose part of the total is told
TENTH = 0.9  # quantile over which cells are looked at for clusters
SMALLEST_CLUSTER = 4
CLEAR = 0.6  # rank correlations nearer to 0 are not told
FEWEST_LAYERS = 6  # for a trend over depth
FEWEST_HEADS = 20  # for shares and correlations over the heads of a model
NAMED = 8
STRONGEST = 10  # heads that two statistics are compared by

# statistic: one head with this role, several of them, and whether their absence is worth a sentence
ROLES = {
    "previous": ("previous-token head", "previous-token heads", True),
    "induction": ("induction head", "induction heads", True),
    "duplicate": ("duplicate-token head", "duplicate-token heads", True),
    "diagonal": ("head that looks at its own token", "heads that look at their own token", False),
    "delimiter": ("head that looks at delimiters", "heads that look at delimiters", False),
}


def add_details(writer: Writer, reading: ProfileReading) -> None:
    """One entry a statistic: what it is, its strongest heads, how far from uniform they are, where they cluster."""
    for key in reading.keys:
        intro = f"{reading.label(key)}: {reading.text(key, 'definition')}."
        if key not in reading.measured:
            writer.add("detail", f"{intro} It was not measured.")
            continue
        sentences = (
            f"{intro} {_strongest(writer, reading, key)}.",
            _against_uniform(writer, reading, key),
            _cluster(writer, reading, key),
            _missing(writer, reading, key),
        )
        writer.add("detail", " ".join(sentence for sentence in sentences if sentence))


def add_observations(writer: Writer, reading: ProfileReading) -> None:
    """What holds over the whole model."""
    writer.add("observations", _sinks(writer, reading))
    for key in ROLES:
        if key in reading.measured:
            writer.add("observations", _role(writer, reading, key))
    writer.add("observations", _nearer(writer, reading))
    writer.add("observations", _concentration(writer, reading))
    for entry in (*_trends(writer, reading), *_companions(writer, reading)):
        writer.add("observations", entry)


def role_heads(reading: ProfileReading, key: str) -> list[maps.HeadValue]:
    """The heads whose whole interval (where there is none: whose value) is above the threshold, strongest first."""
    lowest = reading.map(key, "low" if reading.has_intervals(key) else "value")
    return maps.strongest(reading.map(key).where(lowest > ROLE), reading.total)


def _strongest(writer: Writer, reading: ProfileReading, key: str) -> str:
    heads = maps.strongest(reading.map(key), 3)
    parts = []
    for head in heads:
        value = writer.number(head.value, f"value {key} {head.name}")
        parts.append(f"{value} in {head.name}{_interval(writer, reading, key, head)}")
    text = f"The largest {'value is' if len(heads) == 1 else 'values are'} {listed(parts)}"
    if key == "entropy" and reading.total > 3:
        (least,) = maps.strongest(reading.map(key), 1, by="smallest")
        text += f"; the most focused head is {least.name}, {writer.number(least.value, f'value {key} {least.name}')}"
    return text


def _interval(writer: Writer, reading: ProfileReading, key: str, head: maps.HeadValue) -> str:
    low, high = reading.at(head, key, "low"), reading.at(head, key, "high")
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    ends = writer.number(low, f"low {key} {head.name}"), writer.number(high, f"high {key} {head.name}")
    return f" ({ends[0]} to {ends[1]})"


def _against_uniform(writer: Writer, reading: ProfileReading, key: str) -> str:
    (first,) = maps.strongest(reading.map(key), 1)
    uniform = reading.uniform(key)
    if not (math.isfinite(uniform) and uniform > 0):
        return ""
    level = writer.number(uniform, f"uniform {key}")
    ratio, away = first.value / uniform, abs(first.value - uniform)
    if reading.at(first, key, "low") <= uniform <= reading.at(first, key, "high"):
        return f"What a uniform head would get, {level}, lies inside the interval of {first.name}."
    if ratio >= 2:
        times = writer.number(ratio, f"ratio {key} {first.name}")
        return f"{first.name} has {times} times what a uniform head would get ({level})."
    distance = writer.number(away, f"difference {key} {first.name}")
    if ratio > 1:
        return f"{first.name} is {distance} above what a uniform head would get ({level})."
    return f"Even {first.name} is {distance} below what a uniform head would get ({level})."


def _cluster(writer: Writer, reading: ProfileReading, key: str) -> str:
    values = reading.map(key)
    level = float(np.nanquantile(values.values.astype(float), TENTH))
    found = maps.clusters(values, level, smallest=max(SMALLEST_CLUSTER, maps.cluster_by_chance(values, level) + 1))
    if not found:
        return ""
    box = found[0]
    edges = (box.first_layer, box.last_layer, box.first_head, box.last_head)
    of = f"{key} {' '.join(str(edge) for edge in edges)}"
    for edge in edges:
        writer.number(edge, "edge")
    total = int((values >= level).sum())
    return (
        f"Of the {writer.count(total, f'tenth-count {key}')} heads in the top tenth (at least "
        f"{writer.number(level, f'tenth {key}')}), {writer.count(box.size, f'box-size {of}')} stand together in "
        f"{span('layer', box.first_layer, box.last_layer)}, {span('head', box.first_head, box.last_head)}, more than "
        f"in 95 % of shuffled maps; all {writer.count(box.area, f'box-area {of}', 'head')} of this block have a mean "
        f"of {writer.number(box.mean, f'box-mean {of}')}."
    )


def _missing(writer: Writer, reading: ProfileReading, key: str) -> str:
    missing = reading.missing(key)
    if not missing:
        return ""
    return f"{writer.count(missing, f'missing {key}', 'head')} {'was' if missing == 1 else 'were'} not measured."


def _sinks(writer: Writer, reading: ProfileReading) -> str:
    if "sink" not in reading.measured:
        return ""
    over, uniform, beside = maps.share_over(reading.map("sink"), HALF), reading.uniform("sink"), ""
    if math.isfinite(uniform):
        beside = f"; a uniform head would put {writer.percent(uniform, 'uniform-percent sink')} there"
    if not over.count:
        return f"No head puts more than half of its attention on the first token{beside}."
    count, total = writer.count(over.count, f"over sink {HALF}"), writer.count(over.total, "measured sink", "head")
    share = writer.percent(over.share, f"over-percent sink {HALF}")
    verb = "puts more than half of its" if over.count == 1 else "put more than half of their"
    return f"{count} of {total} ({share}) {verb} attention on the first token{beside}."


def _role(writer: Writer, reading: ProfileReading, key: str) -> str:
    one, several, tell_absence = ROLES[key]
    heads = role_heads(reading, key)
    if not heads and not tell_absence:
        return ""
    rule = "95 % interval wholly" if reading.has_intervals(key) else "value"
    rule += f" above {writer.number(ROLE, 'constant')}"
    if not heads:
        (best,) = maps.strongest(reading.map(key), 1)
        value = writer.number(best.value, f"value {key} {best.name}")
        return f"No {one} ({rule}); the nearest to it is {best.name} ({value})."
    names = [f"{head.name} ({writer.number(head.value, f'value {key} {head.name}')})" for head in heads[:NAMED]]
    if len(heads) > NAMED:
        names.append(f"{writer.count(len(heads) - NAMED, f'role-rest {key}')} more")
    count = writer.count(len(heads), f"role {key}")
    return f"{count} {one if len(heads) == 1 else several} ({rule}): {listed(names)}."


def _nearer(writer: Writer, reading: ProfileReading) -> str:
    if "distance" not in reading.measured or not math.isfinite(reading.uniform("distance")):
        return ""
    values, uniform = reading.map("distance"), reading.map("distance", "uniform")
    near, total = int((values < uniform).sum()), int(values.notnull().sum())
    if near * 2 <= total or total == 1:
        return ""
    all_heads = writer.count(total, "measured distance", "head")
    who = f"All {all_heads}"
    if near < total:
        who = f"{writer.count(near, 'nearer')} of {all_heads} ({writer.percent(near / total, 'nearer-percent')})"
    return f"{who} look nearer, in the mean, than a uniform head would."


def _concentration(writer: Writer, reading: ProfileReading) -> str:
    found = [
        (part.gini, key, part) for key in reading.measured if (part := maps.concentration(reading.map(key), top=TOP))
    ]
    if len(found) < 2 or reading.total < FEWEST_HEADS:
        return ""
    (_, one, high), (_, other, low) = max(found), min(found)
    return (
        f"{reading.label(one)} is the most concentrated: {writer.percent(TOP, 'constant')} of the heads "
        f"({writer.count(high.heads, f'top-heads {one}')}) have {writer.percent(high.share, f'top-share {one}')} of "
        f"the total (Gini coefficient {writer.fixed(high.gini, f'gini {one}')}). {reading.label(other)} is the most "
        f"evenly spread ({writer.percent(low.share, f'top-share {other}')}; {writer.fixed(low.gini, f'gini {other}')})."
    )


def _trends(writer: Writer, reading: ProfileReading, *, most: int = 4) -> list[str]:
    if len(reading.layers) < FEWEST_LAYERS:
        return []
    trends = [(key, trend) for key in reading.measured if (trend := maps.depth_trend(reading.map(key)))]
    clear = [(key, trend) for key, trend in trends if abs(trend.correlation) >= CLEAR]
    clear.sort(key=lambda pair: -abs(pair[1].correlation))
    entries = []
    for key, trend in clear[:most]:
        means = [writer.number(mean, f"third {key} {index}") for index, mean in enumerate(trend.means)]
        entries.append(
            f"{reading.label(key)} {'rises' if trend.correlation > 0 else 'falls'} with depth: on average {means[0]} "
            f"in the early, {means[1]} in the middle and {means[2]} in the late third of the layers, most in layer "
            f"{writer.number(trend.peak_layer, f'peak {key}')} (rank correlation with depth "
            f"{writer.fixed(trend.correlation, f'depth {key}')})."
        )
    told = [key for key, _ in clear[:most]]
    for key, trend in trends:
        share = max(trend.shares)
        if key not in told and share >= HALF:
            part = writer.percent(share, f"third-share {key} {maps.THIRDS.index(trend.peak_third)}")
            entries.append(f"{part} of all {reading.label(key)} lies in the {trend.peak_third} third of the layers.")
    return entries


def _companions(writer: Writer, reading: ProfileReading, *, most: int = 3) -> list[str]:
    """The pairs of statistics that rank the heads most alike, and most unlike."""
    if reading.total < FEWEST_HEADS:
        return []
    pairs = [
        (maps.rank_correlation(reading.map(one), reading.map(other)), one, other)
        for one, other in itertools.combinations(reading.measured, 2)
    ]
    entries = []
    for verb, sign in (("rank the heads alike", 1), ("rank the heads in opposite order", -1)):
        clear = sorted((pair for pair in pairs if sign * pair[0] >= CLEAR), key=lambda pair: -abs(pair[0]))[:most]
        parts = [
            f"{reading.label(one)} and {reading.label(other)} ({writer.fixed(rho, f'correlation {one} {other}')}"
            f"{_same_heads(writer, reading, one, other) if sign > 0 else ''})"
            for rho, one, other in clear
        ]
        if parts:
            which = "This pair ranks" if len(parts) == 1 else "These pairs rank"
            entries.append(f"{which} {verb.removeprefix('rank ')} (rank correlation): {listed(parts)}.")
    return entries


def _same_heads(writer: Writer, reading: ProfileReading, one: str, other: str) -> str:
    if reading.total < 4 * STRONGEST:
        return ""
    same = maps.overlap(reading.map(one), reading.map(other), STRONGEST)
    count = writer.count(len(same.shared), f"overlap {one} {other}")
    return f"; {count} of the {writer.count(STRONGEST, 'constant')} strongest heads are the same"
