"""The causal study in words: which heads does the model need, for which tokens, and how well is that known?

Sentences about single maps come from `describe.narrator`; keys of maps are the classes of tokens ("all", "repeated"). Numbers
are of mean ablation, where nothing else is said.

`about_heads` adds one sentence to the words of every other study of the atlas: the heads that these words name, with their
causal rank in their layer, and how many of them are needed more than heads of the same layer that write about as much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import xarray as xr

from headwise.core.dims import ABLATION, HEAD, LAYER, TOKEN_CLASS, parse_head
from headwise.describe import maps, narrator
from headwise.describe.narrative import Narrative, reading
from headwise.describe.phrases import Accessor, model_of, size_of
from headwise.describe.writer import Description, Writer, listed
from headwise.figures.head_maps import NamedMap
from headwise.figures.provenance import provenance_of
from headwise.stats import wilson_interval
from headwise.studies.head_sets import layer_head

ALL = "all"  # the class of all tokens
MAX_Q = 0.05
GOOD_AGREEMENT = 0.5  # rank correlation of attribution and exact ablation, below which the words warn
NAMED = 3
MAX_RANKED = 6  # heads of another study whose rank is given
HEAD_NAME = re.compile(r"\bL\d+H\d+\b")


class CausalAccessor(Accessor):
    """The maps of mean ablation by class of tokens, (layer, head)."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self.classes = [str(name) for name in dataset[TOKEN_CLASS].values if self.map(str(name)).notnull().any()]
        self.own = [name for name in self.classes if name != ALL]
        self.checked = dataset["checked"].transpose(LAYER, HEAD).values
        self.total = int(self.map("all").notnull().sum())
        self.exact = int((self.checked != "").sum())

    def map(self, key: str, variable: str = "effect", ablation: str = "mean") -> xr.DataArray:
        return self.dataset[variable].sel({ABLATION: ablation, TOKEN_CLASS: key}).transpose(LAYER, HEAD)

    def number(self, variable: str, key: str = "all", ablation: str = "mean") -> float:
        return float(self.dataset[variable].sel({ABLATION: ablation, TOKEN_CLASS: key}))

    def label(self, key: str) -> str:
        return str(self.dataset["label"].sel({TOKEN_CLASS: key}).values)

    def named(self, key: str) -> NamedMap:
        low, high = self.map(key, "effect_low"), self.map(key, "effect_high")
        return NamedMap(key, f"the effect on {self.label(key)}", self.map(key), low, high, unit="nats per token")

    def needed(self, key: str) -> int:
        """Heads without which the loss of the class rises at q < 0.05."""
        return int(((self.map(key, "q") < MAX_Q) & (self.map(key) > 0)).sum())

    def harmful(self, key: str) -> int:
        return int(((self.map(key, "q") < MAX_Q) & (self.map(key) < 0)).sum())


def _overview(writer: Writer, one: CausalAccessor) -> Iterator[str]:
    prompts = writer.count(int(one.dataset.attrs["prompts"]), "prompts", "prompt")
    length = writer.count(int(one.dataset.attrs["prompt_tokens"]), "prompt_tokens", "token")
    tokens = writer.count(int(one.dataset["tokens"].sel({TOKEN_CLASS: "all"})), "tokens all", "predicted token")
    what = "head" if one.dataset.attrs["unit"] == "head" else "group of heads that share keys"
    yield (
        f"What {model_of(one)} ({size_of(writer, one)}) loses without each {what}: the rise of the next-token loss on "
        f"{prompts} of {length} ({tokens}), in nats per token, when its output is replaced by its mean over texts."
    )
    if int(one.dataset.attrs["questions"]):
        asked = writer.count(int(one.dataset.attrs["questions"]), "questions", "question")
        yield f"On {asked}, shown as plain text, the rise is that of -log P(gold answer), per token of the answer."
    exact, total = writer.count(one.exact, "exact"), writer.count(one.total, "total", "head")
    if one.exact < one.total:
        yield (
            f"{exact} of {total} were ablated one at a time; the others have a second-order attribution, corrected by what "
            "exact ablation gave for these."
        )
    else:
        yield f"All {total} were ablated one at a time."


