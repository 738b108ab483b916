"""Sentences about layer x head maps that every study can use, and a generic description made of them.

Each function takes a `Writer` and one or several `NamedMap`s and returns a sentence, or "" where its premise does not hold.
Thresholds are few, fixed and stated in the sentence. Sources of numbers are named by kind and map: "value sink L3H7",
"box-size sink 2 4 0 5" (first and last layer, first and last head), "third sink 0" (the early third of the layers).

A study whose spec names no words is described by `generic`: ranges, strongest heads with their confidence intervals,
distance from the baseline, clusters against shuffled maps, depth trends, correlated maps, missing heads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER
from headwise.describe import maps
from headwise.describe.narrative import reading
from headwise.describe.phrases import model_in
from headwise.describe.writer import Description, Writer, listed, span
from headwise.figures.head_maps import NamedMap, named_maps

if TYPE_CHECKING:
    from headwise.studies.spec import HeadColumn

NAMED_HEADS = 3
TOP_SHARE = 0.05  # of the heads, whose part of the total is reported
TOP_QUANTILE = 0.9  # over which cells are searched for clusters
MIN_CLUSTER_CELLS = 4
MAX_BOXES = 3  # per map
CLEAR_CORRELATION = 0.6  # weaker rank correlations are not reported
MIN_LAYERS = 6  # for a trend over depth
MIN_HEADS = 20  # for shares and correlations over the heads of a model
OVERLAP_HEADS = 10  # strongest heads that two maps are compared by
MAX_TRENDS, MAX_PAIRS = 4, 3
CONCENTRATED = 0.25  # of the sum in the top `TOP_SHARE` of the heads: five times as much as if all were equal
ABLATE = "ablate the heads that are named (study causal), against heads of the same layer that write about as much"


def strongest_heads(writer: Writer, one: NamedMap, count: int = NAMED_HEADS) -> str:
    """The largest values with their confidence intervals; without the full stop."""
    parts = []
    heads = maps.strongest(one.values, count)
    for head in heads:
        value = writer.number(head.value, f"value {one.key} {head.name}")
        parts.append(f"{value} in {head.name}{_interval(writer, one, head)}")
    return f"The largest {'value is' if len(heads) == 1 else 'values are'} {listed(parts)}"


def against_baseline(writer: Writer, one: NamedMap) -> str:
    """How far the strongest head is from the baseline."""
    if not (math.isfinite(one.baseline) and one.baseline > 0):
        return ""
    (first,) = maps.strongest(one.values, 1)
    level = writer.number(one.baseline, f"baseline {one.key}")
    ratio, distance = first.value / one.baseline, abs(first.value - one.baseline)
    if _at(one.low, first) <= one.baseline <= _at(one.high, first):
        return f"The value of {one.baseline_name}, {level}, lies inside the interval of {first.name}."
    if ratio >= 2:
        times = writer.number(ratio, f"ratio {one.key} {first.name}")
        return f"{first.name} has {times} times the value of {one.baseline_name} ({level})."
    away = writer.number(distance, f"difference {one.key} {first.name}")
    if ratio > 1:
        return f"{first.name} is {away} above {one.baseline_name} ({level})."
    return f"Even {first.name} is {away} below {one.baseline_name} ({level})."


def boxes(writer: Writer, every: Sequence[NamedMap]) -> str:
    """Blocks of neighbouring heads in the top tenth of each map, where they are larger than in shuffled maps."""
    described = []
    for one in every:
        values = one.values.values.astype(float)
        level = float(np.nanquantile(values, TOP_QUANTILE))
        smallest = max(MIN_CLUSTER_CELLS, maps.cluster_by_chance(one.values, level) + 1)
        found = maps.clusters(one.values, level, smallest=smallest)[:MAX_BOXES]
        if not found or level <= float(np.nanmin(values)):  # a map without a top tenth
            continue
        parts = []
        for box in found:
            where, source = box_of(writer, one.key, box)
            size = writer.count(box.size, f"box-size {source}")
            area = writer.count(box.area, f"box-area {source}")
            mean = writer.number(box.mean, f"box-mean {source}")
            parts.append(f"{where} ({size} of {area} cells, mean {mean})")
        described.append(f"{one.label} (top tenth: from {writer.number(level, f'tenth {one.key}')}): {listed(parts)}")
    if not described:
        return "No map has a block of neighbouring heads in its top tenth that is larger than in 95 % of shuffled maps."
    rest = "" if len(described) == len(every) else "; no other map has one"
    return f"Blocks of neighbouring heads in the top tenth, larger than in 95 % of shuffled maps: {'; '.join(described)}{rest}."


def anomalies(writer: Writer, every: Sequence[NamedMap]) -> Iterator[str]:
    """The heads and layers that break the pattern of their map; the rule is stated."""
    every = [one for one in every if one.values.size >= MIN_HEADS]
    if not every:
        return
    far = writer.number(maps.FAR, "constant")
    rule = (
        f"Rule: a head is an anomaly if it is more than {far} robust standard deviations from the median of its layer and of "
        "the two next to it; a layer, if the median of its heads is as far from those of the layers around it."
    )
    heads = [(one, maps.outliers(one.values)) for one in every]
    single = [(one, found) for one, found in heads if 0 < len(found) <= TOP_SHARE * one.values.size]
    heavy = [(one, found) for one, found in heads if len(found) > TOP_SHARE * one.values.size]
    layers = [(one, found) for one in every if (found := maps.breaks(one.values))]
    if not (single or heavy or layers):
        yield f"{rule} No head and no layer is one."
        return
    yield rule
    single.sort(key=lambda pair: -abs(pair[1][0].distance))
    parts = [f"{one.label} {_outliers(writer, one, found)}" for one, found in single]
    if parts:
        yield f"Single heads: {'; '.join(parts)}."
    if heavy:
        counts = (
            f"{one.label} ({writer.percent(len(found) / int(one.values.notnull().sum()), f'anomaly-percent {one.key}')})"
            for one, found in heavy
        )
        yield f"So many heads that they are a heavy tail rather than exceptions: {listed(counts)}."
    apart = [f"{one.label} {_breaks(writer, one, found)}" for one, found in layers]
    if apart:
        yield f"Layers: {'; '.join(apart)}."


def _outliers(writer: Writer, one: NamedMap, found: Sequence[maps.Outlier]) -> str:
    """The farthest, and how many there are."""
    (first, *rest) = found
    name = first.head.name
    value = writer.number(first.head.value, f"value {one.key} {name}")
    around = writer.number(first.around, f"around {one.key} {name}")
    more = f" and {writer.count(len(rest), f'anomalies-rest {one.key}', 'other')}" if rest else ""
    return f"{name} ({value}, around it {around}){more}"


def _breaks(writer: Writer, one: NamedMap, found: Sequence[maps.Break]) -> str:
    parts = []
    for each in found[:NAMED_HEADS]:
        level = writer.number(each.level, f"layer-level {one.key} {each.layer}")
        around = writer.number(each.around, f"layer-around {one.key} {each.layer}")
        parts.append(f"{writer.number(each.layer, 'edge')} (median {level}, around it {around})")
    return listed(parts)


def box_of(writer: Writer, key: str, box: maps.HeadCluster) -> tuple[str, str]:
    """A box as text ("layers 2 to 4, heads 0 to 5") and as the end of a source ("sink 2 4 0 5")."""
    edges = (box.first_layer, box.last_layer, box.first_head, box.last_head)
    for edge in edges:
        writer.number(edge, "edge")
    where = f"{span('layer', box.first_layer, box.last_layer)}, {span('head', box.first_head, box.last_head)}"
    return where, f"{key} {' '.join(str(edge) for edge in edges)}"


def missing_heads(writer: Writer, key: str, count: int) -> str:
    """How many heads of a map were not measured."""
    if not count:
        return ""
    return f"{writer.count(count, f'missing {key}', 'head')} {'was' if count == 1 else 'were'} not measured."


def value_range(writer: Writer, one: NamedMap, no_baseline: str = "") -> str:
    """Smallest, median and largest value, and the baseline."""
    values = one.values.values.astype(float)
    low = writer.number(float(np.nanmin(values)), f"min {one.key}")
    middle = writer.number(float(np.nanmedian(values)), f"median {one.key}")
    high = writer.number(float(np.nanmax(values)), f"max {one.key}")
    baseline = f"; {no_baseline}" if no_baseline else ""
    if math.isfinite(one.baseline):
        baseline = f"; {one.baseline_name} has {writer.number(one.baseline, f'baseline {one.key}')}"
    name = f"{one.label}{f', {one.unit}' if one.unit else ''}"
    if np.isfinite(values).sum() == 1:
        return f"{name}: {middle}{baseline}."
    return f"{name}: {low} to {high}, median {middle}{baseline}."


def concentration(writer: Writer, every: Sequence[NamedMap]) -> str:
    """The most concentrated and the most evenly spread of several maps."""
    found = [
        (part.gini, index, part)
        for index, one in enumerate(every)
        if (part := maps.concentration(one.values, top=TOP_SHARE))
    ]
    if len(found) < 2 or every[0].values.size < MIN_HEADS:
        return ""
    (_, first, high), (_, last, low) = max(found), min(found)
    one, other = every[first], every[last]
    return (
        f"{one.label} is the most concentrated: {writer.percent(TOP_SHARE, 'constant')} of the heads "
        f"({writer.count(high.heads, f'top-heads {one.key}')}) have {writer.percent(high.share, f'top-share {one.key}')} of "
        f"the total (Gini coefficient {writer.fixed(high.gini, f'gini {one.key}')}). {other.label} is the most evenly spread "
        f"({writer.percent(low.share, f'top-share {other.key}')}; {writer.fixed(low.gini, f'gini {other.key}')})."
    )


def depth_trends(writer: Writer, every: Sequence[NamedMap]) -> list[str]:
    """The clearest trends over layers, and maps of which most lies in one third of the layers."""
    if not every or every[0].values.sizes[LAYER] < MIN_LAYERS:
        return []
    trends = [(one, trend) for one in every if (trend := maps.depth_trend(one.values))]
    clear = [(one, trend) for one, trend in trends if abs(trend.correlation) >= CLEAR_CORRELATION]
    clear.sort(key=lambda pair: -abs(pair[1].correlation))
    entries = []
    for one, trend in clear[:MAX_TRENDS]:
        means = [writer.number(mean, f"third {one.key} {index}") for index, mean in enumerate(trend.means)]
        entries.append(
            f"{one.label} {'rises' if trend.correlation > 0 else 'falls'} with depth: on average {means[0]} in the early, "
            f"{means[1]} in the middle and {means[2]} in the late third of the layers, most in layer "
            f"{writer.number(trend.peak_layer, f'peak {one.key}')} (rank correlation with depth "
            f"{writer.fixed(trend.correlation, f'depth {one.key}')})."
        )
    reported = [one.key for one, _ in clear[:MAX_TRENDS]]
    for one, trend in trends:
        if one.key not in reported and max(trend.shares) >= 0.5:
            part = writer.percent(max(trend.shares), f"third-share {one.key} {maps.THIRDS.index(trend.peak_third)}")
            entries.append(f"{part} of all {one.label} lies in the {trend.peak_third} third of the layers.")
    return entries


def share_by_third(writer: Writer, key: str, members: xr.DataArray) -> tuple[list[str], maps.DepthTrend] | None:
    """The share of heads in a set (a map of 0 and 1) per third of the layers, as texts, with the trend."""
    trend = maps.depth_trend(members)
    if members.sizes[LAYER] < MIN_LAYERS or trend is None:
        return None
    return [writer.percent(mean, f"third {key} {index}") for index, mean in enumerate(trend.means)], trend


def correlated_maps(writer: Writer, every: Sequence[NamedMap]) -> list[str]:
    """The pairs of maps that rank the heads most similarly, and most oppositely."""
    if not every or every[0].values.size < MIN_HEADS:
        return []
    pairs = [
        (maps.rank_correlation(one.values, other.values), one, other) for one, other in itertools.combinations(every, 2)
    ]
    entries = []
    for order, sign in (("similarly", 1), ("in opposite order", -1)):
        clear = sorted((pair for pair in pairs if sign * pair[0] >= CLEAR_CORRELATION), key=lambda pair: -abs(pair[0]))
        parts = [
            f"{one.label} and {other.label} ({writer.fixed(rho, f'correlation {one.key} {other.key}')}"
            f"{_shared_heads(writer, one, other) if sign > 0 else ''})"
            for rho, one, other in clear[:MAX_PAIRS]
        ]
        if parts:
            which = "This pair ranks" if len(parts) == 1 else "These pairs rank"
            entries.append(f"{which} the heads {order} (rank correlation): {listed(parts)}.")
    return entries


def unsettled_order(writer: Writer, every: Sequence[NamedMap]) -> str:
    """In how many maps the confidence intervals of the two strongest heads overlap."""
    count = unsettled_count(every)
    if not count:
        return ""
    panels = writer.count(count, "unsettled", "panel")
    return f"In {panels} the confidence intervals of the two strongest heads overlap, so their order is not settled."


def unsettled_count(every: Sequence[NamedMap]) -> int:
    """In how many maps the confidence intervals of the two strongest heads overlap."""
    pairs = [(one, maps.strongest(one.values, 2)) for one in every]
    return sum(len(heads) == 2 and _at(one.low, heads[0]) <= _at(one.high, heads[1]) for one, heads in pairs)


def spread(writer: Writer, every: Sequence[NamedMap], *, decide: str = ABLATE) -> Iterator[str]:
    """A reading of what several maps share: are they carried by few heads, and does depth order them?"""
    known = [one for one in every if one.values.size >= MIN_HEADS and maps.concentration(one.values, top=TOP_SHARE)]
    if not known:
        return
    few, many = list[NamedMap](), list[NamedMap]()
    for one in known:
        part = maps.concentration(one.values, top=TOP_SHARE)
        if part is not None:
            (few if part.share >= CONCENTRATED else many).append(one)
    top, level = writer.percent(TOP_SHARE, "constant"), writer.percent(CONCENTRATED, "constant")
    share = f"{top} of the heads have at least {level} of the sum"
    if not few:
        like = f"what is measured is spread over the model, since in no map {share}"
    elif not many:
        like = f"few heads do the work, since in every map {share}"
    else:
        like = (
            f"in {writer.count(len(few), 'few-heads', 'map')} few heads do the work ({share}: "
            f"{listed(one.label for one in few)}), in {writer.count(len(many), 'many-heads')} it is spread over the model"
        )
    count = unsettled_count([one for one in every if one.has_intervals])
    against = (
        f"in {writer.count(count, 'unsettled', 'map')} the order of the two strongest heads is not settled"
        if count
        else ""
    )
    yield from reading(like, [against, "a large value shows what a head does, not that the model needs it"], decide)


def generic(dataset: xr.Dataset, columns: Iterable[HeadColumn | str] | None = None) -> Description:
    """A description of the layer x head maps of a Dataset, for a study that has no words of its own.

    Args:
        dataset: with the dims layer and head.
        columns: as for `headwise.figures.head_maps.named_maps`.

    Returns:
        Sections of sentences, every number of them recomputable.

    Examples:
        >>> generic(atlas["profile"], ["value"]).short().partition(":")[0]
        '11 layer x head maps of HuggingFaceTB/SmolLM2-135M-Instruct'
    """
    every = named_maps(dataset, columns)
    measured = [one for one in every if one.measured]
    title, model = str(dataset.attrs.get("title") or "Layer x head maps"), model_in(dataset)
    writer = Writer(f"{title}: {model}")
    count = writer.count(len(every), "maps", "layer x head map")
    writer.add("overview", f"{title}: {count} of {model}.")
    for one in every:
        intro = f"{one.label}: {one.definition}." if one.definition else f"{one.label}."
        if not one.measured:
            writer.add("detail", f"{intro} It was not measured.")
            continue
        writer.add("axes", value_range(writer, one))
        missing = missing_heads(writer, one.key, int(one.values.isnull().sum()))
        parts = (f"{strongest_heads(writer, one)}.", against_baseline(writer, one), missing)
        writer.add("detail", " ".join(part for part in (intro, *parts) if part))
    for entry in (concentration(writer, measured), *depth_trends(writer, measured), *correlated_maps(writer, measured)):
        writer.add("observations", entry)
    if measured:
        writer.add("observations", boxes(writer, measured))
    for section, entries in (("anomalies", anomalies(writer, measured)), ("interpretation", spread(writer, measured))):
        for entry in entries:
            writer.add(section, entry)
    if any(one.has_intervals for one in measured):
        writer.add("caveats", "Ranges in brackets are 95 % confidence intervals.")
        writer.add("caveats", unsettled_order(writer, measured))
    else:
        writer.add("caveats", "There are no confidence intervals, so differences may be due to the choice of examples.")
    headline = f"{writer.count(len(every), 'maps', 'layer x head map')} of {model}"
    if measured:
        (first,) = maps.strongest(measured[0].values, 1)
        value = writer.number(first.value, f"value {measured[0].key} {first.name}")
        headline += f": the head with the largest {measured[0].label} is {first.name} ({value})"
    return writer.finish(f"{headline}.")


def _interval(writer: Writer, one: NamedMap, head: maps.HeadValue) -> str:
    low, high = _at(one.low, head), _at(one.high, head)
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    ends = writer.number(low, f"low {one.key} {head.name}"), writer.number(high, f"high {one.key} {head.name}")
    return f" ({ends[0]} to {ends[1]})"


def _at(array: xr.DataArray | None, head: maps.HeadValue) -> float:
    if array is None:
        return math.nan
    selected = {LAYER: head.layer, HEAD: head.head}
    known = {dim: name for dim, name in selected.items() if dim in array.coords}
    counted = {dim: name for dim, name in selected.items() if dim not in array.coords}
    return float(array.sel(known).isel(counted))


def _shared_heads(writer: Writer, one: NamedMap, other: NamedMap) -> str:
    if one.values.size < 4 * OVERLAP_HEADS:
        return ""
    same = maps.overlap(one.values, other.values, OVERLAP_HEADS)
    count = writer.count(len(same.shared), f"overlap {one.key} {other.key}")
    return f"; {count} of the {writer.count(OVERLAP_HEADS, 'constant')} strongest heads are the same"
