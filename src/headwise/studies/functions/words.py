"""The functions study in words: which heads carry which cognitive function, and how certain is that?

Every number is recorded with its source in `Description.numbers`: "auroc of Retrieval" is that variable at that function.
Thresholds are fixed and stated in the sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER, SEED, head_name
from headwise.core.parsing import parse_attribute
from headwise.describe import maps, narrator
from headwise.describe.narrative import Narrative, reading
from headwise.describe.narrator import MIN_LAYERS
from headwise.describe.phrases import Accessor, best, model_of, named, others_as_large, size_of, with_interval
from headwise.describe.writer import Writer, listed
from headwise.figures.head_maps import NamedMap
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.functions.figure import correlations, scale_of, shown_functions, worded

NAMED_HEADS, NAMED_SHARED_HEADS, NAMED_PAIRS = 3, 4, 3
MAX_NAMED_LAYERS = 4
PUBLISHED_THRESHOLD = 0.001  # of the published maps
OWN = 0.6  # of the heads that belong to a function, above which functions are said to have heads of their own
MIN_HELD_OUT_STEPS = 50  # with fewer, intervals are called wide
MIN_ACCURACY = 0.5  # below, a function's features come mostly from wrong answers


class FunctionAccessor(Accessor):
    """The parts of a Dataset with one entry per function."""

    def __init__(self, dataset: xr.Dataset, study: str) -> None:
        super().__init__(dataset)
        self.functions = shown_functions(dataset, None, f"The {study} study")  # in the figures' order

    def of(self, variable: str, function: str) -> Any:
        """A variable with one entry per function."""
        return self.dataset[variable].sel({FUNCTION: function}).item()

    def overall(self, variable: str) -> float:
        """A variable with a single entry."""
        return float(self.dataset[variable])

    def interval_of(self, writer: Writer, variable: str, function: str) -> str:
        """A function's number with its confidence interval."""
        return with_interval(writer, lambda key: float(self.of(key, function)), variable, f"of {function}")


class FunctionsAccessor(FunctionAccessor):
    """The parts of a functions Dataset by name. Maps are (layer, head)."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset, "functions")
        self.refused = [name for name in self.functions if bool(self.of("refused", name))]
        self.mapped = [name for name in self.functions if name not in self.refused]
        self.scale = scale_of(dataset)
        self.owners: dict[str, list[str]] = {}  # head -> its functions, heads of most functions first
        for function in self.mapped:
            for head in sorted(self.selected(function)):
                self.owners.setdefault(head, []).append(function)
        self.owners = dict(sorted(self.owners.items(), key=lambda item: -len(item[1])))

    def map(self, function: str, variable: str = "magnitude") -> xr.DataArray:
        """A function's map."""
        return self.dataset[variable].sel({FUNCTION: function}).astype(float)

    def selected(self, function: str) -> set[str]:
        """The names of the heads up to the elbow."""
        cells = np.argwhere(self.dataset["chosen"].sel({FUNCTION: function}).transpose(LAYER, HEAD).values)
        return {head_name(self.layers[row], self.heads[column]) for row, column in cells}

    def share_over(self, threshold: float) -> maps.Share:
        """Cells of all maps over a threshold."""
        values = self.dataset["magnitude"].values
        return maps.Share(int((values > threshold).sum()), int(np.isfinite(values).sum()))

    def named_maps(self) -> list[NamedMap]:
        """The importance maps of the functions that have one."""
        return [NamedMap(name.replace(" ", "_"), name, self.map(name).transpose(LAYER, HEAD)) for name in self.mapped]

    def pairs(self) -> list[tuple[str, str, float]]:
        """Pairs of functions with the correlation of their maps, most similar first."""
        found = correlations(self.dataset.sel({FUNCTION: self.functions}))
        names = [str(name) for name in found[FUNCTION].values]
        rows = [(names[i], names[j], float(found.values[i, j])) for i, j in combinations(range(len(names)), 2)]
        return sorted((row for row in rows if np.isfinite(row[2])), key=lambda row: -row[2])


# ---- overview, axes, caveats ----------------------------------------------------------------------------------------