def _axes(writer: Writer, one: CausalAccessor) -> Iterator[str]:
    yield "Red is a rise of the loss."
    yield "Ranges in brackets are 95 % intervals over prompts and, for corrected heads, over the error of that."
    for key in one.classes:
        text = narrator.value_range(writer, one.named(key))
        yield f"{text[0].upper()}{text[1:]}"


def _details(writer: Writer, one: CausalAccessor) -> Iterator[str]:
    """One entry per class: how well the model predicts it, and which heads it needs."""
    for key in one.classes:
        values = one.dataset.sel({TOKEN_CLASS: key})
        tokens = writer.count(int(values["tokens"]), f"tokens {key}", "token")
        loss = writer.number(float(values["loss"]), f"loss {key}")
        label = one.label(key)
        intro = f"{label[0].upper()}{label[1:]} ({values['definition'].values}; {tokens}, loss {loss})"
        needed = writer.count(one.needed(key), f"needed {key}", "head")
        harmful = one.harmful(key)
        more = f", and it falls without {writer.count(harmful, f'harmful {key}', 'head')}" if harmful else ""
        yield f"{intro}: the loss rises without {needed} at q < 0.05{more}. {narrator.strongest_heads(writer, one.named(key))}."


def _observations(writer: Writer, one: CausalAccessor) -> Iterator[str]:
    yield _matched(writer, one)
    yield _specialised(writer, one)
    every = [one.named(key) for key in one.classes]
    part = maps.concentration(one.map("all").clip(min=0), top=narrator.TOP_SHARE)
    if part is not None and one.total >= narrator.MIN_HEADS:
        yield (
            f"{writer.percent(narrator.TOP_SHARE, 'constant')} of the heads ({writer.count(part.heads, 'top-heads all')}) have "
            f"{writer.percent(part.share, 'top-share all')} of the sum of all rises (Gini coefficient "
            f"{writer.fixed(part.gini, 'gini all')})."
        )
    yield from (f"{entry[0].upper()}{entry[1:]}" for entry in narrator.depth_trends(writer, every[:1]))
    if one.total >= narrator.MIN_HEADS:
        yield narrator.boxes(writer, every)
    yield _resampled(writer, one)
    yield _agreement(writer, one)


def _matched(writer: Writer, one: CausalAccessor) -> str:
    low, high = one.dataset["excess_low"], one.dataset["excess_high"]
    known = int(low.notnull().sum())
    if not known:
        return ""
    more, less = int((low > 0).sum()), int((high < 0).sum())
    found = [f"{head.name} (+{writer.number(head.value, f'excess {head.name}')})" for head in _excess(one)]
    named = f", most of all {listed(found)}" if found else ""
    return (
        f"Against the heads of the same layer that write about as much, {writer.count(more, 'more')} of "
        f"{writer.count(known, 'compared', 'head')} are needed more (interval of the difference above 0){named}; "
        f"{writer.count(less, 'less')} are needed less."
    )


def _excess(one: CausalAccessor) -> list[maps.HeadValue]:
    dataset = one.dataset
    return maps.strongest(dataset["excess"].where(dataset["excess_low"] > 0).transpose(LAYER, HEAD), NAMED)


def _specialised(writer: Writer, one: CausalAccessor) -> str:
    """The head with the largest effect of each class, where it is another than that of all tokens."""
    (first,) = maps.strongest(one.map("all"), 1)
    parts = []
    for key in one.own:
        (head,) = maps.strongest(one.map(key), 1)
        if head.name != first.name and float(one.map(key, "effect_low").sel(layer=head.layer, head=head.head)) > 0:
            parts.append(f"{head.name} for {one.label(key)} ({writer.number(head.value, f'value {key} {head.name}')})")
    if not parts:
        return ""
    value = writer.number(first.value, f"value all {first.name}")
    return f"The head needed most over all tokens is {first.name} ({value}); for some classes another one is: {listed(parts)}."


