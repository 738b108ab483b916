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
from headwise.core.schema import INTERVAL_ENDS
from headwise.describe import maps, narrator
from headwise.describe.narrative import Narrative, reading
from headwise.describe.phrases import Accessor, model_of, others_as_large, size_of, with_others
from headwise.describe.writer import Writer, listed, significant
from headwise.describe.writer import percent as share_text
from headwise.figures.head_maps import NamedMap
from headwise.stats.multiple_testing import ALPHA

HALF = 0.5
SHAPES = ("diagonal", "first", "peak", "active")  # statistics that a reader sees in the tiles
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
        return Estimate(*(float(one[f"whole{end}"]) for end in INTERVAL_ENDS))

    def whole_change(self, feature: str) -> Estimate:
        one = self.dataset.sel({FEATURE: feature})
        return Estimate(*(float(one[f"whole_change{end}"]) for end in INTERVAL_ENDS))

    def whole_p(self, feature: str) -> float:
        return float(self.dataset["whole_p"].sel({FEATURE: feature}))

    def between(self, name: str) -> Estimate:
        """A number of all heads between the two conditions: similarity, other, dropped, gained, kl."""
        return Estimate(*(float(self.dataset[f"whole_{name}{end}"]) for end in INTERVAL_ENDS))

    def uniform(self, key: str) -> float:
        """The mean level of a head with uniform attention."""
        return float(np.nanmean(self.dataset["uniform"].sel({STATISTIC: key}).values))

    def dominant(self, condition: int = 0) -> xr.DataArray:
        """Whether over half of a head's weight lies on the diagonal band."""
        return self.value("diagonal", condition) > HALF

    def moved(self, off: bool = True) -> list[maps.HeadValue]:
        """Heads that were dominant on the diagonal and no longer are (or the reverse), with q < 0.05; largest change first."""
        before, after = (self.dominant(0), self.dominant(1)) if off else (self.dominant(1), self.dominant(0))
        sure = before & ~after & (self.change("diagonal", "q") < ALPHA)
        change = self.change("diagonal")
        return maps.strongest((-change if off else change).where(sure), self.total)

    def named(self, key: str) -> NamedMap:
        """A statistic of the model as a map."""
        return NamedMap(key, self.label(key), self.value(key).transpose(LAYER, HEAD))

    def changed(self, key: str) -> int:
        """How many heads changed, q < 0.05."""
        return int((self.change(key, "q") < ALPHA).sum())

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
        parts.append(f"{estimate(writer, patterns.whole(key, 1), f'whole 1 {key}')} in the second")
    level = writer.number(patterns.uniform(key), f"uniform {key}")
    values = patterns.value(key).values
    low, high = (
        writer.number(float(end(values)), f"{name} {key}") for name, end in (("min", np.nanmin), ("max", np.nanmax))
    )
    between = f", heads {low} to {high}" if patterns.total > 1 else ""
    return f"over all heads {listed(parts)}{between}, a uniform head {level}"


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
    if not count:
        return "None changed."
    changed = patterns.change(key).where(patterns.change(key, "q") < ALPHA)
    up = writer.count(int((changed > 0).sum()), f"up {key}")
    text = f"{writer.count(count, f'changed {key}')} changed, {up} upwards"
    clear = abs(changed).where(patterns.clear(key))
    heads = maps.strongest(clear, SHOWN)
    if not heads:
        return f"{text}; in each the interval of the mean change includes zero."
    named = with_others(
        writer, [_changed(writer, patterns, key, head) for head in heads], others_as_large(clear, heads),
        f"tied-change {key}",
    )  # fmt: skip
    few = writer.count(int(clear.notnull().sum()), f"clear {key}")
    whose = "" if int(clear.notnull().sum()) == count else f" of the {few} whose interval excludes zero"
    return f"{text}; most{whose} {named}."


def _changed(writer: Writer, patterns: PatternsAccessor, key: str, head: maps.HeadValue) -> str:
    ends = [patterns.at(head, patterns.change(key, f"change{end}")) for end in INTERVAL_ENDS]
    of = f"at change {key} {head.name}"
    value, low, high = (
        writer.number(end, f"{name}{of}") for end, name in zip(ends, ("", "low ", "high "), strict=True)
    )
    return f"{head.name} ({value}, {low} to {high})"


MAX_NAMED = 8


