"""The figures of the relations study: what does each head compute, by its weights?

- ``kind="categories"``: All Categories, then one panel per category; x is the layer, y the head, one mark per head. Blue is
  Algorithmic, orange Knowledge, green Linguistic, red Translation; in the first panel heads of two categories are
  purple, of three brown, of four pink, and of none light grey. The legend is to the right of the first panel.
  ``style="paper"`` leaves the counts over the panels out.
- ``kind="relations"``: one map per relation, of the score or (``value="suppression"``) of the suppression score.
- ``kind="layers"``: how many heads of each layer belong to each category.

A head belongs to a category when its score or suppression score for one of the category's relations is above the
threshold, 0.15. ``beyond_null`` retains only scores that are also above every shuffle of the relation's own targets.

Source: Elhelo & Geva, arXiv 2412.11965.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import numpy as np
import xarray as xr

from headwise.core.dims import CATEGORY, HEAD, LAYER, RELATION
from headwise.core.parsing import parse_attribute
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Category, CategoryMap, Curve, Curves, Heatmap, Legend, Panel
from headwise.figures.provenance import cell_names
from headwise.figures.scale import ScaleMark, scale_over
from headwise.studies.relations.spec import PUBLISHED

VALUES = {"score": "Score", "suppression": "Suppression score"}
# as published, moved a little so that readers with any colour vision can tell them apart (tests/figures/test_colour_vision.py)
COLOURS = {"algorithmic": "#1773ad", "knowledge": "#ff8110", "linguistic": "#25a039", "translation": "#d62728"}
OTHERS = ("#17becf", "#bcbd22", "#444444")  # categories of a user's own
SEVERAL = ("#9c72cf", "#8c564b", "#e377c2", "#111111")  # two, three, four, more
NONE = "#dcdcdc"
NUMBERS = ("2", "3", "4", "5 or more")
MAX_COLUMNS = 5


def figure(
    dataset: xr.Dataset,
    *,
    kind: str = "categories",
    value: str = "score",
    relations: Iterable[str] | str | None = None,
    beyond_null: bool = False,
    style: str = "full",
) -> Figure:
    """The categories of all heads; with another ``kind``, maps of single relations (None: all), or counts by layer."""
    if kind == "relations":
        return _relations(dataset, chosen_keys(dataset, RELATION, relations, "The relations study"), value)
    if kind == "layers":
        return _layers(dataset, beyond_null)
    found = _categories(dataset, beyond_null)
    return found.without_subtitles() if style == "paper" else found


def _categories(dataset: xr.Dataset, beyond_null: bool) -> Figure:
    names = [str(name) for name in dataset[CATEGORY].values]
    member, measured = _member(dataset, beyond_null), _measured(dataset)
    counts = member.sum(0)
    colours = _colours(names)
    max_count = max(int(counts.max(initial=0)), 1)
    every = np.where(counts == 1, 1 + member.argmax(0), np.where(counts > 1, len(names) + np.minimum(counts, 5) - 1, 0))
    legend = [Category("none", "Unclassified", NONE, "dot")]
    legend += [Category(name, _label(name), colours[name], "dot") for name in names]
    several = [Category(str(n), f"{NUMBERS[n - 2]} categories", SEVERAL[n - 2], "dot") for n in range(2, 6)]
    shown = [one for one in several if int(one.key) <= max(4, max_count)][: max(len(names) - 1, 0)]
    missing = () if measured.all() else (Category("missing", "No such head", sign="texture"),)
    panels: list[Panel] = [
        _map(dataset, "all", "All Categories", every, (*legend, *several), measured, counts > 0),
        Legend("legend", (*legend[1:], *shown, legend[0], *missing)),
    ]
    for index, name in enumerate(names):
        pair = (Category("other", "Other heads", NONE, "dot"), Category(name, _label(name), colours[name], "dot"))
        panels.append(_map(dataset, name, _label(name), member[index].astype(int), pair, measured, member[index]))
    return _figure(dataset, panels, 2, _notes(dataset, beyond_null))


def _map(
    dataset: xr.Dataset, key: str, title: str, values: np.ndarray, categories: tuple[Category, ...],
    measured: np.ndarray, member: np.ndarray,
) -> CategoryMap:  # fmt: skip
    total, count = int(measured.sum()), int((member & measured).sum())
    best = dataset["best_score"].transpose(HEAD, LAYER).values
    return CategoryMap(
        key=key,
        title=title,
        subtitle=f"{count} of {total} heads ({100 * count / max(total, 1):.0f}\u00a0%)",
        values=np.where(measured, values, -1),
        categories=categories,
        x=Axis("Layer", cell_names(dataset, LAYER)),
        y=Axis("Head", cell_names(dataset, HEAD)),
        shape="dot",
        extras={"best score": best},
    )


def _relations(dataset: xr.Dataset, keys: list[str], value: str) -> Figure:
    chosen = dataset.sel({RELATION: keys})
    threshold = float(dataset.attrs["threshold"])
    scale = scale_over(chosen[value].values, VALUES[value], ceiling=1.0, marks=(ScaleMark(threshold, "threshold"),))
    panels = [_heatmap(chosen.sel({RELATION: key}), key, value, threshold) for key in keys]
    notes = [f"Each cell is one head. {VALUES[value]}: {_meaning(dataset, value)}. The scale mark is {threshold:g}."]
    return _figure(dataset, list(panels), min(MAX_COLUMNS, len(keys)), notes, scales={value: scale})


def _heatmap(one: xr.Dataset, key: str, value: str, threshold: float) -> Heatmap:
    one = one.transpose(HEAD, LAYER, ...)
    count = int((one[value].values > np.float32(threshold)).sum())
    extras = {name: one[f"{value}_{name}"].values for name in ("low", "high", "null", "null_high")}
    return Heatmap(
        key=key,
        title=key,
        subtitle=f"{count} {'head' if count == 1 else 'heads'} > {threshold:g}; {int(one['pairs'])} pairs",
        values=one[value].values,
        x=Axis("Layer", cell_names(one, LAYER)),
        y=Axis("Head", cell_names(one, HEAD)),
        scale=value,
        extras=extras,
    )


def _layers(dataset: xr.Dataset, beyond_null: bool) -> Figure:
    names = [str(name) for name in dataset[CATEGORY].values]
    member, colours = _member(dataset, beyond_null), _colours(names)
    layers = dataset[LAYER].values.astype(float)
    lines = {name: member[index].sum(0) for index, name in enumerate(names)}
    curves = [Curve(name, _label(name), layers, count, colour=colours[name]) for name, count in lines.items()]
    any_of = Curve("any", "Any category", layers, member.any(0).sum(0), colour="#222222", style="dashed")
    panel = Curves(
        key="layers",
        title="Heads by layer",
        subtitle=f"of {dataset.sizes[HEAD]} heads per layer",
        curves=(*curves, any_of),
        x=Axis("Layer"),
        y=Axis("Heads", low=0),
    )
    return _figure(dataset, [panel], 1, _notes(dataset, beyond_null))


def _figure(dataset: xr.Dataset, panels: list[Panel], columns: int, notes: list[str], **rest: object) -> Figure:
    return Figure(
        title=dataset.attrs.get("title") or "What each head computes, from its weights",
        panels=tuple(panels),
        columns=columns,
        notes=(" ".join(note for note in notes if note),),
        **rest,  # type: ignore[arg-type]
    )


class UsedRelation(TypedDict):
    """How many pairs of a relation are usable, and why the others are not; an entry of the attribute ``kept``."""

    relation: str
    category: str
    given: int
    kept: int
    counts: bool
    dropped: dict[str, int]


def _notes(dataset: xr.Dataset, beyond_null: bool) -> list[str]:
    threshold, shuffles = float(dataset.attrs["threshold"]), int(dataset.attrs["shuffles"])
    report: list[UsedRelation] = parse_attribute(dataset.attrs, "kept", list[UsedRelation])
    counted = [one for one in report if one["counts"]]
    rate = float(np.mean([float(dataset[f"{sign}_false_positive"].mean()) for sign in VALUES]))
    left = f" of {len(report)}" if len(counted) < len(report) else ""
    rule = f", and above each of {shuffles} shuffles of that relation's targets" if beyond_null else ""
    return [
        f"A head is in a category when, for one of its relations, more than {100 * threshold:g} % of the pairs have their "
        f"target among the k tokens the head promotes or suppresses most{rule}; {len(counted)}{left} relations, "
        f"{int(dataset['pairs'].sum())} pairs, k {_ks(dataset)}.",
        f"With shuffled targets {100 * rate:.2g} % of all head x relation scores pass." if np.isfinite(rate) else "",
        _shuffled_heads(dataset),
    ]


def classified_by(dataset: xr.Dataset, relations: list[str]) -> int:
    """How many heads have a score of either sign above the threshold for one of these relations."""
    threshold, some = np.float32(dataset.attrs["threshold"]), dataset.sel({RELATION: relations})
    return int(((some["score"] > threshold) | (some["suppression"] > threshold)).any(RELATION).sum())


def published_relations(dataset: xr.Dataset) -> list[str]:
    """The relations that are among the paper's twenty."""
    return [str(name) for name in dataset[RELATION].values if str(name) in PUBLISHED]


