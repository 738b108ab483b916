"""The spectral study in words: which heads' attention differs between wrong and correct answers?

Thresholds are fixed and stated in every sentence. For a map in which no more heads differ than with permuted labels, the
text says so and claims nothing else. What remains once the question and the length of the answer are controlled for is in
``controls_words``. Every number is computed from the Dataset and recorded with its source in
`Description.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, PART
from headwise.core.parsing import parse_attribute
from headwise.core.schema import INTERVAL_ENDS
from headwise.describe import maps, narrator
from headwise.describe.narrative import Narrative, reading
from headwise.describe.phrases import SMALL_SAMPLE, Accessor, answers_of, model_of, size_of
from headwise.describe.writer import Writer, listed
from headwise.figures.head_maps import NamedMap
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.spectral import controls_words
from headwise.studies.spectral.figure import strata_of

PAIR = ("attention_score", "laplacian")  # the two maps of the figure
WIDESPREAD = 0.3  # share of heads with q < 0.05 above which clusters are sought among the strongest tenth instead
TENTH = 0.9  # quantile
MIN_CLUSTER = 4  # heads
MINORITY = 0.2  # of the significant heads of a map, up to which those of the other direction are anomalies
NAMED = 3
BOXES = 3
RANGE = {"min": 0.0, "median": 0.5, "max": 1.0}  # quantiles
TINY = 0.001  # smaller p-values are not written out


class SpectralAccessor(Accessor):
    """The parts of a spectral Dataset by name. Maps are (layer, head), over the whole text unless a part is given."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self.parts = [str(part) for part in dataset[PART].values]
        self.part = "whole" if "whole" in self.parts else self.parts[0]
        self.keys = [str(key) for key in dataset[FEATURE].values]
        self.counts: dict[str, int] = parse_attribute(dataset.attrs, "counts", dict[str, int], "{}")
        if not self.counts and "wrong" in dataset:
            wrong = int(dataset["wrong"].values.astype(bool).sum())
            self.counts = {"wrong": wrong, "correct": dataset.sizes[EXAMPLE] - wrong}
        self.strata = strata_of(dataset)
        self.measured = [key for key in self.keys if self.has(key)]
        self.pair = [key for key in PAIR if key in self.measured]

    def map(self, key: str, variable: str = "p", part: str | None = None) -> xr.DataArray:
        """In double precision, so that a threshold is the same number everywhere."""
        return self.dataset[variable].sel({PART: part or self.part, FEATURE: key}).astype(float)

    def has(self, key: str, variable: str = "p", part: str | None = None) -> bool:
        """Whether there is a map with at least one head measured."""
        if variable not in self.dataset or (part or self.part) not in self.parts:
            return False
        return bool(self.map(key, variable, part).notnull().any())

    def under(self, key: str, variable: str = "p", part: str | None = None) -> maps.Share:
        """How many heads are under 0.05, of those measured."""
        values = self.map(key, variable, part)
        return maps.Share(int((values < ALPHA).sum()), int(values.notnull().sum()))

    def strength(self, key: str) -> xr.DataArray:
        """The distance of the single feature's AUROC from 0.5."""
        return abs(self.map(key, "effect") - 0.5)

    def significant(self, key: str) -> xr.DataArray:
        """1 where q < 0.05, else 0; NaN where there is no test."""
        q = self.map(key, "q")
        return (q < ALPHA).astype(float).where(q.notnull())

    def retained(self, key: str) -> int | None:
        """Heads with q < 0.05 both on all answers and among those of the same length; None where that was not tested."""
        if not self.has(key, "q_matched"):
            return None
        return int(((self.map(key, "q_matched") < ALPHA) & (self.significant(key) > 0)).sum())

    def at(self, head: maps.HeadValue, key: str, variable: str) -> float:
        """One head's value; NaN where the variable is missing."""
        if not self.has(key, variable):
            return math.nan
        row, column = self.layers.index(head.layer), self.heads.index(head.head)
        return float(self.map(key, variable).transpose(LAYER, HEAD).values[row, column])

    def level(self, key: str, variable: str, part: str | None = None) -> float:
        """A number per map, such as ``null_p``; NaN where it was not computed."""
        if variable not in self.dataset or (part or self.part) not in self.parts:
            return math.nan
        return float(self.dataset[variable].sel({PART: part or self.part, FEATURE: key}))

    def finds(self, key: str) -> bool:
        """Whether the map shows more than chance: more heads than with permuted labels, or some with q < 0.05."""
        return self.level(key, "null_p") < ALPHA or self.under(key, "q").count > 0

    def text(self, key: str, coord: str) -> str:
        """The feature's label or definition; empty where there is none."""
        return str(self.dataset[coord].sel({FEATURE: key}).values) if coord in self.dataset.coords else ""

    def label(self, key: str) -> str:
        return self.text(key, "label") or key

    def lengths(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Tokens of the wrong and of the correct answers; None unless there are both."""
        if not {"answer_tokens", "wrong"} <= set(self.dataset.variables):
            return None
        tokens, wrong = self.dataset["answer_tokens"].values.astype(float), self.dataset["wrong"].values.astype(bool)
        return (tokens[wrong], tokens[~wrong]) if wrong.any() and not wrong.all() else None


# ---- overview and axes ----------------------------------------------------------------------------------------------


def _overview(writer: Writer, data: SpectralAccessor) -> Iterator[str]:
    text = "the whole text, prompt and answer" if data.part == "whole" else "the answer's tokens"
    features = writer.count(len(data.measured), "features", "feature")
    yield (
        f"Which attention heads of {model_of(data)} ({size_of(writer, data)}) behave differently when its answer is "
        f"wrong: {features} of each head's attention map, compared between {answers_of(writer, data.counts)}, over {text}."
    )
    name, refused = data.data.get("name"), data.counts.get("refused", 0)
    if name:
        yield f"The questions are those of the data '{name}'."
    if refused:
        were = "was" if refused == 1 else "were"
        yield f"{writer.count(refused, 'count refused', 'refused answer')} {were} excluded."


def _axes(writer: Writer, data: SpectralAccessor) -> Iterator[str]:
    yield (
        f"Each cell is the p-value of a two-sided Mann-Whitney U test. q is the Benjamini-Hochberg q-value over the "
        "heads of one map. AUROC is that of the single "
        f"feature: above {writer.number(0.5, 'constant')} it is larger in wrong answers."
    )
    for key in data.pair:
        values, ends = data.map(key).values, []
        for name, level in RANGE.items():
            p = float(np.nanquantile(values, level))
            tiny = p < TINY
            ends.append(f"below {writer.number(TINY, 'constant')}" if tiny else writer.number(p, f"{name} p {key}"))
        single = np.isfinite(values).sum() == 1
        what = f"p {ends[1]}" if single else f"the smallest p is {ends[0]}, the median {ends[1]}, the largest {ends[2]}"
        yield f"{data.label(key)}: {what}."


# ---- each map -------------------------------------------------------------------------------------------------------


def _details(writer: Writer, data: SpectralAccessor) -> Iterator[str]:
    """One entry per map of the figure: how many heads differ, which most, in which direction, where, and among similar
    questions; then the other features in short.
    """
    for key in data.pair or data.keys[:1]:
        meaning = data.text(key, "definition")
        intro = f"{data.label(key)}{f' ({meaning})' if meaning else ''}:"
        if key not in data.measured:
            yield f"{intro} not measured."
            continue
        sentences = [f"{intro} {_shares(writer, data, key)}.", _chance(writer, data, key)]
        if data.finds(key):
            sentences += [part(writer, data, key) for part in (_strongest, _direction, _clusters)]
            sentences += [controls_words.within(writer, data, key), controls_words.same_length(writer, data, key)]
        sentences.append(narrator.missing_heads(writer, key, int(data.map(key).isnull().sum())))
        yield " ".join(filter(None, sentences))
    if others := [key for key in data.measured if key not in data.pair]:
        level = writer.number(ALPHA, "constant")
        yield f"Other features, heads with q < {level}: {listed(_in_short(writer, data, key) for key in others)}."
    if unmeasured := [data.label(key) for key in data.keys if key not in data.measured]:
        yield f"Not measured: {listed(unmeasured)}."


def _in_short(writer: Writer, data: SpectralAccessor, key: str) -> str:
    """A feature that the figure does not show: how many heads differ, how many among similar questions, and which most."""
    text = f"{data.label(key)} {writer.count(data.under(key, 'q').count, f'under q {key}')}"
    if data.has(key, "q_within"):
        text += f", {writer.count(data.under(key, 'q_within').count, f'under q_within {key}')} within strata"
    if not (data.finds(key) and data.has(key, "effect")):
        return text
    (head,) = maps.strongest(data.strength(key), 1)
    return f"{text} (most {head.name}, AUROC {writer.number(data.at(head, key, 'effect'), f'at effect {key} {head.name}')})"


def _shares(writer: Writer, data: SpectralAccessor, key: str) -> str:
    raw, total = data.under(key), writer.count(data.under(key).total, f"measured {key}", "head")
    text = (
        f"{writer.count(raw.count, f'under p {key}')} of {total} "
        f"({writer.percent(raw.share, f'under-percent p {key}')}) "
        f"{'has' if raw.count == 1 else 'have'} p < {writer.number(ALPHA, 'constant')}"
    )
    adjusted, level = data.under(key, "q"), writer.number(ALPHA, "constant")
    if not adjusted.count:
        return f"{text}, and none q < {level}"
    share = writer.percent(adjusted.share, f"under-percent q {key}")
    return f"{text}, and {writer.count(adjusted.count, f'under q {key}')} ({share}) q < {level}"


def _chance(writer: Writer, data: SpectralAccessor, key: str) -> str:
    mean, high, p = (data.level(key, name) for name in ("null_mean", "null_high", "null_p"))
    if not (math.isfinite(mean) and math.isfinite(high) and math.isfinite(p)):
        return ""
    levels = (
        f"with permuted labels {writer.percent(mean, f'level null_mean {key}')} of the heads have p < "
        f"{writer.number(ALPHA, 'constant')} on average, and at most {writer.percent(high, f'level null_high {key}')} "
        f"in 95 % of permutations (permutation p = {writer.number(p, f'level null_p {key}', digits=2)})"
    )
    if p < ALPHA:
        return f"That is more than chance: {levels}."
    rest = "The share is not significant, but single heads are." if data.finds(key) else "It is not significant."
    return f"That is not more than chance: {levels}. {rest}"


def _strongest(writer: Writer, data: SpectralAccessor, key: str) -> str:
    if not data.has(key, "effect"):
        return ""
    parts = []
    for head in maps.strongest(data.strength(key), 3):
        value, low, high = (data.at(head, key, f"effect{end}") for end in INTERVAL_ENDS)
        text = f"AUROC {writer.number(value, f'at effect {key} {head.name}')}"
        if math.isfinite(low) and math.isfinite(high):
            ends = [
                writer.number(end, f"at effect_{side} {key} {head.name}")
                for end, side in ((low, "low"), (high, "high"))
            ]
            text += f", {ends[0]} to {ends[1]}"
        way = "no direction" if value == 0.5 else f"{'larger' if value > 0.5 else 'smaller'} in wrong answers"
        parts.append(f"{head.name} ({text}, {way})")
    verb = "The head that differs most is" if len(parts) == 1 else "The heads that differ most are"
    return f"{verb} {listed(parts)}."


def _direction(writer: Writer, data: SpectralAccessor, key: str) -> str:
    if not (data.has(key, "effect") and data.under(key, "q").count):
        return ""
    effects = data.map(key, "effect").where(data.significant(key) > 0)
    larger, smaller = int((effects > 0.5).sum()), int((effects < 0.5).sum())
    total = writer.count(larger + smaller, f"directed {key}", "head")
    rule = f"with q < {writer.number(ALPHA, 'constant')}"
    if larger and smaller:
        return (
            f"Of the {total} {rule}, it is larger in wrong answers in {writer.count(larger, f'larger {key}')} and "
            f"smaller in {writer.count(smaller, f'smaller {key}')}."
        )
    which = f"the only head {rule}" if larger + smaller == 1 else f"all {total} {rule}"
    return f"In {which} it is {'larger' if larger else 'smaller'} in wrong answers."


def _clusters(writer: Writer, data: SpectralAccessor, key: str) -> str:
    """Boxes of neighbouring heads with q < 0.05; where these are widespread, of the strongest tenth."""
    share = data.under(key, "q")
    if share.count > 0 and share.share <= WIDESPREAD:
        values, level, rule = data.significant(key), 1.0, f"with q < {writer.number(ALPHA, 'constant')}"
        kind, total = "chosen", share.count
    elif data.has(key, "effect"):
        values = data.strength(key)
        level = float(np.nanquantile(values.values, TENTH))
        rule, kind, total = "in the strongest tenth by AUROC", "tenth", int((values >= level).sum())
    else:
        return ""
    smallest = max(MIN_CLUSTER, maps.cluster_by_chance(values, level) + 1)
    boxes = []
    for box in maps.clusters(values, level, smallest=smallest)[:BOXES]:
        where, source = narrator.box_of(writer, key, box)
        size, area = writer.count(box.size, f"{kind}-box {source}"), writer.count(box.area, f"box-area {source}")
        boxes.append(f"{where} ({size} of {area})")
    if not boxes:
        return ""
    count = writer.count(total, f"{kind}-count {key}", "head")
    return f"Of the {count} {rule}, neighbours form clusters, larger than in 95 % of shuffled maps, in {listed(boxes)}."


# ---- observations ---------------------------------------------------------------------------------------------------


def _observations(writer: Writer, data: SpectralAccessor) -> Iterator[str]:
    """The two maps of the figure compared; then depth, the feature that differs most, and the answer alone."""
    found = [key for key in data.pair if data.finds(key)]
    if data.pair and not found:
        names = listed((data.label(key) for key in data.pair), last="or")
        yield f"No sign that {names} differs between wrong and correct answers in any head."
    if len(found) == 2:
        yield _overlap(writer, data, *found)
        yield _agreement(writer, data, *found)
    for key in found:
        yield _depth(writer, data, key)
    yield _richest(writer, data)
    for key in data.pair:
        yield _answer(writer, data, key)


def _overlap(writer: Writer, data: SpectralAccessor, one: str, other: str) -> str:
    first, second = data.significant(one), data.significant(other)
    both, either = int(((first > 0) & (second > 0)).sum()), int(((first > 0) | (second > 0)).sum())
    if not either:
        return ""
    total = int((first.notnull() & second.notnull()).sum())
    expected = float((first > 0).sum()) * float((second > 0).sum()) / total if total else math.nan
    rule, in_one = f"q < {writer.number(ALPHA, 'constant')}", writer.count(either, f"either {one} {other}")
    by_chance = writer.number(expected, f"expected {one} {other}")
    if not both:
        return (
            f"The two maps single out different heads: none of the {in_one} with {rule} in one of them has it in both "
            f"(by chance {by_chance})."
        )
    return (
        f"{writer.count(both, f'both {one} {other}', 'head')} {'has' if both == 1 else 'have'} {rule} in both maps, of "
        f"{in_one} in at least one (Jaccard index {writer.fixed(both / either, f'jaccard {one} {other}')}; two independent "
        f"maps of these sizes would share {by_chance})."
    )


def _agreement(writer: Writer, data: SpectralAccessor, one: str, other: str) -> str:
    if len(data.layers) * len(data.heads) < narrator.MIN_HEADS:
        return ""
    rho = maps.rank_correlation(data.map(one), data.map(other))
    signed = maps.rank_correlation(data.map(one, "effect"), data.map(other, "effect"))
    if not (math.isfinite(rho) and math.isfinite(signed)):
        return ""
    return (
        f"Over the heads, the p-values of {data.label(one)} and {data.label(other)} have a rank correlation of "
        f"{writer.fixed(rho, f'correlation p {one} {other}')}, their signed effects one of "
        f"{writer.fixed(signed, f'correlation effect {one} {other}')}."
    )


def _depth(writer: Writer, data: SpectralAccessor, key: str) -> str:
    """The share of heads under 0.05 by thirds of the layers, and the layer with the largest effects."""
    if not data.under(key).count:
        return ""
    p = data.map(key)
    thirds = narrator.share_by_third(writer, key, (p < ALPHA).astype(float).where(p.notnull()))
    if thirds is None:
        return ""
    parts, effects = thirds[0], maps.depth_trend(data.strength(key)) if data.has(key, "effect") else None
    text = (
        f"{data.label(key)}: p < {writer.number(ALPHA, 'constant')} in {parts[0]} of the heads of the early, "
        f"{parts[1]} of the middle and {parts[2]} of the late third of the layers"
    )
    if effects is None:
        return f"{text}."
    return f"{text}; effects are largest in layer {writer.number(effects.peak_layer, f'peak {key}')}."


def _richest(writer: Writer, data: SpectralAccessor) -> str:
    """The feature with the most heads with q < 0.05."""
    counts = {key: data.under(key, "q").count for key in data.measured if data.has(key, "q")}
    if len(counts) < 3 or not any(counts.values()):
        return ""
    best = max(counts, key=lambda key: counts[key])
    if list(counts.values()).count(counts[best]) > 1:
        return ""
    share = writer.percent(data.under(best, "q").share, f"under-percent q {best}")
    return (
        f"Of the {writer.count(len(counts), 'features', 'feature')} tested, {data.label(best)} differs in the most "
        f"heads ({share} with q < {writer.number(ALPHA, 'constant')})."
    )


def _answer(writer: Writer, data: SpectralAccessor, key: str) -> str:
    if data.part == "answer" or not data.has(key, "p", "answer"):
        return ""
    alone, whole = data.under(key, "p", "answer"), data.under(key)
    p, chance = data.level(key, "null_p", "answer"), ""
    if math.isfinite(p):
        more = "more" if p < ALPHA else "not more"
        chance = f", {more} than chance (permutation p = {writer.number(p, f'answer-level null_p {key}', digits=2)})"
    return (
        f"On the answer's tokens alone {writer.percent(alone.share, f'answer-percent p {key}')} of the heads have p < "
        f"{writer.number(ALPHA, 'constant')} for {data.label(key)}{chance}; on the whole text it is "
        f"{writer.percent(whole.share, f'under-percent p {key}')}."
    )


# ---- caveats and the short form -------------------------------------------------------------------------------------


def _caveats(writer: Writer, data: SpectralAccessor) -> Iterator[str]:
    rarer = min(data.counts.get(kind, SMALL_SAMPLE) for kind in ("wrong", "correct"))
    if rarer < SMALL_SAMPLE:
        yield (
            f"The rarer class of answers has only {writer.count(rarer, 'rarer')}: small differences are missed, and "
            "the effects that are found tend to be overestimated."
        )
    if tested := sum(data.under(key).total for key in data.measured):
        yield (
            f"With {writer.count(tested, 'tested', 'test')}, about {writer.count(round(ALPHA * tested), 'chance')} would "
            f"have p < {writer.number(ALPHA, 'constant')} by chance alone; heads are not independent, which the permuted "
            "labels account for."
        )
    for caveat in (controls_words.question_caveat, controls_words.power_caveat, controls_words.length_caveat):
        yield caveat(writer, data)
    if any(key in ("laplacian", "attention") for key in data.measured):
        yield "Averaging the ten largest eigenvalues into one number is our choice."
    if not data.parameters.get("judge"):
        yield "Answers were labelled by comparing strings, so some labels are mistaken."
    yield "A head that differs need not be a cause of the error."


# ---- anomalies and interpretation -----------------------------------------------------------------------------------


def _anomalies(writer: Writer, data: SpectralAccessor) -> Iterator[str]:
    """Heads whose effect is unlike that of their neighbours, and significant heads that go against the direction of the map."""
    pair = [key for key in data.pair if data.has(key, "effect")]
    yield from narrator.anomalies(
        writer, [NamedMap(key, f"AUROC of {data.label(key)}", data.map(key, "effect")) for key in pair]
    )
    for key in pair:
        effects = data.map(key, "effect").where(data.significant(key) > 0)
        larger, smaller = int((effects > 0.5).sum()), int((effects < 0.5).sum())
        few, way = min(larger, smaller), "larger" if larger < smaller else "smaller"
        if 0 < few <= MINORITY * (larger + smaller):
            heads = maps.strongest(effects if way == "larger" else -effects, NAMED)[:few]
            rule = f"q < {writer.number(ALPHA, 'constant')}"
            yield (
                f"Against the direction of {data.label(key)}, {writer.count(few, f'{way} {key}', 'head')} with {rule} "
                f"{'is' if few == 1 else 'are'} {way} in wrong answers: {listed(head.name for head in heads)}"
                f"{' and others' if few > len(heads) else ''}."
            )


def _interpretation(writer: Writer, data: SpectralAccessor) -> Iterator[str]:
    """Do heads reveal errors, or what kind of question it is?"""
    if not data.pair:
        return
    found = [key for key in data.pair if data.finds(key)]
    level = writer.number(ALPHA, "constant")
    if not found:
        names = listed(data.label(key) for key in data.pair)
        like = f"no sign here that attention reveals errors: {names} are not shown to differ in any head"
    else:
        most = max(found, key=lambda key: data.under(key, "q").share)
        share = writer.percent(data.under(most, "q").share, f"under-percent q {most}")
        wide = data.under(most, "q").share > WIDESPREAD
        what = (
            "attention over the whole text differs when the answer is wrong"
            if wide
            else "some heads attend differently when the answer is wrong"
        )
        like = f"{what} ({share} of the heads with q < {level} for {data.label(most)})"
    yield from reading(like, controls_words.against(writer, data, found), controls_words.decide(writer, data))


def _headline(writer: Writer, data: SpectralAccessor) -> str:
    if not data.pair:
        return f"{writer.count(len(data.measured), 'features', 'map')} of p-values for {model_of(data)}."
    level, total = writer.number(ALPHA, "constant"), data.under(data.pair[0]).total
    counts = listed(
        f"{data.label(key)} in {writer.count(data.under(key, 'q').count, f'under q {key}')}" for key in data.pair
    )
    heads = writer.count(total, f"measured {data.pair[0]}", "head")
    first = f"Between wrong and correct answers of {model_of(data)}, q < {level} holds for {counts} of {heads}"
    return f"{first}{controls_words.headline(writer, data)}."


describe = Narrative(
    "Which heads differ between wrong and correct answers",
    SpectralAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
    anomalies=_anomalies,
    interpretation=_interpretation,
)