def _observations(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    """One model first, then what changed."""
    yield _shape(writer, patterns)
    if patterns.total >= narrator.MIN_HEADS:
        yield narrator.boxes(writer, [patterns.named(key) for key in SHAPES if key in patterns.keys])
    if patterns.two:
        for say in (_likeness, _moved, _edges, _overall, _output):
            yield say(writer, patterns)


def _shape(writer: Writer, patterns: PatternsAccessor) -> str:
    """How the maps look as a whole: local heads, and heads with a peak elsewhere."""
    total = writer.count(patterns.total, "total", "head")
    local, far = [], []
    for condition, name in enumerate(patterns.names):
        dominant, many = int(patterns.dominant(condition).sum()), patterns.peaked(condition)
        share = writer.percent(dominant / patterns.total, f"dominant-percent {condition}")
        where = f" in {name}" if patterns.two else ""
        heads = ""
        if 0 < dominant <= MAX_NAMED:
            strongest = maps.strongest(
                patterns.value("diagonal", condition).where(patterns.dominant(condition)), dominant
            )
            heads = f": {listed(head.name for head in strongest)}"
        local.append(f"{writer.count(dominant, f'dominant {condition}')} ({share}){where}{heads}")
        far.append(f"{writer.count(many, f'peaked {condition}')}{where}")
    bar = writer.number(float(patterns.parameters.get("peak", 0.3)), "constant")
    return (
        f"Of {total}, those with over half of their weight on the diagonal band: {listed(local)}; with a weight over {bar} off "
        f"the diagonal and off the first token in at least half of the prompts: {listed(far)}."
    )


def _likeness(writer: Writer, patterns: PatternsAccessor) -> str:
    """Similarity, its control, and the heads that changed most."""
    alike = estimate(writer, patterns.between("similarity"), "between similarity")
    text = f"A head's maps in the two models have a similarity of {alike} (1: the same, 0: disjoint)"
    other = patterns.between("other")
    if other.value == other.value:
        text += f", with the next head of the layer {writer.number(other.value, 'between other')}"
    elsewhere = estimate(writer, patterns.between("elsewhere"), "between elsewhere")
    text += f", and without the first token {elsewhere}"
    heads = maps.strongest(patterns.map("similarity"), SHOWN, by="smallest")
    named = [f"{head.name} ({writer.fixed(head.value, f'at similarity {head.name}')})" for head in heads]
    tied = others_as_large(patterns.map("similarity"), heads)
    more = f", and {writer.count(tied, 'tied similarity', 'other')} as much as the last" if tied else ""
    return (
        f"{text}. The {'head that changed' if len(named) == 1 else 'heads that changed'} most: {listed(named)}{more}."
    )


def _moved(writer: Writer, patterns: PatternsAccessor) -> str:
    """Heads that left the diagonal, and those that came to it."""
    level, half = writer.number(ALPHA, "constant"), writer.percent(HALF, "constant")
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
        f"Of the first model's active connections (weight over {edge}), {dropped} are not in the second; of the second's, "
        f"{gained} are new."
    )