def _shuffled_heads(dataset: xr.Dataset) -> str:
    names, paper = [str(name) for name in dataset[RELATION].values], published_relations(dataset)
    every, few = classified_by(dataset, names), classified_by(dataset, paper)
    split = f"{every} heads are classified by all {len(names)} relations, {few} by the {len(paper)} of the paper's twenty alone"
    if "null_heads" not in dataset:
        return f"{split}." if paper else ""
    null, alone = dataset["null_heads"].values, dataset["null_heads_published"].values
    shuffled = f"a shuffle of the targets classifies {null.mean():.1f} ({null.min()} to {null.max()})"
    if not paper:
        return f"{every} heads are classified; {shuffled}."
    return f"{split}; {shuffled}, and {alone.mean():.1f} ({alone.min()} to {alone.max()}) by those alone."


def _ks(dataset: xr.Dataset) -> str:
    return " or ".join(str(k) for k in sorted({int(k) for k in dataset["k"].values}))


def _meaning(dataset: xr.Dataset, value: str) -> str:
    side = "most" if value == "score" else "least (so suppresses)"
    return f"share of pairs whose target is among the k ({_ks(dataset)}) tokens that the head promotes {side}"


def _member(dataset: xr.Dataset, beyond_null: bool) -> np.ndarray:
    """(category, head, layer) bool."""
    one = dataset["member_beyond_null"] if beyond_null else dataset["member"] | dataset["member_suppression"]
    found: np.ndarray = one.transpose(CATEGORY, HEAD, LAYER).values.astype(bool)
    return found


def _measured(dataset: xr.Dataset) -> np.ndarray:
    """(head, layer) bool: whether there is such a head."""
    return np.isfinite(dataset["best_score"].transpose(HEAD, LAYER).values)


def _colours(names: list[str]) -> dict[str, str]:
    own = iter(OTHERS * len(names))
    return {name: COLOURS.get(name) or next(own) for name in names}


def _label(name: str) -> str:
    return name[:1].upper() + name[1:]
