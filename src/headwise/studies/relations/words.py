"""The relations study in words: what does each head compute, by its weights, and in which layers are the categories?

Every number is computed from the Dataset and recorded, with its meaning, in `Description.numbers`. Thresholds are fixed and
stated in the sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import CATEGORY, HEAD, LAYER, RELATION
from headwise.core.parsing import parse_attribute
from headwise.describe import maps, narrator
from headwise.describe.narrative import Narrative
from headwise.describe.narrative import reading as hedged
from headwise.describe.phrases import Accessor, ends_of, model_of, size_of
from headwise.describe.writer import Writer, listed
from headwise.figures.head_maps import NamedMap
from headwise.studies.relations.figure import UsedRelation, classified_by, published_relations
from headwise.studies.relations.spec import SIGNS

MAX_NAMED = 8  # heads, relations or pairs in one sentence
EASY_RATE = 0.05  # false-positive rate above which a relation is called easy to pass


class RelationsAccessor(Accessor):
    """The parts of a relations Dataset by name. Maps are (layer, head)."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self.relations = [str(name) for name in dataset[RELATION].values]
        self.categories = [str(name) for name in dataset[CATEGORY].values]
        self.threshold, self.shuffles = float(dataset.attrs["threshold"]), int(dataset.attrs["shuffles"])
        self.measured = dataset["best_score"].notnull()
        self.total = int(self.measured.sum())
        either = dataset["member"] | dataset["member_suppression"]
        self.counts = either.sum(CATEGORY).astype(float).where(self.measured)  # categories per head

    def score(self, relation: str, variable: str = "score") -> xr.DataArray:
        return self.dataset[variable].sel({RELATION: relation}).astype(float)

    def member(self, category: str, which: str = "either") -> xr.DataArray:
        """1 for the heads of a category, 0 for others, NaN where there is no head."""
        chosen = self.dataset.sel({CATEGORY: category})
        found = chosen["member"] | chosen["member_suppression"] if which == "either" else chosen[which]
        return found.astype(float).where(self.measured)

    def size(self, category: str, which: str = "either") -> int:
        return int(self.member(category, which).sum())

    def with_categories(self, count: int) -> int:
        """Number of heads with exactly this many categories."""
        return int((self.counts == count).sum())

    def several(self) -> list[tuple[maps.HeadValue, list[str]]]:
        """The heads of two categories or more, and the names of their categories; those of most categories first."""
        found = [head for head in maps.strongest(self.counts, self.total) if head.value >= 2]
        member = {name: self.member(name) > 0 for name in self.categories}
        return [
            (head, [name for name, cells in member.items() if bool(cells.sel(layer=head.layer, head=head.head))])
            for head in found
        ]

    def false_positive(self, relation: str | None = None) -> float:
        """Share of head x relation scores above the threshold with permuted targets, both signs together."""
        rates = [self.dataset[f"{sign}_false_positive"] for sign in SIGNS]
        chosen = [rate if relation is None else rate.sel({RELATION: relation}) for rate in rates]
        return float(np.mean([float(rate.astype(float).mean()) for rate in chosen]))

    def copied(self) -> dict[str, float]:
        """The relations that a head which only copies would pass, with its scores; highest first."""
        found = {name: float(self.dataset["copied_score"].sel({RELATION: name})) for name in self.relations}
        above = {name: share for name, share in found.items() if share > np.float32(self.threshold)}
        return dict(sorted(above.items(), key=lambda item: -item[1]))

    def passing(self, relations: list[str], *, beyond_copying: bool = False) -> int:
        """Number of heads that pass for one of these relations; or of those that also exceed the score of copying."""
        here = self.dataset.sel({RELATION: relations})
        above = here["score"] > np.float32(self.threshold)
        above = above & (here["score"] > here["copied_score"]) if beyond_copying else above
        return int(above.any(RELATION).sum())


# ---- the map --------------------------------------------------------------------------------------------------------


def _relations(writer: Writer, reading: RelationsAccessor) -> str:
    relations = writer.count(len(reading.relations), "relations", "relation")
    return f"{relations} in {writer.count(len(reading.categories), 'categories', 'category')}"