def _overall(writer: Writer, patterns: PatternsAccessor) -> str:
    """The numbers of all heads together, before and after."""
    words = {"dominant": "the share of diagonal heads", "peak": "the peak", "first": "the weight on the first token",
             "entropy": "the entropy", "active": "the share of active edges", "mass": "the row sum"}  # fmt: skip
    named: list[str] = []
    doubted: list[str] = []
    for feature, name in words.items():
        p, found = patterns.whole_p(feature), patterns.whole_change(feature)
        if p < ALPHA:
            change = estimate(writer, found, f"whole-change {feature}")
            sure = found.low > 0 or found.high < 0
            (named if sure else doubted).append(f"{name} by {change}, {surely(writer, p, f'whole-p {feature}')}")
    text = f"Over all heads, paired over prompts, these changed: {'; '.join(named)}."
    if not named:
        level = writer.number(ALPHA, "constant")
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
        f"The next-token loss is {before} nats and {after} in the second: a change of {change}, {sure}. The next-token "
        f"distributions are {kl} nats apart (Kullback-Leibler)."
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
    yield "In a tile, rows are query tokens, from the top, and columns key tokens, from the left. White is no weight."
    rows = "The rows of a gated model may sum to less than 1, or to nothing: the rest counts as no attention. "
    yield (
        f"All numbers leave out the first token's own row. {rows if patterns.gated else ''}In brackets after a mean is its "
        "95 % interval over prompts."
    )
    if patterns.two:
        tested = writer.count(int(patterns.change("peak", "q").notnull().sum()), "tested peak", "head")
        yield (
            f"A change is the second model ({patterns.names[1]}) minus the first, paired by prompt. Of {tested}, those count "
            f"as changed that have q < {writer.number(ALPHA, 'constant')} (Wilcoxon, Benjamini-Hochberg over heads); those are "
            "named whose interval excludes zero, too. Similarity is 1 minus the Jensen-Shannon divergence of the rows."
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
    yield "Weight on the first token is common (a sink for unused attention), and says little about that token."
    if patterns.gated:
        yield (
            "A model with gates needs no sink, since a row may be empty, so that weight and what depends on it (peak, entropy) "
            "cannot be compared fairly between a dense and a sparse model."
        )
    if patterns.two:
        tests, level = writer.count(patterns.tests, "tests", "test"), writer.number(ALPHA, "constant")
        yield (
            f"With {tests}, q < {level} bounds the share of false findings within each number, not over all of them; and a "
            "significant change can be small: check its size first."
        )


def _anomalies(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    """Heads whose map is unlike those around them; between two models, heads that changed where others did not."""
    yield from narrator.anomalies(writer, [patterns.named(key) for key in SHAPES if key in patterns.keys])
    if patterns.two:
        apart = NamedMap(
            "similarity", "similarity of the two models", patterns.map("similarity").transpose(LAYER, HEAD)
        )
        found = [one for one in maps.outliers(apart.values) if one.distance < 0]
        if patterns.total >= narrator.MIN_HEADS and found:
            name, around = found[0].head.name, writer.number(found[0].around, f"around similarity {found[0].head.name}")
            value = writer.number(found[0].head.value, f"at similarity {name}")
            count = writer.count(len(found), "anomalies-below similarity", "head")
            yield f"By the same rule {count} changed far more than the heads around, most {name} ({value}, around it {around})."


def _interpretation(writer: Writer, patterns: PatternsAccessor) -> Iterator[str]:
    """Of one model: local or resting heads. Of two: did the second one drop edges, or rearrange its heads?"""
    decide = (
        "compare the circuits of a task in both models (study circuits)"
        if patterns.two
        else ("ablate the heads that are named (study causal)")
    )
    if not patterns.two:
        first = writer.number(patterns.whole("first").value, "whole 0 first")
        share = writer.percent(float(patterns.dominant(0).sum()) / patterns.total, "dominant-percent 0")
        rest = patterns.whole("first").value > HALF
        like = (
            "most of the attention rests on the first token"
            if rest
            else "most of the attention goes to tokens of the text"
        )
        yield from reading(
            f"{like} ({first} on the first token), and {share} of the heads look at the token itself or the one before",
            [
                "short prompts leave long-range heads few tokens to attend to",
                "weights show where a head attends, not what it does",
            ],
            decide,
        )
        return
    dropped, alike = patterns.between("dropped").value, patterns.between("elsewhere")
    share = writer.percent(dropped, "between-percent dropped")
    elsewhere = writer.number(alike.value, "between elsewhere")
    other = patterns.between("other").value
    same = alike.value > other if other == other else alike.value > HALF
    what = (
        "the second model keeps what each head looks at and drops edges"
        if same
        else "the second model rearranges its heads"
    )
    like = (
        f"{what} ({share} of the active edges are gone; without the first token a head's two maps have a similarity of "
    )
    like += elsewhere
    like += (
        f", and {writer.number(other, 'between other')} with the next head, first token included)"
        if other == other
        else ")"
    )
    against = ["weights show where a head attends, not what it does"]
    change = patterns.whole_change("loss")
    if change.low > 0:
        against.append(
            f"the loss rises by {estimate(writer, change, 'whole-change loss')}, so what was dropped was not all idle"
        )
    if patterns.gated:
        against.append("a gated model needs no sink, so weight that leaves the first token is no change of function")
    yield from reading(like, against, decide)


def _headline(writer: Writer, patterns: PatternsAccessor) -> str:
    dominant = writer.percent(float(patterns.dominant(0).sum()) / patterns.total, "dominant-percent 0")
    first = f"Attention maps of {model_of(patterns)}: {dominant} of the heads attend mostly along the diagonal"
    if not patterns.two:
        active = writer.percent(patterns.whole("active").value, "whole-percent 0 active")
        return f"{first}, and {active} of the visible pairs are active."
    dropped = writer.percent(patterns.between("dropped").value, "between-percent dropped")
    found = patterns.whole_change("loss")
    loss = writer.number(found.value, "whole-change loss")
    sure = "" if found.low > 0 or found.high < 0 else ", not significantly"
    return f"{first}. {patterns.names[1]} drops {dropped} of the active connections; its loss changes by {loss} nats{sure}."


describe = Narrative(
    "What the attention maps look like",
    PatternsAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
    anomalies=_anomalies,
    interpretation=_interpretation,
)