def _overview(writer: Writer, data: FunctionsAccessor) -> Iterator[str]:
    dataset, functions = data.dataset, writer.count(len(data.functions), "functions", "cognitive function")
    yield (
        f"Which attention heads of {model_of(data)} ({size_of(writer, data)}) carry which of {functions}: how important each "
        "head is to a probe that predicts the function of a step from the outputs of all heads while the model answers it."
    )
    train, held_out = (writer.count(int(dataset[split].sum()), f"all {split}") for split in ("train", "held_out"))
    steps = writer.count(int(dataset.sizes[EXAMPLE]), "steps", "step")
    chains = writer.count(len(set(dataset["chain"].values.tolist())), "chains", "question")
    right = writer.percent(float(dataset["right"].mean()), "right")
    yield f"{steps} of {chains}, {train} for training and {held_out} held out; the model answers {right} of them correctly."
    if name := data.data.get("name"):
        yield f"The steps are those of '{name}'."
    if left_out := parse_attribute(dataset.attrs, "left_out", dict[str, str], "{}"):
        yield f"Left out: {'; '.join(left_out.values())}."


def _axes(writer: Writer, data: FunctionsAccessor) -> Iterator[str]:
    clipped = data.share_over(data.scale.high * (1 + 1e-6))
    beyond = "no cell lies beyond it"
    if clipped.count:
        share = writer.percent(clipped.share, "clipped-share")
        verb = "lies" if clipped.count == 1 else "lie"
        beyond = f"{writer.count(clipped.count, 'clipped', 'cell')} ({share}) {verb} beyond it and have its last colour"
    yield f"The colour scale ends at {writer.number(data.scale.high, 'cap')}; {beyond}."
    seeds = writer.count(data.dataset.sizes[SEED], "seeds", "seed")
    yield (
        "Importance is the gradient of the function's logit times the head's features, averaged over the function's held-out "
        f"steps and over {seeds}; the maps show its absolute value. Features are taken at the key tokens: "
        f"{data.dataset.attrs['key_rule']}."
    )
    yield (
        "The heads of a function are those up to the elbow of its importances, sorted from the largest: the point that lies "
        "farthest below the straight line from the first to the last. After ± is the standard deviation over seeds."
    )
    if data.refused:
        yield "A panel without a map is a function that the probe does not distinguish from the others."
    ranges = []
    for name in data.mapped:
        values = data.map(name).values
        low, high = (
            writer.number(float(end(values)), f"{what} {name.replace(' ', '_')}", digits=2)
            for what, end in (("min", np.nanmin), ("max", np.nanmax))
        )
        ranges.append(f"{name} {low} to {high}")
    if ranges:
        yield f"Importance by map: {'; '.join(ranges)}."


def _caveats(writer: Writer, data: FunctionsAccessor) -> Iterator[str]:
    yield (
        "Importance shows which heads this probe reads a function from, not which heads the model needs for it; masking tests "
        "that. A function is a label of a kind of question, and heads that distinguish the kinds may do so by wording, topic "
        "or the form of the answers."
    )
    fewest = int(data.dataset["held_out"].min())
    if fewest < MIN_HELD_OUT_STEPS:
        steps = writer.count(fewest, "fewest", "held-out step")
        yield f"The smallest function has {steps}, so its intervals are wide."
    accuracy = {name: float(data.of("accuracy", name)) for name in data.functions}
    wrong = sorted((name for name in accuracy if accuracy[name] < MIN_ACCURACY), key=lambda name: accuracy[name])
    if wrong and len(wrong) == len(data.functions):
        low, high = (
            f"{writer.percent(accuracy[names[0]], f'accuracy of {names[0]}')} ({listed(names)})"
            for names in (best(accuracy, smallest=True), best(accuracy))
        )
        yield f"The model answers fewer than half of the steps of every function correctly, {low} to {high}."
    elif wrong:
        rows = listed(f"{name} ({writer.percent(accuracy[name], f'accuracy of {name}')})" for name in wrong)
        yield f"The model answers fewer than half of the steps correctly for {rows}."
    yield (
        "The elbow is a convention, not a boundary; intervals of importance are over seeds of the probe, "
        "not over other steps. The scale of importance depends on the probe and cannot be compared between models. This is one "
        "model on one set of steps."
    )


