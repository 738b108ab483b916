"""The patterns study in words: what do the attention maps look like, and what changed between two models?

All thresholds are constants below and stated in the sentences. Every number is recorded in `Description.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

from headwise.core.dims import CONDITION, EXAMPLE, FEATURE, HEAD, LAYER, STATISTIC
from headwise.describe import maps
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import Accessor, model_of, others_as_large, size_of, with_others
from headwise.describe.writer import Writer, listed, significant
from headwise.describe.writer import percent as share_text

LEVEL, HALF = 0.05, 0.5
FULL = 0.999  # rows that sum to less have weight nowhere


class Estimate(NamedTuple):
    """A mean over prompts and its 95 % interval."""

    value: float
    low: float
    high: float


class PatternsAccessor(Accessor):
    """The parts of a patterns study by name. Maps are (layer, head); condition 0 is the model, 1 the reference."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self.names = [str(name) for name in dataset["name"].values]
        self.keys = [str(key) for key in dataset[STATISTIC].values]
        self.two = dataset.sizes[CONDITION] == 2
        self.prompts = dataset.sizes[EXAMPLE]
        self.tokens = [str(token) for token in dataset["token_text"].values]
        self.total = int(self.value("peak").notnull().sum())  # heads

    @property
    def gated(self) -> bool:
        """Whether rows of a condition may sum to less than 1."""
        return any(self.whole("mass", index).value < FULL for index in range(len(self.names)))

    @property
    def tests(self) -> int:
        """How many cells were tested."""
        return int(self.dataset["q"].notnull().sum())

    def value(self, key: str, condition: int = 0, variable: str = "value") -> xr.DataArray:
        """A number of every head."""
        return self.dataset[variable].isel({CONDITION: condition}).sel({STATISTIC: key}).astype(float)

    def change(self, key: str, variable: str = "change") -> xr.DataArray:
        """How a number of every head changed, or its test."""
        return self.dataset[variable].sel({STATISTIC: key}).astype(float)

    def clear(self, key: str) -> xr.DataArray:
        """Whether the interval of a head's mean change excludes 0: the test is of ranks, the interval of the mean."""
        return (self.change(key, "change_low") > 0) | (self.change(key, "change_high") < 0)

    def map(self, variable: str) -> xr.DataArray:
        """A map between the two conditions, such as "similarity"."""
        return self.dataset[variable].astype(float)

    def at(self, head: maps.HeadValue, values: xr.DataArray) -> float:
        return float(values.sel({LAYER: head.layer, HEAD: head.head}))

    def whole(self, feature: str, condition: int = 0) -> Estimate:
        """A number of all heads together."""
        one = self.dataset.isel({CONDITION: condition}).sel({FEATURE: feature})
        return Estimate(*(float(one[f"whole{end}"]) for end in ("", "_low", "_high")))

    def whole_change(self, feature: str) -> Estimate:
        one = self.dataset.sel({FEATURE: feature})
        return Estimate(*(float(one[f"whole_change{end}"]) for end in ("", "_low", "_high")))

    def whole_p(self, feature: str) -> float:
        return float(self.dataset["whole_p"].sel({FEATURE: feature}))

    def between(self, name: str) -> Estimate:
        """A number of all heads between the two conditions: similarity, other, dropped, gained, kl."""
        return Estimate(*(float(self.dataset[f"whole_{name}{end}"]) for end in ("", "_low", "_high")))

    def uniform(self, key: str) -> float:
        """The mean level of a head with uniform attention."""
        return float(np.nanmean(self.dataset["uniform"].sel({STATISTIC: key}).values))

    def dominant(self, condition: int = 0) -> xr.DataArray:
        """Whether over half of a head's weight lies on the diagonal band."""
        return self.value("diagonal", condition) > HALF

    def moved(self, off: bool = True) -> list[maps.HeadValue]:
        """Heads that were dominant on the diagonal and no longer are (or the reverse), with q < 0.05; largest change first."""
        before, after = (self.dominant(0), self.dominant(1)) if off else (self.dominant(1), self.dominant(0))
        sure = before & ~after & (self.change("diagonal", "q") < LEVEL)
        change = self.change("diagonal")
        return maps.strongest((-change if off else change).where(sure), self.total)

    def changed(self, key: str) -> int:
        """How many heads changed, q < 0.05."""
        return int((self.change(key, "q") < LEVEL).sum())

    def peaked(self, condition: int = 0) -> int:
        """How many heads have an off-diagonal peak in at least half of the prompts."""
        return int((self.dataset["peaked"].isel({CONDITION: condition}) >= HALF).sum())

    def label(self, key: str) -> str:
        return str(self.dataset["label"].sel({STATISTIC: key}).values)

    def definition(self, key: str) -> str:
        return str(self.dataset["definition"].sel({STATISTIC: key}).values)