def _overview(writer: Writer, reading: RelationsAccessor) -> Iterator[str]:
    pairs = writer.count(int(reading.dataset["pairs"].sum()), "pairs", "pair")
    yield (
        f"What every attention head of {model_of(reading)} ({size_of(writer, reading)}) computes, read from its weights "
        f"alone: whether it maps the first word of a pair to the second, for {_relations(writer, reading)} ({pairs} of "
        "single-token words)."
    )
    folded = reading.parameters.get("norms") == "folded"
    yield f"Norms are {'folded in (their gains)' if folded else 'left out, as published'}."
    if name := reading.data.get("name"):
        yield f"The pairs are those of '{name}'."


def _axes(writer: Writer, reading: RelationsAccessor) -> Iterator[str]:
    low, middle, high = ends_of(writer, reading.dataset["best_score"].values, "best_score")
    yield f"One mark per head. The best score of a head goes from {low} to {high}, median {middle}."
    ks = sorted({int(k) for k in reading.dataset["k"].values})
    threshold = writer.number(reading.threshold, "constant")
    yield (
        "A score is the share of a relation's pairs whose target is among the k tokens that the head promotes most for the "
        f"source (k is {listed((writer.number(k, 'constant') for k in ks), last='or')}); a suppression score counts targets "
        f"among the k that it promotes least. A head belongs to a relation, and to its category, when one of the two scores is "
        f"above {threshold}. Ranges are 95 % confidence intervals."
    )


def _details(writer: Writer, reading: RelationsAccessor) -> Iterator[str]:
    """One entry per category, with the strongest head of each of its relations; then the relations left out."""
    for category in reading.categories:
        own = [
            name
            for name in reading.relations
            if str(reading.dataset["category_of"].sel(relation=name).values) == category
        ]
        text = f"{category[:1].upper()}{category[1:]}: {_size(writer, reading, category)}. {_depth(writer, reading, category)}"
        strongest = listed(_strongest(writer, reading, relation) for relation in own)
        yield f"{text.strip()} Strongest by relation: {strongest}."
    for one in parse_attribute(reading.dataset.attrs, "kept", list[UsedRelation]):
        if not one["counts"]:
            name = one["relation"]
            given, usable = (writer.count(int(one[what]), f"{what} {name}") for what in ("given", "kept"))
            reasons = (f"{why} in {writer.count(n, f'dropped {name} {why}')}" for why, n in one["dropped"].items())
            text = f"{usable} of its {given} pairs are usable ({listed(reasons)})"
            yield f"{name} ({one['category']}) is left out: {text}."


def _size(writer: Writer, reading: RelationsAccessor, category: str) -> str:
    count = reading.size(category)
    if not count:
        return "no head"
    share = writer.percent(maps.Share(count, reading.total).share, f"share {category}")
    promoting, suppressing = (
        writer.count(reading.size(category, which), f"{which} {category}") for which in ("member", "member_suppression")
    )
    heads = writer.count(count, f"size {category}", "head")
    return f"{heads} ({share}), {promoting} by promoting and {suppressing} by suppressing the targets"


def _depth(writer: Writer, reading: RelationsAccessor, category: str) -> str:
    """The share of heads in each third of the layers."""
    thirds = narrator.share_by_third(writer, category, reading.member(category)) if reading.size(category) else None
    if thirds is None:
        return ""
    parts, trend = thirds
    return (
        f"Share of heads: early layers {parts[0]}, middle {parts[1]}, late {parts[2]}; the layer with most of them is "
        f"{writer.number(trend.peak_layer, f'peak {category}')}."
    )


def _strongest(writer: Writer, reading: RelationsAccessor, relation: str) -> str:
    """The head with the largest score of either sign, its interval, and its mean with permuted targets."""
    found = {sign: maps.strongest(reading.score(relation, sign), 1) for sign in SIGNS}
    sign = max((sign for sign in SIGNS if found[sign]), key=lambda sign: found[sign][0].value, default=None)
    if sign is None:
        return f"{relation} not measured"
    head = found[sign][0]
    values = {
        name: float(reading.score(relation, name).sel({LAYER: head.layer, HEAD: head.head}))
        for name in (sign, f"{sign}_low", f"{sign}_high", f"{sign}_null")
    }
    value, low, high, null = (
        writer.number(one, f"at {name} {relation} {head.name}", digits=2) for name, one in values.items()
    )
    how = "suppresses, " if sign == "suppression" else ""
    return f"{relation} {head.name} ({how}{value}, {low} to {high}; shuffled {null})"