def _headline(writer: Writer, data: FunctionsAccessor) -> str:
    accuracy, majority = (
        writer.fixed(data.overall("probe_accuracy"), "probe_accuracy"),
        writer.fixed(data.overall("majority"), "majority"),
    )
    functions = writer.count(len(data.functions), "functions", "function")
    text = (
        f"Head importance for {functions} in {model_of(data)}: the probe is right in {accuracy} of held-out steps (most "
        f"frequent function {majority})"
    )
    if (both := worded(data.dataset)) is not None:
        function, wording = (
            writer.fixed(float(both[name].mean()), f"mean {name}") for name in ("function_by_layer", "wording_by_layer")
        )
        text += f"; single heads decode a function with AUROC {function}, mere wording with {wording}"
    return f"{text}."


def _blocks(writer: Writer, data: FunctionsAccessor) -> str:
    every = data.named_maps()
    return narrator.boxes(writer, every) if every and every[0].values.size >= narrator.MIN_HEADS else ""


def _interpretation(writer: Writer, data: FunctionsAccessor) -> Iterator[str]:
    """Does each function have heads of its own, or do the maps show the wording of the steps?"""
    pairs, owners = data.pairs(), data.owners
    if not pairs or not owners:
        return
    exclusive = sum(len(functions) == 1 for functions in owners.values())
    mean = sum(pair[2] for pair in pairs) / len(pairs)
    own = exclusive / len(owners) >= OWN
    like = "most functions have heads of their own" if own else "the functions share their heads"
    like += (
        f" ({writer.count(exclusive, 'exclusive')} of {writer.count(len(owners), 'owned', 'head')} belong to one function only;"
        f" mean correlation of the maps {writer.fixed(mean, 'mean-correlation')})"
    )
    against = []
    if (both := worded(data.dataset)) is not None:
        function, wording = (float(both[f"{name}_by_layer"].mean()) for name in ("function", "wording"))
        if wording >= function - 0.05:
            said = writer.fixed(wording, "mean wording_by_layer"), writer.fixed(function, "mean function_by_layer")
            against.append(f"how a step is worded is decoded about as well ({said[0]}) as its function ({said[1]})")
    seeds = [value for name in data.mapped if math.isfinite(value := float(data.of("agreement", name)))]
    if seeds and sum(seeds) / len(seeds) < 0.5:
        against.append(
            f"two seeds of the probe agree only to {writer.fixed(sum(seeds) / len(seeds), 'mean-agreement')}"
        )
    against.append("importance is what a probe reads, not what the model uses")
    yield from reading(
        like, against, "mask the heads of a function against as many of the same layers (study function_masking)"
    )


# ---- one entry per function -----------------------------------------------------------------------------------------


def _details(writer: Writer, data: FunctionsAccessor) -> Iterator[str]:
    for name in data.functions:
        order = {"low": " (low order)", "high": " (high order)"}.get(data.of("order", name), "")
        chance = writer.fixed(data.of("recall_chance", name), f"recall_chance of {name}")
        held_out = writer.count(int(data.of("held_out", name)), f"held_out of {name}", "held-out step")
        sentences = [
            f"{name}{order}: steps answered correctly {data.interval_of(writer, 'accuracy', name)}; predicted by the probe "
            f"{data.interval_of(writer, 'recall', name)} of {held_out} (guessing {chance}), AUROC "
            f"{data.interval_of(writer, 'auroc', name)}."
        ]
        if name in data.refused:
            sentences.append(f"No map: {data.of('reason', name)}.")
        else:
            parts = (_strongest, _elbow, _depth, _significance, _agreement_of)
            sentences += [part(writer, data, name) for part in parts]
        yield " ".join(filter(None, sentences))


def _strongest(writer: Writer, data: FunctionsAccessor, name: str) -> str:
    spread = data.map(name, "importance_sd")
    found = []
    for head in maps.strongest(data.map(name), NAMED_HEADS):
        value = writer.number(head.value, f"magnitude {head.name} of {name}", digits=2)
        deviation = float(spread.sel({LAYER: head.layer, HEAD: head.head}))
        sd = writer.number(deviation, f"importance_sd {head.name} of {name}", digits=2)
        found.append(f"{head.name} ({value} ± {sd})")
    return f"Most important: {listed(found)}."


