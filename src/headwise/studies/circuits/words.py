"""Circuits in words: does the model solve the tasks, by which heads and edges, and how few are enough?

Every number is computed from the Dataset and recorded, with its source, in `Description.numbers`: "accuracy
induction" is that variable at that task, "needed heads induction" the size needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import CIRCUIT_SIZE, CONDITION, TASK, UNIT
from headwise.core.parsing import parse_attribute
from headwise.describe import maps, narrator
from headwise.describe.narrative import Narrative, reading
from headwise.describe.phrases import model_in
from headwise.describe.writer import Writer, listed
from headwise.figures.head_maps import NamedMap

MAX_NAMED = 3  # heads and edges per task
MIN_SHARE = 0.001  # below which a circuit explains next to nothing
GOOD_AGREEMENT = 0.8  # rank correlation between gradients and exact patching


def _tasks(dataset: xr.Dataset) -> list[str]:
    return [str(task) for task in dataset[TASK].values]


def _units(dataset: xr.Dataset) -> list[str]:
    return [str(unit) for unit in dataset[UNIT].values if bool(dataset["needed"].sel({UNIT: unit}).notnull().any())]


def _label(dataset: xr.Dataset, task: str) -> str:
    return str(dataset["label"].sel({TASK: task}).values)


def _reference(dataset: xr.Dataset) -> str:
    """The name of the reference model; empty where there is none."""
    return str(dataset["name"].values[1]) if dataset.sizes[CONDITION] > 1 else ""


def _overview(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    tasks = writer.count(dataset.sizes[TASK], "tasks", "small task")
    compared = f", compared with {_reference(dataset)}" if _reference(dataset) else ""
    yield f"The heads and edges that {model_in(dataset)} needs for {tasks}{compared}."


def _axes(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    counts = parse_attribute(dataset.attrs, "prompts", dict[str, int])
    ranking, measuring = (writer.count(counts[name], f"prompts {name}") for name in ("ranking", "measuring"))
    yield (
        "The score is the logit difference between right and wrong next tokens. Heads and edges are ranked by "
        f"their effect on it over {ranking} pairs of a clean and a corrupt prompt, by gradients between the two. On "
        f"{measuring} other pairs those in the circuit run on the clean prompt and all else is as on the corrupt one."
    )
    goal = writer.percent(float(dataset.attrs["goal"]), "goal")
    yield (
        "A circuit explains the share of the clean-corrupt difference that it retains; the size needed is the smallest "
        f"measured one from which on that share stays at {goal}. Ranges in brackets are 95 % intervals over prompts. An edge "
        "is all that one head, MLP or the logits read from one earlier head, MLP or the input."
    )


def _task(writer: Writer, dataset: xr.Dataset, task: str) -> str:
    one = dataset.sel({TASK: task})
    first = one.isel({CONDITION: 0})
    accuracy = writer.percent(float(first["accuracy"]), f"accuracy {task}")
    clean, corrupt = (writer.fixed(float(first[name]), f"{name} {task}") for name in ("clean", "corrupt"))
    heads = []
    for each in maps.strongest(abs(one["effect"]), MAX_NAMED):
        effect = float(one["effect"].sel(layer=each.layer, head=each.head))
        heads.append(f"{each.name} ({writer.fixed(effect, f'effect {task} {each.name}')})")
    text = (
        f'{_label(dataset, task)} (as in "{one["shown"].values}"): correct in {accuracy} of prompts (chance: half), with a '
        f"mean score of {clean} clean and {corrupt} corrupt; the heads with the largest effects are {listed(heads)}"
    )
    edges = [
        (str(name), float(value))
        for name, value in zip(first["edge"].values, first["edge_effect"].values, strict=True)
        if np.isfinite(value) and name
    ][:MAX_NAMED]
    if edges:
        named = (f"{name} ({writer.fixed(value, f'edge {task} {name}')})" for name, value in edges)
        text += f", and the edges from a head to a head or the logits {listed(named)}"
    return f"{text}."


def _sizes(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    """Sizes needed, and what as many at random explain."""
    for unit in _units(dataset):
        parts = []
        for task in _tasks(dataset):
            one = dataset.isel({CONDITION: 0}).sel({TASK: task, UNIT: unit})
            size, low, high = (
                writer.count(int(one[f"needed{end}"]), f"needed{end} {unit} {task}") for end in ("", "_low", "_high")
            )
            parts.append(f"{size} ({low} to {high}) for {_label(dataset, task)}")
        total = int(np.nanmax(dataset["size"].sel({UNIT: unit}).values))
        of = writer.count(total, f"all {unit}")
        goal = writer.percent(float(dataset.attrs["goal"]), "goal")
        yield f"Of {of} {unit}, {goal} of the difference needs {listed(parts)}."
        yield _random(writer, dataset, unit)


def _random(writer: Writer, dataset: xr.Dataset, unit: str) -> str:
    """The largest share that random circuits of at most the needed size explain, over tasks."""
    found = []
    for task in _tasks(dataset):
        one = dataset.isel({CONDITION: 0}).sel({TASK: task, UNIT: unit})
        within = one["random_size"].values <= float(one["needed"])
        shares = one["random"].transpose(CIRCUIT_SIZE).values[within]
        if np.isfinite(shares).any():
            found.append(float(np.nanmax(shares)))
    if not found:
        return ""
    largest = writer.percent(max(found), f"random {unit} most") if max(found) >= MIN_SHARE else "next to nothing"
    return f"Random {unit}, up to the same number, explain at most {largest} on any task."


def _ratios(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    if "ratio" not in dataset:
        return
    for unit in _units(dataset):
        parts = []
        for task in _tasks(dataset):
            one = dataset.sel({TASK: task, UNIT: unit})
            if not np.isfinite(float(one["ratio"])):
                continue
            ratio, low, high = (
                writer.number(float(one[f"ratio{end}"]), f"ratio{end} {unit} {task}", digits=2)
                for end in ("", "_low", "_high")
            )
            parts.append(f"{ratio} times ({low} to {high}) for {_label(dataset, task)}")
        if parts:
            models = f"Compared with {_reference(dataset)}, {model_in(dataset)}"
            yield f"{models} needs this multiple of its {unit}: {listed(parts)}."


def _shared(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    """Heads that are among the ten largest of several tasks."""
    if dataset.sizes[TASK] < 2:
        return
    among: dict[str, list[str]] = {}
    for task in _tasks(dataset):
        for each in maps.strongest(abs(dataset["effect"].sel({TASK: task})), 10):
            among.setdefault(each.name, []).append(task)
    shared = sorted((name for name in among if len(among[name]) > 1), key=lambda name: -len(among[name]))
    if shared:
        parts = [f"{name} (of {writer.count(len(among[name]), f'tasks of {name}', 'task')})" for name in shared[:5]]
        yield f"Among the ten largest effects of several tasks: {listed(parts)}."
    else:
        yield "No head is among the ten largest effects of two tasks."


def _caveats(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    found = dataset["agreement"].isel({CONDITION: 0}).values
    low, high = (
        writer.fixed(float(each), f"agreement {name}")
        for name, each in (("lowest", found.min()), ("highest", found.max()))
    )
    checked = writer.count(int(dataset["checked"].isel({CONDITION: 0}).max()), "checked", "head")
    word = "agrees well with" if found.min() >= GOOD_AGREEMENT else "agrees only in part with"
    yield (
        f"The ranking by gradients {word} exact patching: Spearman's correlation over {checked} is {low} to {high} between "
        "tasks. Shares and sizes are measured by exact patching."
    )
    yield (
        "Heads and edges are ranked by the absolute size of their effect, including those that work against the answer; tasks "
        "are templated, and a circuit holds for these prompts. MLPs are nodes of the graph of edges, and are not patched in "
        "circuits of heads."
    )
    if dataset.attrs["no_edges"]:
        yield f"Edges were not measured: {dataset.attrs['no_edges']}."
    refused = parse_attribute(dataset.attrs, "refused", dict[str, str])
    if refused:
        yield f"Left out: {'; '.join(f'{task} ({why})' for task, why in refused.items())}."
    unsolved = parse_attribute(dataset.attrs, "refused_by_reference", dict[str, str])
    if unsolved and _reference(dataset):
        parts = "; ".join(f"{_label(dataset, task)} ({why})" for task, why in unsolved.items())
        yield f"{_reference(dataset)} does not solve: {parts}."


def _anomalies(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    every = [NamedMap(task, _label(dataset, task), dataset["effect"].sel({TASK: task})) for task in _tasks(dataset)]
    return narrator.anomalies(writer, every)


def _interpretation(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    """Are the circuits small, and is the reference's smaller?"""
    one = dataset.isel({CONDITION: 0}).sel({UNIT: "heads"})
    most, total = int(one["needed"].max()), int(np.nanmax(dataset["size"].sel({UNIT: "heads"}).values))
    share = writer.percent(most / total, "needed-percent heads most")
    like = f"each of these tasks is done by a part of the model (at most {share} of its heads)"
    if most > total / 2:
        like = f"at least one of these tasks needs a large part of the model ({share} of its heads)"
    against = ["prompts are templated, and a circuit holds for these prompts"]
    found = dataset["agreement"].isel({CONDITION: 0}).values
    if found.min() < GOOD_AGREEMENT:
        low = writer.fixed(float(found.min()), "agreement lowest")
        against.append(
            f"the ranking by gradients agrees with exact patching only to {low} on one task, so a smaller circuit may exist"
        )
    yield from reading(like, against, "patch the same heads on other wordings of the task")


def _headline(writer: Writer, dataset: xr.Dataset) -> str:
    one = dataset.isel({CONDITION: 0}).sel({UNIT: "heads"})
    least, most = int(one["needed"].min()), int(one["needed"].max())
    low, high = writer.count(least, "needed heads least"), writer.count(most, "needed heads most")
    goal = writer.percent(float(dataset.attrs["goal"]), "goal")
    count = writer.count(dataset.sizes[TASK], "tasks", "task")
    sizes = low if low == high else f"{low} to {high}"
    return f"{model_in(dataset)} needs {sizes} heads to retain {goal} of the clean-corrupt difference on {count}."


describe = Narrative(
    "Heads and edges that a task needs",
    lambda dataset: dataset,
    (
        _overview,
        _axes,
        lambda writer, dataset: (_task(writer, dataset, task) for task in _tasks(dataset)),
        (_sizes, _ratios, _shared),
        _caveats,
    ),
    _headline,
    anomalies=_anomalies,
    interpretation=_interpretation,
)
