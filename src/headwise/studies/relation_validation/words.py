"""The relation validation in words: are the scores from weights confirmed in texts, and by ablation?

Every number is computed from the Dataset and recorded, with its source, in `Description.numbers`: "pearson_forced
antonym" is that variable at that relation, "own plural 8" the accuracy at a task and number of heads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import RELATION, REMOVED, TASK
from headwise.core.parsing import parse_attribute
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_in, with_interval
from headwise.describe.writer import Writer, listed
from headwise.figures.provenance import provenance_of
from headwise.stats import minimum_detectable_gain
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.multiple_testing import ALPHA

READINGS = {"natural": "with the attention as it is", "forced": "with all attention forced onto the source"}
MAX_HIGHEST, MAX_LOWEST = 5, 3  # relations named
CONTROL_SENTENCES = {  # by `same_layers`
    False: "Random heads are drawn from all layers, regardless of the layers of the relation's heads: what they show may be a "
    "matter of depth.",
    True: "Random heads are drawn from the layers of the heads that they replace.",
}
COARSE_PROMPTS = 50  # below which a share is called coarse


def _tasks(dataset: xr.Dataset) -> list[str]:
    return [str(name) for name in dataset[TASK].values]


def _at(dataset: xr.Dataset, variable: str, name: str) -> float:
    dim = TASK if TASK in dataset[variable].dims else RELATION
    return float(dataset[variable].sel({dim: name}))


def _ranged(writer: Writer, dataset: xr.Dataset, variable: str, name: str) -> str:
    """A value with its interval."""
    return with_interval(writer, lambda key: _at(dataset, key, name), variable, name)


def _overview(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    relations = writer.count(dataset.sizes[RELATION], "relations", "relation")
    tasks = writer.count(dataset.sizes[TASK], "tasks", "few-shot task")
    yield (
        f"Whether the heads of {model_in(dataset)} do in texts what their weights say, for {relations}; and what {tasks} "
        "lose when a relation's heads are ablated at the last token."
    )


def _axes(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    yield (
        "A head finds a target when it is among the k tokens that its output at the last token promotes most, without the "
        "final norm. The share of prompts where it does is correlated over all heads with the score from weights; ranges "
        "in brackets are 95 % intervals."
    )
    yield (
        "The effect is how much more accuracy the relation's own task loses when its heads are ablated than when as many "
        "random heads are, averaged over all numbers of ablated heads; the side effect is the same for the other tasks."
    )


def _details(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    for reading in READINGS:
        yield from _correlations(writer, dataset, reading)
    for name in _tasks(dataset):
        yield _task(writer, dataset, name)


def _correlations(writer: Writer, dataset: xr.Dataset, reading: str) -> Iterator[str]:
    variable = f"pearson_{reading}"
    found = [
        (str(name), float(value))
        for name, value in zip(dataset[RELATION].values, dataset[variable].values, strict=True)
    ]
    ranked = sorted((row for row in found if np.isfinite(row[1])), key=lambda row: -row[1])
    if not ranked:
        yield f"{READINGS[reading].capitalize()}, no correlation could be computed."
        return
    named = ranked if len(ranked) <= MAX_HIGHEST + MAX_LOWEST else ranked[:MAX_HIGHEST]
    text = listed(f"{name} {_ranged(writer, dataset, variable, name)}" for name, _ in named)
    lowest = ""
    if len(ranked) > len(named):
        rows = (f"{name} {_ranged(writer, dataset, variable, name)}" for name, _ in ranked[-MAX_LOWEST:])
        lowest = f"; the lowest are {listed(rows)}"
    yield f"{READINGS[reading].capitalize()}, the highest correlations are {text}{lowest}."
    missing = [name for name, value in found if not np.isfinite(value)]
    if missing:
        yield f"No correlation for {listed(missing)}: no head finds a target, or all find the same."


def _task(writer: Writer, dataset: xr.Dataset, name: str) -> str:
    one = dataset.sel({TASK: name})
    known = np.flatnonzero(np.isfinite(one["own"].values))
    prompts = writer.count(int(one["asked"]), f"asked {name}", "prompt")
    if not known.size:
        return f"{name}: no head has a score for it, so none was ablated."
    parts = []
    for index in dict.fromkeys((int(known[0]), int(known[len(known) // 2]), int(known[-1]))):
        step = int(one[REMOVED].values[index])
        heads = writer.count(step, f"removed {name}", "head")
        own, random = (
            writer.fixed(float(one[kind].values[index]), f"{kind} {name} {step}") for kind in ("own", "random")
        )
        parts.append(f"{own} without {heads} (random: {random})")
    effect = _ranged(writer, dataset, "effect", name)
    if "rank_p" in dataset:
        p = writer.number(_at(dataset, "rank_p", name), f"rank_p {name}", digits=2)
        q = writer.number(_at(dataset, "rank_q", name), f"rank_q {name}", digits=2)
        effect += f" (rank among the draws: p = {p}, over all tasks q = {q})"
    spill = (
        f", side effect {_ranged(writer, dataset, 'spill', name)}" if np.isfinite(_at(dataset, "spill", name)) else ""
    )
    return f"{name}, {prompts}: accuracy {listed(parts)}; effect {effect}{spill}."


def _observations(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    for reading in READINGS:
        values, low = dataset[f"pearson_{reading}"].values, dataset[f"pearson_{reading}_low"].values
        if not np.isfinite(values).any():
            continue
        own = writer.fixed(float(np.nanmean(values)), f"mean pearson_{reading}")
        sure = writer.count(int((low > 0).sum()), f"sure {reading}")
        total = writer.count(int(np.isfinite(values).sum()), f"known {reading}")
        other = dataset[f"other_{reading}"].values
        control = ""
        if np.isfinite(other).any():
            mean = writer.fixed(float(np.nanmean(other)), f"mean other_{reading}")
            control = f"; with the scores of the other relations, the control, it is {mean}"
        yield (
            f"{READINGS[reading].capitalize()}, the mean correlation is {own}, and in {sure} of {total} relations the "
            f"interval is above 0{control}."
        )
    yield from (_needed(writer, dataset), _power(writer, dataset), _apart(writer, dataset))


def _needed(writer: Writer, dataset: xr.Dataset) -> str:
    names = needed(dataset)
    if not _tasks(dataset):
        return ""
    total = writer.count(dataset.sizes[TASK], "tasks", "task")
    if not names:
        return (
            f"In none of {total} does ablating the relation's heads cost significantly more than ablating random ones."
        )
    count = writer.count(len(names), "needed")
    return f"Ablating a relation's heads costs more than ablating random ones in {count} of {total}: {listed(names)}."


def _power(writer: Writer, dataset: xr.Dataset) -> str:
    """What the prompts could have shown."""
    width = {name: _at(dataset, "effect_high", name) - _at(dataset, "effect_low", name) for name in _tasks(dataset)}
    found = {name: minimum_detectable_gain(one / (2 * HALF_WIDTH)) for name, one in width.items() if np.isfinite(one)}
    if not found:
        return ""
    low, high = (f(found, key=lambda name: found[name]) for f in (min, max))
    ends = [f"{writer.fixed(found[name], f'detectable {name}')} ({name})" for name in (low, high)]
    return f"The smallest effect that these prompts would find with 80 % power is between {ends[0]} and {ends[1]}."


def _apart(writer: Writer, dataset: xr.Dataset) -> str:
    names = specific(dataset)
    if not needed(dataset):
        return ""
    if not names:
        return "The effect is significantly larger than the side effect in none of them: the heads matter to other tasks, too."
    count = writer.count(len(names), "specific")
    return f"The effect is significantly larger than the side effect in {count}: {listed(names)}."


def needed(dataset: xr.Dataset) -> list[str]:
    """Tasks whose effect is above 0 with its whole interval, and whose heads rank among the first 5 % of the draws."""
    first = {name: "rank_p" not in dataset or _at(dataset, "rank_p", name) < ALPHA for name in _tasks(dataset)}
    return [name for name in _tasks(dataset) if _at(dataset, "effect_low", name) > 0 and first[name]]


def specific(dataset: xr.Dataset) -> list[str]:
    """Of those, the ones whose interval is above that of the spill."""
    return [name for name in needed(dataset) if _at(dataset, "effect_low", name) > _at(dataset, "spill_high", name)]


def _caveats(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    prompts = int(dataset["prompts"].values.min())
    if prompts < COARSE_PROMPTS:
        yield f"Shares in texts are computed from as few as {writer.count(prompts, 'fewest prompts', 'prompt')}."
    yield (
        "A correlation over heads depends on the few heads with a high score, and similar relations share heads; its "
        "interval is over heads, and other prompts would change it as well where scores are small. Tasks use only prompts "
        "that the whole model completes correctly, so any ablation can only lower their accuracy: the random heads show by "
        f"how much. {CONTROL_SENTENCES[bool(provenance_of(dataset).get('parameters', {}).get('same_layers'))]}"
    )
    unsolved = parse_attribute(dataset.attrs, "unsolved", dict[str, list[int]])
    if unsolved:
        rows = (
            f"{name} ({writer.count(right, f'unsolved {name}')} of {writer.count(tried, f'tried {name}')})"
            for name, (right, tried) in unsolved.items()
        )
        yield f"The model solves too few prompts of {listed(rows)}; these tasks were left out."
    yield "This is one model, with one set of templates."


def _mean(writer: Writer, dataset: xr.Dataset, reading: str) -> str:
    """The mean correlation of a reading; empty where there is none."""
    values = dataset[f"pearson_{reading}"].values
    known = int(np.isfinite(values).sum())
    if not known:
        return ""
    relations = writer.count(known, f"known {reading}", "relation")
    return f"{writer.fixed(float(np.nanmean(values)), f'mean pearson_{reading}')} {READINGS[reading]} ({relations})"


def _mean_in_short(writer: Writer, dataset: xr.Dataset, reading: str) -> str:
    """The mean correlation of a reading, for the headline."""
    values = dataset[f"pearson_{reading}"].values
    if not np.isfinite(values).any():
        return ""
    return f"{writer.fixed(float(np.nanmean(values)), f'mean pearson_{reading}')} {READINGS[reading]}"


def _headline(writer: Writer, dataset: xr.Dataset) -> str:
    model = model_in(dataset)
    means = [text for reading in READINGS if (text := _mean_in_short(writer, dataset, reading))]
    first = f"Scores from weights of {model} against texts."
    if means:
        first = f"Scores from weights of {model} correlate with texts by {listed(means)}."
    if not _tasks(dataset):
        return first
    count = writer.count(len(needed(dataset)), "needed")
    total = writer.count(dataset.sizes[TASK], "tasks", "task")
    return f"{first} A relation's heads cost more than random ones in {count} of {total}."


describe = Narrative(
    "Scores from weights, checked on texts",
    lambda dataset: dataset,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