def _elbow(writer: Writer, data: FunctionsAccessor, name: str) -> str:
    values, own = data.map(name), data.selected(name)
    total = int(values.notnull().sum())
    mass = float(values.where(data.dataset["chosen"].sel({FUNCTION: name})).sum() / values.sum())
    text = (
        f"{writer.count(len(own), f'elbow of {name}')} of {writer.count(total, f'measured of {name}', 'head')} "
        f"({writer.percent(len(own) / total, f'elbow-share of {name}')}) up to the elbow, with "
        f"{writer.percent(mass, f'mass of {name}')} of the importance"
    )
    if len(data.mapped) > 1:
        exclusive = sum(data.owners[head] == [name] for head in own)
        text += f", {writer.count(exclusive, f'exclusive of {name}')} of them in no other function"
    return f"{text}."


def _depth(writer: Writer, data: FunctionsAccessor, name: str) -> str:
    trend = maps.depth_trend(data.map(name, "chosen"))
    if trend is None or len(data.layers) < MIN_LAYERS or not data.selected(name):
        return ""
    early, middle, late = (writer.percent(part, f"third {index} of {name}") for index, part in enumerate(trend.shares))
    counts = data.dataset["chosen"].sel({FUNCTION: name}).sum(HEAD)
    layers = [int(layer) for layer in counts[LAYER].values[(counts == counts.max()).values]]
    if len(layers) > MAX_NAMED_LAYERS:
        fullest = f"in no layer most ({writer.count(len(layers), f'fullest of {name}')} tie)"
    else:
        peaks = listed(writer.number(layer, f"peak {layer} of {name}") for layer in layers)
        fullest = f"most in {'layer' if len(layers) == 1 else 'layers'} {peaks}"
    return f"By thirds of the layers {early}, {middle} and {late}, {fullest}."


def _significance(writer: Writer, data: FunctionsAccessor, name: str) -> str:
    count = int(data.dataset["beyond_null"].sel({FUNCTION: name}).sum())
    heads, level = writer.count(count, f"beyond of {name}", "head"), writer.number(ALPHA, "constant")
    text = f"Beyond permuted labels (q < {level}): {heads}."
    if "own_q" in data.dataset:
        own = int((data.map(name, "own_q") < ALPHA).sum())
        text += f" More important to it than to any other function: {writer.count(own, f'own of {name}', 'head')}."
    found = maps.concentration(data.map(name))
    if found is None:
        return text
    top = writer.count(found.heads, f"top-heads of {name}", "head")
    return (
        f"Top {top} (5 %): {writer.percent(found.share, f'top-share of {name}')} of the importance, Gini "
        f"{writer.fixed(found.gini, f'gini of {name}')}. {text}"
    )


def _agreement_of(writer: Writer, data: FunctionsAccessor, name: str) -> str:
    if not math.isfinite(data.of("rank_correlation", name)):
        return ""
    text = f"Rank correlation with single-head probes {data.interval_of(writer, 'rank_correlation', name)}"
    seeds = data.of("agreement", name)
    if math.isfinite(seeds):
        text += f", between two seeds {writer.fixed(seeds, f'agreement of {name}')}"
    return f"{text}."


# ---- observations ---------------------------------------------------------------------------------------------------


def _probe(writer: Writer, data: FunctionsAccessor) -> str:
    accuracy = with_interval(writer, data.overall, "probe_accuracy")
    majority, permuted, high = (
        writer.fixed(data.overall(key), key) for key in ("majority", "permuted", "permuted_high")
    )
    return (
        f"The probe on all heads predicts {accuracy} of the held-out steps correctly; the most frequent function gets "
        f"{majority}, and probes fitted on permuted labels get {permuted} on average and {high} at most."
    )


def _form(writer: Writer, data: FunctionsAccessor) -> str:
    accuracy = with_interval(writer, data.overall, "confound_accuracy")
    text = f"A probe that sees only the answer's length and the kind of its first token gets {accuracy}"
    names = [name for name in data.mapped if data.of("confound_auroc", name) >= data.of("auroc_low", name)]
    if not names:
        return f"{text}; for no function does its AUROC reach the interval of the probe on all heads."
    rows = (f"{name} ({writer.fixed(data.of('confound_auroc', name), f'confound_auroc of {name}')})" for name in names)
    return (
        f"{text}. Its AUROC reaches the interval of the probe on all heads, or exceeds it, for {listed(rows)}: there the map "
        "may show the form of answers rather than the function."
    )