def _classified(writer: Writer, reading: RelationsAccessor) -> str:
    none = reading.with_categories(0)
    some = reading.total - none
    text = (
        f"{writer.count(some, 'classified')} of {writer.count(reading.total, 'total', 'head')} "
        f"({writer.percent(some / reading.total, 'classified-share')}) have at least one category and "
        f"{writer.count(none, 'with 0')} have none"
    )
    sizes = {category: reading.size(category) for category in reading.categories}
    if len(sizes) > 1 and some:
        largest = max(sizes, key=lambda category: sizes[category])
        text += f"; the most common category is {largest} ({writer.count(sizes[largest], f'size {largest}', 'head')})"
    return f"{text}."


def _several(writer: Writer, reading: RelationsAccessor) -> str:
    found = reading.several()
    if not found:
        return "No head has more than one category." if len(reading.categories) > 1 else ""
    parts = [
        f"{writer.count(reading.with_categories(n), f'with {n}')} with {writer.number(n, 'constant')}"
        for n in sorted({len(names) for _, names in found})
    ]
    named = [f"{head.name} ({', '.join(names)})" for head, names in found[:MAX_NAMED]]
    rest = "" if len(found) <= MAX_NAMED else ", among them"
    return (
        f"{writer.count(len(found), 'several', 'head')} {'has' if len(found) == 1 else 'have'} several categories "
        f"({listed(parts)}){rest}: {listed(named)}."
    )


def _suppression(writer: Writer, reading: RelationsAccessor) -> str:
    promotes, suppresses = (reading.dataset[name].any(CATEGORY) for name in ("member", "member_suppression"))
    both, only = int((promotes & suppresses).sum()), int((~promotes & suppresses).sum())
    if not (both or only):
        return "No head suppresses the targets of a relation."
    verb = "belongs" if only == 1 else "belong"
    text = f"{writer.count(only, 'only-suppression', 'head')} {verb} to a category by suppression alone"
    if not both:
        return f"{text}; none promotes the targets of one relation and suppresses those of another."
    return f"{text}; {writer.count(both, 'both-signs')} by promoting some relations and suppressing others."


def _chance(writer: Writer, reading: RelationsAccessor) -> str:
    rate = reading.false_positive()
    if not math.isfinite(rate):
        return ""
    classified = reading.total - reading.with_categories(0)
    text = (
        f"With the targets permuted within each relation ({writer.count(reading.shuffles, 'shuffles')} times), "
        f"{writer.percent(rate, 'false-positive')} of all head x relation scores are above "
        f"{writer.number(reading.threshold, 'constant')}"
    )
    if not classified:
        return f"{text}."
    beyond = int(reading.dataset["member_beyond_null"].any(CATEGORY).sum())
    rule = "by a score that is above each of its own shuffles"
    if beyond == classified:
        return f"{text}. Every head with a category has one {rule}."
    return (
        f"{text}. Of the {writer.count(classified, 'classified', 'head')} with a category, "
        f"{writer.count(beyond, 'beyond-null')} have one {rule}; the others may promote a relation's targets without "
        "regard to the source."
    )


def _shuffled(writer: Writer, reading: RelationsAccessor) -> str:
    """How many heads shuffled targets would classify."""
    if "null_heads" not in reading.dataset:
        return "How many heads shuffled targets would classify was not counted by the version that made this map."
    return f"A shuffle of the targets would classify {_null(writer, reading, 'null_heads')}."


def _null(writer: Writer, reading: RelationsAccessor, variable: str) -> str:
    counts = reading.dataset[variable].values
    mean = writer.number(float(counts.mean()), f"mean {variable}", digits=2)
    low, high = (
        writer.count(int(end), f"{name} {variable}") for name, end in (("min", counts.min()), ("max", counts.max()))
    )
    return f"{mean} heads on average ({low} to {high} in {writer.count(len(counts), 'shuffles', 'shuffle')})"