def _resampled(writer: Writer, one: CausalAccessor) -> str:
    if "resample" not in one.dataset[ABLATION].values or one.total < narrator.MIN_HEADS:
        return ""
    rho = writer.fixed(maps.rank_correlation(one.map("all"), one.map("all", ablation="resample")), "mean-resample")
    means = [
        writer.number(float(one.map("all", ablation=name).mean()), f"mean {name}") for name in ("mean", "resample")
    ]
    return (
        f"With the output on another text put in instead of the mean, the rank correlation of effects is {rho}; a head "
        f"costs {means[1]} nats per token on average, against {means[0]} with the mean."
    )


def _agreement(writer: Writer, one: CausalAccessor) -> str:
    if not np.isfinite(one.number("agreement_random")):
        return ""
    random = int((one.checked == "random").sum())
    rho = writer.fixed(one.number("agreement_random"), "agreement_random all")
    first = writer.fixed(one.number("agreement_first_order"), "agreement_first_order all")
    text = (
        f"Over {writer.count(random, 'random', 'random head')}, attribution and exact ablation correlate in rank at {rho} "
        f"(gradient times change alone: {first}); exact effects are {writer.fixed(one.number('slope'), 'slope all')} times the "
        f"attribution{_levelling_off(writer, one)}"
    )
    if np.isfinite(one.number("concordance")):
        share = writer.percent(one.number("concordance"), "concordance all")
        text += f", and {share} of pairs of heads of one layer are ordered alike"
    known = [key for key in one.own if np.isfinite(one.number("agreement_random", key))]
    if known:
        worst = min(known, key=lambda key: one.number("agreement_random", key))
        low = writer.fixed(one.number("agreement_random", worst), f"agreement_random {worst}")
        text += f". The correlation is lowest for {one.label(worst)} ({low})"
    return f"{text}."


def _levelling_off(writer: Writer, one: CausalAccessor) -> str:
    """Where effects stop to grow with the attribution; atlases of version 1 do not know it."""
    if "saturation" not in one.dataset or not np.isfinite(one.number("saturation")):
        return ""
    return (
        f" where it is small, and half of that where it is {writer.fixed(one.number('saturation'), 'saturation all')}"
    )


def _caveats(writer: Writer, one: CausalAccessor) -> Iterator[str]:
    if one.exact < one.total:
        rest = writer.count(one.total - one.exact, "corrected", "head")
        error = one.number("error")
        missed = f" (what it misses is {writer.fixed(error, 'error all')} standard deviations of exact effects)"
        yield (
            f"The numbers of {rest} are corrected attributions, an approximation{missed if np.isfinite(error) else ''}: "
            "--set causal.exact=all ablates every head."
        )
        if not one.number("agreement_random") >= GOOD_AGREEMENT:
            yield (
                f"The rank correlation of attribution and exact ablation is below {writer.fixed(GOOD_AGREEMENT, 'constant')}: "
                "for this model, read only the heads that were ablated."
            )
    yield (
        "Heads are ablated one at a time: a head whose work others take over shows no effect, and effects of several heads do "
        "not add up. Mean outputs occur on no text, so a part of the rise may come from that."
    )
    rare = [key for key in one.own if float(one.dataset["tokens"].sel({TOKEN_CLASS: key})) < 100]
    if rare:
        yield f"Fewer than {writer.count(100, 'constant')} tokens: {listed(one.label(key) for key in rare)}."