def _wording(writer: Writer, data: FunctionsAccessor) -> str:
    """A label that is no function, next to the functions."""
    if "wording_by_layer" not in data.dataset:
        return "This map is of an older version, which measured no label that is no function next to the functions."
    both = worded(data.dataset)
    if both is None:
        return "No function has enough steps of two wordings for a label that is no function."
    labels = ("function", "wording")
    means = {name: writer.fixed(float(both[f"{name}_by_layer"].mean()), f"mean {name}_by_layer") for name in labels}
    peaks = []
    curves = {name: both[f"{name}_by_layer"].mean(FUNCTION) for name in means}
    for name, curve in curves.items():
        layer = int(curve[LAYER].values[curve.values.argmax()])
        value = writer.fixed(float(curve.max()), f"peak {name}_by_layer")
        peaks.append(f"{value} in layer {writer.number(layer, f'peak-layer {name}_by_layer')}")
    higher = int((curves["wording"] >= curves["function"]).sum())
    functions = writer.count(both.sizes[FUNCTION], "worded", "function")
    no_better = float(both["wording_by_layer"].mean()) >= float(both["function_by_layer"].mean())
    verdict = ": that a function can be decoded from a head is no evidence that the head does more than see the words."
    return (
        f"A label that is no function, whether a step begins with the word that most steps of its function begin with, is "
        f"decoded from single heads with an AUROC of {means['wording']} on average over {functions} and all layers (at most "
        f"{peaks[1]}); the function itself, with as many steps, with {means['function']} (at most {peaks[0]}). The label is "
        f"decoded as well as the function, or better, in {writer.count(higher, 'worded-higher')} of "
        f"{writer.count(both.sizes[LAYER], 'layers', 'layer')}{verdict if no_better else '.'}"
    )


def _null(writer: Writer, data: FunctionsAccessor) -> str:
    shuffles = writer.count(int(data.dataset.attrs["shuffles"]), "shuffles", "permutation")
    if "map_p" not in data.dataset:
        return (
            f"The significance of importance is of an older version with {shuffles} of the labels, whose null was too easy: "
            "it marks heads far more often than its level says; build the map again with --redo functions."
        )
    least = writer.number(1 / (1 + int(data.dataset.attrs["shuffles"])), "least-q", digits=2)
    passed = sum(float(data.of("map_p", name)) < ALPHA for name in data.mapped)
    return (
        f"With {shuffles} of the labels no q is below {least}; {writer.count(passed, 'maps-beyond')} of "
        f"{writer.count(len(data.mapped), 'mapped', 'map')} as a whole lie beyond the maps of permuted labels (p < "
        f"{writer.number(ALPHA, 'constant')})."
    )


def _single_heads(writer: Writer, data: FunctionsAccessor) -> str:
    accuracy = data.dataset["single_head_accuracy"]
    (first,) = maps.strongest(accuracy, 1)
    at = {LAYER: first.layer, HEAD: first.head}
    value = with_interval(writer, lambda key: float(data.dataset[key].sel(at)), "single_head_accuracy", first.name)
    tied = others_as_large(accuracy, [first])
    ties = f" (tied with {writer.count(tied, 'tied-alone', 'other')})" if tied else ""
    heads = writer.count(int(accuracy.notnull().sum()), "total", "head")
    q = {name: data.dataset["single_head_q"].sel({FUNCTION: name}) for name in data.functions}
    shares = {name: float((values < ALPHA).sum() / values.notnull().sum()) for name, values in q.items()}
    low, high = _range(writer, shares, "alone", writer.percent)
    return (
        f"In a cross-validated probe on one head, {first.name}{ties} predicts {value} of all steps; this is optimistic, since "
        f"it is the best of {heads}. Between {low} and {high} of the heads distinguish a function from the others (q < "
        f"{writer.number(ALPHA, 'constant')})."
    )


def _range(writer: Writer, values: dict[str, float], source: str, write: Callable[[float, str], str]) -> list[str]:
    """The smallest and the largest value, each with all the functions that have it."""
    found = {end: best(values, smallest=end == "least") for end in ("least", "most")}
    return [
        f"{write(values[names[0]], f'{source} of {names[0]}')} ({named(names, writer, f'{end} {source}', 'function')})"
        for end, names in found.items()
    ]