def _published(writer: Writer, reading: RelationsAccessor) -> str:
    """The paper's relations next to all."""
    paper = published_relations(reading.dataset)
    if not paper or len(paper) == len(reading.relations):
        return ""
    more = writer.count(len(reading.relations) - len(paper), "unpublished", "relation")
    every = writer.count(classified_by(reading.dataset, reading.relations), "classified")
    few = writer.count(classified_by(reading.dataset, paper), "classified-published", "head")
    text = (
        f"By the {writer.count(len(paper), 'published')} relations that are also the paper's, {few} would be classified "
        f"instead of {every}; {more} here "
        f"{'is' if len(reading.relations) - len(paper) == 1 else 'are'} not among its twenty"
    )
    if "null_heads_published" in reading.dataset:
        text += (
            f". By those of the paper alone, a shuffle would classify {_null(writer, reading, 'null_heads_published')}"
        )
    return f"{text}."


def _easy(writer: Writer, reading: RelationsAccessor) -> str:
    """The relations that permuted targets pass often."""
    rates = {name: reading.false_positive(name) for name in reading.relations}
    found = sorted((name for name in rates if rates[name] > EASY_RATE), key=lambda name: -rates[name])
    if not found:
        rate = writer.percent(EASY_RATE, "constant")
        return f"In no relation are more than {rate} of the scores with shuffled targets above the threshold."
    named = [f"{name} ({writer.percent(rates[name], f'false-positive {name}')})" for name in found]
    return (
        f"The threshold is easy to pass (with shuffled targets in more than {writer.percent(EASY_RATE, 'constant')} of the "
        f"heads) for {listed(named)}: these have few different targets."
    )


def _copied(writer: Writer, reading: RelationsAccessor) -> str:
    """The control without a head: the scores of copying alone."""
    if "copied_score" not in reading.dataset or bool(reading.dataset["copied_score"].isnull().all()):
        return ""
    found = reading.copied()
    total = writer.count(len(reading.relations), "relations", "relation")
    threshold = writer.number(reading.threshold, "threshold")
    if not found:
        return f"A head that only copied what it reads would score above {threshold} for none of {total}."
    names = list(found)
    scores = listed(f"{name} {writer.fixed(found[name], f'copied_score {name}')}" for name in names[:MAX_NAMED])
    among = "among them " if len(names) > MAX_NAMED else ""
    passing, beyond = reading.passing(names), reading.passing(names, beyond_copying=True)
    return (
        f"A head that only copied what it reads would score above {threshold} for {writer.count(len(names), 'copied')} of "
        f"{total} ({among}{scores}). {writer.count(passing, 'copied-passing', 'head')} "
        f"{'does' if passing == 1 else 'do'} so for one of these, {writer.count(beyond, 'copied-beyond')} with a higher score "
        "than copying."
    )


def _caveats(writer: Writer, reading: RelationsAccessor) -> Iterator[str]:
    fewest = int(reading.dataset["pairs"].min())
    step = writer.number(1 / fewest, "step", digits=2)
    pairs = writer.count(fewest, "fewest")
    yield f"The resolution of a score is one pair: with {pairs} pairs, the fewest here, that is {step}."
    if reading.parameters.get("embedding", "effective") == "effective":
        yield "For heads after the first layer the input is the token after the first MLP, not what really reaches them."
    yield (
        "Weights show what a head would write if it attended to the source word, not when it does so. A head without a "
        "category may have a function that is not on this list. The pairs are a sample of each relation, without words of "
        "several tokens."
    )


# ---- boxes, anomalies, interpretation, short form -------------------------------------------------------------------