SHOWN = 3  # heads named in a sentence
TINY = 0.001  # p and q below are not written out


def _details(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    """One entry per statistic."""
    for key in patterns.keys:
        entry = f"{patterns.label(key)} ({patterns.definition(key)}): {_levels(writer, patterns, key)}."
        sentences = [entry, _strongest(writer, patterns, key)]
        if patterns.two:
            sentences.append(_changes(writer, patterns, key))
        yield " ".join(filter(None, sentences))


def estimate(writer: Writer, found: Estimate, of: str, *, percent: bool = False) -> str:
    """A value with its interval: "0.149 (0.145 to 0.152)"; without one where it is missing or rounds to the value."""
    write, text_of = (writer.percent, share_text) if percent else (writer.number, significant)
    text = write(found.value, of)
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return text
    if text_of(found.low) == text_of(found.value) == text_of(found.high):
        return text
    return f"{text} ({write(found.low, f'low {of}')} to {write(found.high, f'high {of}')})"


def surely(writer: Writer, p: float, of: str, sign: str = "p") -> str:
    """A p- or q-value; very small ones as an upper bound."""
    if p < TINY:
        return f"{sign} < {writer.number(TINY, 'constant')}"
    return f"{sign} = {writer.number(p, of, digits=2)}"


def _levels(writer: Writer, patterns: PatternsAccessor, key: str) -> str:
    parts = [estimate(writer, patterns.whole(key), f"whole 0 {key}")]
    if patterns.two:
        parts.append(f"{estimate(writer, patterns.whole(key, 1), f'whole 1 {key}')} in {patterns.names[1]}")
    level = writer.number(patterns.uniform(key), f"uniform {key}")
    return f"over all heads {listed(parts)}; a uniform head has {level}"


def _strongest(writer: Writer, patterns: PatternsAccessor, key: str) -> str:
    """The heads with the largest values, where heads differ."""
    values = patterns.value(key)
    if key in ("open", "mass") or patterns.total < 2 * SHOWN:
        return ""
    heads = maps.strongest(values, SHOWN)
    named = [f"{head.name} ({writer.number(head.value, f'at value {key} {head.name}')})" for head in heads]
    return f"Largest in {with_others(writer, named, others_as_large(values, heads), f'tied {key}')}."


def _changes(writer: Writer, patterns: PatternsAccessor, key: str) -> str:
    """How many heads changed, and which most."""
    count = patterns.changed(key)
    total = writer.count(int(patterns.change(key, "q").notnull().sum()), f"tested {key}", "head")
    level = writer.number(LEVEL, "constant")
    if not count:
        return f"None of {total} changed (q < {level})."
    changed = patterns.change(key).where(patterns.change(key, "q") < LEVEL)
    up = writer.count(int((changed > 0).sum()), f"up {key}")
    text = f"{writer.count(count, f'changed {key}')} of {total} changed (q < {level}), {up} of them upwards."
    clear = abs(changed).where(patterns.clear(key))
    heads = maps.strongest(clear, SHOWN)
    if not heads:
        return f"{text} In each of them the interval of the mean change includes zero."
    named = with_others(
        writer, [_changed(writer, patterns, key, head) for head in heads], others_as_large(clear, heads),
        f"tied-change {key}",
    )  # fmt: skip
    few = writer.count(int(clear.notnull().sum()), f"clear {key}")
    whose = f" among the {few} whose interval of the mean change excludes zero"
    whose = "" if int(clear.notnull().sum()) == count else whose
    return f"{text} Largest changes{whose}: {named}."


def _changed(writer: Writer, patterns: PatternsAccessor, key: str, head: maps.HeadValue) -> str:
    ends = [patterns.at(head, patterns.change(key, f"change{end}")) for end in ("", "_low", "_high")]
    of = f"at change {key} {head.name}"
    value, low, high = (
        writer.number(end, f"{name}{of}") for end, name in zip(ends, ("", "low ", "high "), strict=True)
    )
    return f"{head.name} ({value}, {low} to {high})"


MAX_NAMED = 8


def _observations(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    """One model first, then what changed."""
    for condition in range(len(patterns.names)):
        yield _shape(writer, patterns, condition)
    if patterns.two:
        for say in (_likeness, _moved, _edges, _overall, _output):
            yield say(writer, patterns)


def _shape(writer: Writer, patterns: PatternsAccessor, condition: int) -> str:
    """How the maps of one condition look as a whole."""
    dominant = int(patterns.dominant(condition).sum())
    total = writer.count(patterns.total, "total", "head")
    share = writer.percent(dominant / patterns.total, f"dominant-percent {condition}")
    text = (
        f"In {patterns.names[condition]}, {writer.count(dominant, f'dominant {condition}')} of {total} ({share}) "
        f"{'has' if dominant == 1 else 'have'} over half of {'its' if dominant == 1 else 'their'} weight on the diagonal band"
    )
    if 0 < dominant <= MAX_NAMED:
        heads = maps.strongest(patterns.value("diagonal", condition).where(patterns.dominant(condition)), dominant)
        text += f" ({listed(head.name for head in heads)})"
    peak, first = (
        writer.number(patterns.whole(key, condition).value, f"whole {condition} {key}") for key in ("peak", "first")
    )
    active = writer.percent(patterns.whole("active", condition).value, f"whole-percent {condition} active")
    opened = writer.percent(patterns.whole("open", condition).value, f"whole-percent {condition} open")
    many = patterns.peaked(condition)
    peaked = f"{writer.count(many, f'peaked {condition}', 'head')} {'has' if many == 1 else 'have'}"
    bar = writer.number(float(patterns.parameters.get("peak", 0.3)), "constant")
    edge = writer.number(float(patterns.parameters.get("active", 0.01)), "constant")
    return (
        f"{text}; a row's largest weight is {peak} on average, and {first} lies on the first token. {active} of the visible "
        f"pairs have a weight over {edge}, and {opened} any weight. {peaked} a weight over {bar} off the diagonal and off the "
        "first token in at least half of the prompts."
    )


def _likeness(writer: Writer, patterns: PatternsAccessor) -> str:
    """Similarity, its control, and the heads that changed most."""
    alike = estimate(writer, patterns.between("similarity"), "between similarity")
    text = f"The maps of a head in the two models have a similarity of {alike} on average (1: the same, 0: disjoint)"
    other = patterns.between("other")
    if other.value == other.value:
        text += f"; with the next head of the layer it would be {writer.number(other.value, 'between other')}"
    elsewhere = estimate(writer, patterns.between("elsewhere"), "between elsewhere")
    text += f". With the weight on the first token counted as no attention in both, it is {elsewhere}"
    heads = maps.strongest(patterns.map("similarity"), SHOWN, by="smallest")
    named = [f"{head.name} ({writer.fixed(head.value, f'at similarity {head.name}')})" for head in heads]
    tied = others_as_large(patterns.map("similarity"), heads)
    more = f", and {writer.count(tied, 'tied similarity', 'other')} as much as the last" if tied else ""
    return (
        f"{text}. The {'head that changed' if len(named) == 1 else 'heads that changed'} most: {listed(named)}{more}."
    )


def _moved(writer: Writer, patterns: PatternsAccessor) -> str:
    """Heads that left the diagonal, and those that came to it."""
    level, half = writer.number(LEVEL, "constant"), writer.percent(HALF, "constant")
    rule = f"over {half} of the weight on the band in one model and not in the other, q < {level}"
    off, onto = patterns.moved(True), patterns.moved(False)
    if not off and not onto:
        return f"No head moved off the diagonal or onto it ({rule})."
    return f"{_movers(writer, off, 'off')} moved off the diagonal and {_movers(writer, onto, 'onto')} onto it ({rule})."


def _movers(writer: Writer, heads: list[maps.HeadValue], way: str) -> str:
    count = writer.count(len(heads), f"moved {way}", "head")
    names = [head.name for head in heads]
    named = listed(names) if len(names) <= MAX_NAMED else f"{', '.join(names[:MAX_NAMED])}, ..."
    return f"{count} ({named})" if heads else count


def _edges(writer: Writer, patterns: PatternsAccessor) -> str:
    """Connections dropped and gained."""
    edge = writer.number(float(patterns.parameters.get("active", 0.01)), "constant")
    dropped, gained = (
        estimate(writer, patterns.between(name), f"between-percent {name}", percent=True)
        for name in ("dropped", "gained")
    )
    return (
        f"Of the connections that are active (weight over {edge}) in {patterns.names[0]}, {dropped} are not in "
        f"{patterns.names[1]}; of those active in {patterns.names[1]}, {gained} are new."
    )


def _overall(writer: Writer, patterns: PatternsAccessor) -> str:
    """The numbers of all heads together, before and after."""
    words = {"dominant": "the share of diagonal heads", "peak": "the peak", "first": "the weight on the first token",
             "entropy": "the entropy", "active": "the share of active edges", "mass": "the row sum"}  # fmt: skip
    named: list[str] = []
    doubted: list[str] = []
    for feature, name in words.items():
        p, found = patterns.whole_p(feature), patterns.whole_change(feature)
        if p < LEVEL:
            change = estimate(writer, found, f"whole-change {feature}")
            sure = found.low > 0 or found.high < 0
            (named if sure else doubted).append(f"{name} by {change}, {surely(writer, p, f'whole-p {feature}')}")
    text = f"Over all heads, paired over prompts, these changed: {'; '.join(named)}."
    if not named:
        level = writer.number(LEVEL, "constant")
        text = f"No number of all heads together changed significantly (p < {level}, paired over prompts)."
    if doubted:
        text += f" Significant by the rank test, but with a mean whose interval includes 0: {'; '.join(doubted)}."
    return text


def _output(writer: Writer, patterns: PatternsAccessor) -> str:
    """Loss and divergence."""
    before, after = (writer.number(patterns.whole("loss", index).value, f"whole {index} loss") for index in (0, 1))
    change = estimate(writer, patterns.whole_change("loss"), "whole-change loss")
    sure = surely(writer, patterns.whole_p("loss"), "whole-p loss")
    kl = estimate(writer, patterns.between("kl"), "between kl")
    return (
        f"The mean next-token loss on the same prompts is {before} nats in {patterns.names[0]} and {after} in "
        f"{patterns.names[1]}: a change of {change}, {sure}. The next-token distributions are {kl} nats apart "
        "(Kullback-Leibler divergence per token)."
    )


MIN_PROMPTS = 30  # prompts


def _overview(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    prompts = writer.count(patterns.prompts, "prompts", "prompt")
    tokens, data = patterns.parameters.get("tokens"), patterns.data
    length = f" of {writer.count(int(tokens), 'tokens')} tokens each" if tokens else ""
    of = f", cut from the data '{data['name']}'" if "name" in data else ""
    reference = f", next to those of {patterns.names[1]} on the same tokens" if patterns.two else ""
    yield (
        f"What the attention maps of {model_of(patterns)} ({size_of(writer, patterns)}) look like{reference}: numbers of every "
        f"head's map over {prompts}{length}{of}."
    )
    text = patterns.parameters.get("prompt") or "".join(patterns.tokens)
    shown = writer.count(len(patterns.tokens), "shown", "token")
    cut = text if len(text) <= 100 else f"{text[:99]}…"
    yield f"The maps that are drawn are of one prompt, '{cut}' ({shown})."


def _axes(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    yield (
        "Each tile is the map of one head, named by layer and head: rows are query tokens, from the top, columns key "
        "tokens, from the left. White is no weight, dark blue the most; hatched cells are masked."
    )
    rows = "The rows of a gated model may sum to less than 1, or to nothing: the rest counts as no attention. "
    yield (
        f"All numbers leave out the first token's own row. {rows if patterns.gated else ''}In brackets after a mean is its "
        "95 % interval over prompts."
    )
    if patterns.two:
        yield (
            "A change is the second model minus the first, prompt by prompt, tested by Wilcoxon's signed-rank test; q is the "
            "Benjamini-Hochberg q-value over the heads. Heads are named only if the test is significant and the "
            "interval of the mean change excludes zero. Similarity is 1 minus the Jensen-Shannon divergence of the rows."
        )


def _caveats(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    texts = patterns.data.get("texts")
    if texts and texts < patterns.prompts:
        cut, of = writer.count(patterns.prompts, "prompts", "prompt"), writer.count(int(texts), "texts", "text")
        yield (
            f"The {cut} were cut from {of}, so they are not independent: intervals are a little too narrow and "
            "p-values a little too small."
        )
    if patterns.prompts < MIN_PROMPTS:
        yield f"Fewer than {writer.number(MIN_PROMPTS, 'constant')} prompts: small changes may be missed."
    yield (
        "The prompts are short: long-range heads have few tokens to attend to, and the share of pairs that are active "
        "depends on the length."
    )
    yield (
        "Weight on the first token is common in decoder models (an attention sink for unused attention), and says little about "
        "that token."
    )
    if patterns.gated:
        yield (
            "A model with gates needs no sink, since a row may be empty: its weight on the first token can vanish "
            "without any loss. So that weight, and the statistics that depend on it (peak, entropy), cannot be compared fairly "
            "between a dense and a sparse model."
        )
    if patterns.two:
        tests, level = writer.count(patterns.tests, "tests", "test"), writer.number(LEVEL, "constant")
        yield (
            f"With {tests}, q < {level} bounds the share of false findings within each number, not over all of them; and a "
            "significant change can be small: check its size first."
        )
    yield "A weight shows where a head attends, not what it does: loss and divergence show what changed in the output."


def _headline(writer: Writer, patterns: PatternsAccessor) -> str:
    dominant = writer.percent(float(patterns.dominant(0).sum()) / patterns.total, "dominant-percent 0")
    reference = f" and {patterns.names[1]}" if patterns.two else ""
    first = (
        f"The attention maps of {model_of(patterns)} ({size_of(writer, patterns)}){reference}: {dominant} of the heads attend "
        "mostly along the diagonal"
    )
    active = writer.percent(patterns.whole("active").value, "whole-percent 0 active")
    if not patterns.two:
        return f"{first}, and {active} of the visible pairs are active."
    dropped = writer.percent(patterns.between("dropped").value, "between-percent dropped")
    after = writer.percent(patterns.whole("active", 1).value, "whole-percent 1 active")
    found = patterns.whole_change("loss")
    loss = estimate(writer, found, "whole-change loss")
    sure = found.low > 0 or found.high < 0
    changes = f"the loss changes by {loss} nats" if sure else f"the loss does not change significantly: by {loss} nats"
    return (
        f"{first}. {active} of the visible pairs are active in the one and {after} in the other; {dropped} of the "
        f"connections are dropped, and {changes}."
    )


describe = Narrative(
    "What the attention maps look like",
    PatternsAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