def _sparsity(writer: Writer, data: FunctionsAccessor) -> str:
    half = data.scale.high / 2
    found = data.share_over(half)
    if not found.total:
        return ""
    total, upper = writer.count(found.total, "cells", "head x function cell"), writer.percent(found.share, "over-half")
    over = writer.percent(data.share_over(PUBLISHED_THRESHOLD).share, "over-published")
    return (
        f"Of {total}, {upper} are over {writer.number(half, 'half-cap')}, half of the colour scale, and {over} over "
        f"{writer.number(PUBLISHED_THRESHOLD, 'constant')}, the threshold of the published maps."
    )


def _shared(writer: Writer, data: FunctionsAccessor) -> str:
    owners = data.owners
    if len(data.mapped) < 2 or not owners:
        return ""
    shared = {head: functions for head, functions in owners.items() if len(functions) > 1}
    text = (
        f"{writer.count(len(owners), 'owned', 'head')} {'belongs' if len(owners) == 1 else 'belong'} to a function, "
        f"{writer.count(len(owners) - len(shared), 'exclusive')} to one only and {writer.count(len(shared), 'shared')} "
        "to several"
    )
    if not shared:
        return f"{text}."
    rows = [f"{head} ({', '.join(functions)})" for head, functions in list(shared.items())[:NAMED_SHARED_HEADS]]
    return f"{text}{', among them' if len(shared) > NAMED_SHARED_HEADS else ':'} {listed(rows)}."


def _similarity(writer: Writer, data: FunctionsAccessor) -> str:
    pairs = data.pairs()
    texts = [f"{a} and {b} ({writer.fixed(r, f'correlation of {a} | {b}')})" for a, b, r in pairs[:NAMED_PAIRS]]
    if len(pairs) < 2:
        return f"The correlation of the two maps over heads: {texts[0]}." if texts else ""
    (a, b, r), mean = pairs[-1], writer.fixed(sum(pair[2] for pair in pairs) / len(pairs), "mean-correlation")
    last = f"{a} and {b} ({writer.fixed(r, f'correlation of {a} | {b}')})"
    most_similar = ", ".join(texts[: len(pairs) - 1])
    return (
        f"By correlation over heads the most similar maps are those of {most_similar}; the least similar are those of "
        f"{last}. The mean over all pairs is {mean}."
    )


def _agreement(writer: Writer, data: FunctionsAccessor) -> str:
    values = {name: float(data.of("rank_correlation", name)) for name in data.mapped}
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    if not values:
        return ""
    low, high = _range(writer, values, "rank_correlation", writer.fixed)
    positive = sum(data.of("rank_correlation_low", name) > 0 for name in values)
    mean = writer.fixed(sum(values.values()) / len(values), "mean-rank_correlation")
    text = (
        f"The rank correlation between single-head probes and importance maps is {mean} on average, from {low} to {high}; its "
        f"interval is above zero for {writer.count(positive, 'sure')} of {writer.count(len(values), 'ranked', 'function')}."
    )
    seeds = [value for name in data.mapped if math.isfinite(value := float(data.of("agreement", name)))]
    if seeds:
        between = writer.fixed(sum(seeds) / len(seeds), "mean-agreement")
        text += f" The mean rank correlation between the maps of two seeds is {between}."
    return text


def _thirds(writer: Writer, data: FunctionsAccessor) -> str:
    trends = {name: maps.depth_trend(data.map(name)) for name in data.mapped}
    peaks = {name: trend.peak_third for name, trend in trends.items() if trend is not None}
    if len(data.layers) < MIN_LAYERS or not trends or len(peaks) < len(trends):
        return ""
    parts = []
    for third in maps.THIRDS:
        if names := [name for name, peak in peaks.items() if peak == third]:
            parts.append(f"in the {third} third for {listed(names) if len(names) < len(peaks) else 'every function'}")
    return f"The mean importance of a head is largest {'; '.join(parts)}."


describe = Narrative(
    "Which heads carry which function",
    FunctionsAccessor,
    (
        _overview,
        _axes,
        _details,
        (_probe, _form, _wording, _null, _single_heads, _sparsity, _blocks, _shared, _similarity, _agreement, _thirds),
        _caveats,
    ),
    _headline,
    anomalies=lambda writer, data: narrator.anomalies(writer, data.named_maps()),
    interpretation=_interpretation,
)