def _blocks(writer: Writer, reading: RelationsAccessor) -> str:
    """Blocks of neighbouring heads of a category, larger than when its heads are shuffled."""
    parts = []
    for category in reading.categories:
        member = reading.member(category)
        if reading.size(category) >= narrator.MIN_CLUSTER_CELLS:
            smallest = max(narrator.MIN_CLUSTER_CELLS, maps.cluster_by_chance(member, 1.0) + 1)
            for box in maps.clusters(member, 1.0, smallest=smallest)[: narrator.MAX_BOXES]:
                where, source = narrator.box_of(writer, category, box)
                size, area = (
                    writer.count(box.size, f"member-box {source}"),
                    writer.count(box.area, f"box-area {source}"),
                )
                parts.append(f"{category} in {where} ({size} of {area})")
    if not parts:
        return "No category has a block of neighbouring heads larger than in 95 % of shuffled maps."
    return f"Blocks of neighbouring heads of one category, larger than in 95 % of shuffled maps: {'; '.join(parts)}."


def _anomalies(writer: Writer, reading: RelationsAccessor) -> Iterator[str]:
    """Heads whose best score is far from those around, and classified heads far from all others."""
    best = reading.dataset["best_score"].astype(float).transpose(LAYER, HEAD)
    yield from narrator.anomalies(writer, [NamedMap("best_score", "best score", best)])
    layers = (reading.counts > 0).sum(HEAD)
    filled = [int(layer) for layer in layers[LAYER].values[(layers > 0).values]]
    alone = [layer for layer in filled if not {layer - 1, layer + 1} & set(filled)]
    if len(filled) > len(alone) > 0:
        named = (writer.number(layer, "edge") for layer in alone[:MAX_NAMED])
        yield f"Layers with a classified head between layers without any: {listed(named)}."


def _interpretation(writer: Writer, reading: RelationsAccessor) -> Iterator[str]:
    """Do heads hold relations, or does shuffling, or copying, explain the categories?"""
    some = reading.total - reading.with_categories(0)
    share = writer.percent(some / reading.total, "classified-share")
    if not some:
        yield from hedged(
            f"no head passes for one of these relations by its weights alone ({share} classified)",
            [
                "relations of several tokens, and those that a head computes together with others, cannot be seen in this way"
            ],
            _DECIDE,
        )
        return
    where = maps.depth_trend((reading.counts > 0).astype(float).where(reading.measured))
    third = (
        f", most often in the {where.peak_third} third of the layers"
        if where and len(reading.layers) >= narrator.MIN_LAYERS
        else ""
    )
    beyond = int(reading.dataset["member_beyond_null"].any(CATEGORY).sum())
    against = []
    if "null_heads" in reading.dataset:
        against.append(f"a shuffle of the targets would classify {_null(writer, reading, 'null_heads')}")
    if beyond < some:
        against.append(f"only {writer.count(beyond, 'beyond-null')} have a score above each of its own shuffles")
    if "copied_score" in reading.dataset and (names := list(reading.copied())):
        against.append(f"mere copying would pass for {writer.count(len(names), 'copied', 'relation')}")
    like = "some heads hold relations in their weights"
    if "null_heads" in reading.dataset and some <= int(reading.dataset["null_heads"].max()):
        like = "no more heads than by chance map words of a relation"
    yield from hedged(f"{like} ({share} classified){third}", against, _DECIDE)


_DECIDE = "see whether the scores hold in texts, and what ablating these heads costs (study relation_validation)"


def _headline(writer: Writer, reading: RelationsAccessor) -> str:
    sizes = [f"{name} {writer.count(reading.size(name), f'size {name}')}" for name in reading.categories]
    some = writer.count(reading.total - reading.with_categories(0), "classified")
    total = writer.count(reading.total, "total", "head")
    null = ""
    if "null_heads" in reading.dataset:
        mean = writer.number(float(reading.dataset["null_heads"].mean()), "mean null_heads", digits=2)
        null = f"; shuffled targets would classify {mean}"
    return f"By their weights {some} of {total} of {model_of(reading)} map words of a relation: {listed(sizes)}{null}."


describe = Narrative(
    "What each head computes, from its weights",
    RelationsAccessor,
    (
        _overview,
        _axes,
        _details,
        (_classified, _several, _suppression, _blocks, _chance, _shuffled, _published, _easy, _copied),
        _caveats,
    ),
    _headline,
    anomalies=_anomalies,
    interpretation=_interpretation,
)