def _interpretation(writer: Writer, one: CausalAccessor) -> Iterator[str]:
    """Does the model depend on few heads?"""
    part = maps.concentration(one.map("all").clip(min=0), top=narrator.TOP_SHARE)
    if part is None or one.total < narrator.MIN_HEADS:
        return
    top, share = writer.percent(narrator.TOP_SHARE, "constant"), writer.percent(part.share, "top-share all")
    like = "the model depends on few heads" if part.share >= narrator.CONCENTRATED else "no few heads carry the model"
    harmful = one.harmful("all")
    worse = f"the loss falls without {writer.count(harmful, 'harmful all', 'head')}" if harmful else ""
    alone = "one at a time, a head whose work others take over shows no effect"
    rho = (
        maps.rank_correlation(one.map("all"), one.map("all", ablation="resample"))
        if "resample" in one.dataset[ABLATION].values
        else np.nan
    )
    other = (
        f"another replacement (resampling) ranks the heads only alike to {writer.fixed(rho, 'mean-resample')}"
        if rho < 0.8
        else ""
    )
    yield from reading(
        f"{like} ({top} of the heads have {share} of the sum of all rises)",
        [alone, worse, other],
        "ablate several of the named heads together, against as many of the same layers",
    )


def _headline(writer: Writer, one: CausalAccessor) -> str:
    needed, total = writer.count(one.needed("all"), "needed all"), writer.count(one.total, "total", "head")
    sure = one.map("all").where(one.map("all", "effect_low") > 0)  # not a corrected attribution that may be nothing
    heads = [
        f"{head.name} ({writer.number(head.value, f'value all {head.name}')} nats per token)"
        for head in maps.strongest(sure if bool(sure.notnull().any()) else one.map("all"), NAMED)
    ]
    who = f"The loss of {model_of(one)} rises without {needed} of {total}, one at a time (q < 0.05)"
    return f"{who}; most without {listed(heads)}."


describe = Narrative(
    "What the model loses without each head",
    CausalAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
    anomalies=lambda writer, one: narrator.anomalies(writer, [one.named(key) for key in one.classes]),
    interpretation=_interpretation,
)


def about_heads(words: Description, described: xr.Dataset, causal: xr.Dataset) -> Description:
    """The words with a sentence about the heads that they name; unchanged where they name none, or are of other weights."""
    digests = [provenance_of(one).get("model", {}).get("digest") for one in (described, causal)]
    named = [cell for cell in _named(words) if _known(causal, *cell)]
    if not named or digests[0] != digests[1]:
        return words
    writer = Writer("")
    low = layer_head(causal["excess_low"])
    more, every = sum(bool(low[cell] > 0) for cell in named), int((low > 0).sum())
    ends = wilson_interval(more / len(named), len(named))
    compared = int(np.isfinite(low).sum())
    rank = layer_head(causal["rank"])
    sizes = np.isfinite(rank).sum(1)
    ranks = [
        f"L{layer}H{head} {writer.count(int(rank[layer, head]), f'causal rank L{layer}H{head}')} of "
        f"{writer.count(int(sizes[layer]), f'causal heads L{layer}')}"
        for layer, head in named[:MAX_RANKED]
    ]
    share = [
        writer.percent(round(float(end), 9), f"causal share {name}")
        for name, end in zip(("low", "high"), ends, strict=True)
    ]
    text = (
        f"Does the model need them? Of the {writer.count(len(named), 'causal named', 'head')} named here, "
        f"{writer.count(more, 'causal more')} ({share[0]} to {share[1]}) {'is' if more == 1 else 'are'} needed more than "
        "heads of the same layer that write about as much, against "
        f"{writer.percent(every / max(1, compared), 'causal share all')} of all heads (study causal, "
        f"mean ablation); rank in the layer by rise of the loss: {listed(ranks)}."
    )
    numbers = (*words.numbers, *writer.finish("").numbers)
    return replace(words, interpretation=(*words.interpretation, text), numbers=numbers)


def _named(words: Description) -> list[tuple[int, int]]:
    """The heads that the words name, in order."""
    text = " ".join((words.headline, *words.detail, *words.observations))
    return [parse_head(name) for name in dict.fromkeys(HEAD_NAME.findall(text))]


def _known(causal: xr.Dataset, layer: int, head: int) -> bool:
    there = layer < causal.sizes[LAYER] and head < causal.sizes[HEAD]
    return there and bool(np.isfinite(layer_head(causal["rank"])[layer, head]))
