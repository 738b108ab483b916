"""The figures of the patterns study: what do the attention maps look like, of one model or of two?

figure(dataset)                                  every head's map in a grid, "MODEL" above "Sparse MODEL"
figure(dataset, heads="L3H1,L5H2")               these heads, in this order
figure(dataset, heads="L3H1", reference_heads="L5H2")   other heads of the second model
figure(dataset, top=24, by="change")             the heads that changed most
figure(dataset, by="circuits.greater_than", circuits=...)   the heads of a task's circuit in each model, in order of rank
figure(dataset, grid="8x16")                     8 rows of 16 tiles, one after the other
figure(dataset, style="paper")                   as published: the heads of a circuit in each model, named, 16 to a row
figure(dataset, average=True)                    the average over prompts instead of the shown prompt
figure(dataset, head="L5H2")                     one head, large, with the tokens on both axes
figure(dataset, numbers=True)                    layer x head maps of the statistics, and of their change

In a grid, white is no weight and what the mask hides is a texture; both models share one scale. Source of the grid: the figure
of Draye, Lei et al., arXiv 2512.05865.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from headwise.core.dims import CONDITION, HEAD, LAYER, STATISTIC, TASK, UNIT, head_name, parse_heads
from headwise.core.errors import DataError, StudyError, did_you_mean
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Heatmap, Mark
from headwise.figures.provenance import cell_names, provenance_of
from headwise.figures.scale import Scale, ScaleMark, scale_around, scale_over
from headwise.figures.tiles import Tiles, pooled, scale_end, to_levels
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.spec import FigureVariant

Head = tuple[int, int]


def variants_of(dataset: xr.Dataset, variants: Sequence[FigureVariant]) -> Sequence[FigureVariant]:
    """All variants; without a second model nothing has changed."""
    return [one for one in variants if one.key != "changed" or dataset.sizes.get(CONDITION, 1) > 1]


def figure(
    dataset: xr.Dataset,
    *,
    heads: Iterable[str] | str | None = None,
    top: int | None = None,
    by: str | None = None,
    average: bool = False,
    head: str | None = None,
    numbers: bool = False,
    statistics: Iterable[str] | str | None = None,
    reference_heads: Iterable[str] | str | None = None,
    grid: str | None = None,
    style: str = "full",
    circuits: xr.Dataset | None = None,
) -> Figure:
    """One of the three figures above; the subtitle and note of a grid name its heads.

    ``by`` is "change" (also called "similarity"), a statistic, a statistic with the suffix _change, or "circuits." and a task
    of the study circuits, whose Dataset is ``circuits``.
    """
    if head is not None:
        return head_figure(dataset, head)
    if numbers or statistics is not None:
        return numbers_figure(dataset, statistics)
    choice = _choice(dataset, heads, reference_heads, top, by, style == "paper", circuits)
    found = grid_figure(dataset, choice, _grid_shape(grid, choice, style == "paper"), average)
    return replace(found, subtitle="") if style == "paper" else found


DEFAULT_TOP = 24  # heads, where only `by` is given
MAX_PANEL_PIXELS = 1_200_000
MIN_TILE, MAX_TILE = 16, 64  # side in pixels
CIRCUITS = "circuits"  # the study whose circuits may choose heads
PUBLISHED_COLUMNS = 16  # tiles in a row, at which their names fit


class Choice(NamedTuple):
    """Which heads are drawn."""

    heads: list[list[Head]]  # of each condition
    which: str  # in words; empty for all
    everyone: bool  # in a grid of layers by heads, unless one of another shape is asked for


def grid_figure(dataset: xr.Dataset, choice: Choice, shape: tuple[int, int] | None, average: bool) -> Figure:
    """The chosen heads of each condition, in ``shape`` rows and columns of tiles; None: as they fit."""
    most = max(map(len, choice.heads))
    size = min(max(int(math.sqrt(MAX_PANEL_PIXELS / most)), MIN_TILE), MAX_TILE)
    maps = dataset["average" if average else "shown"]
    pictures = [_pictures(maps.isel({CONDITION: index}), heads, size) for index, heads in enumerate(choice.heads)]
    scale = _grid_scale(pictures, average)
    panels = tuple(
        _grid_panel(dataset, name, to_levels(picture, scale.low, scale.high), choice, index, shape)
        for index, (name, picture) in enumerate(zip(names_of(dataset), pictures, strict=True))
    )
    shown = f" Shown: {choice.which}." if choice.which else ""
    return Figure(
        title=str(dataset.attrs.get("title") or "What the attention maps look like"),
        panels=panels,
        columns=1,
        scales={"weight": scale},
        subtitle=choice.which[:1].upper() + choice.which[1:],
        notes=(_grid_note(dataset, average, pictures[0].shape[-1]) + shown,),
    )


def _choice(
    dataset: xr.Dataset, heads: Iterable[str] | str | None, reference_heads: Iterable[str] | str | None,
    top: int | None, by: str | None, published: bool, circuits: xr.Dataset | None,
) -> Choice:  # fmt: skip
    """The heads to show."""
    everyone, count = all_heads(dataset), dataset.sizes[CONDITION]
    if reference_heads is not None and count < 2:
        raise StudyError(
            "These patterns are of one model; leave out reference_heads, or build them with --reference MODEL."
        )
    if heads is not None or reference_heads is not None:
        lists = [everyone if one is None else chosen_heads(dataset, one) for one in (heads, reference_heads or heads)]
        numbers = dict.fromkeys(str(len(one)) for one in lists[:count])
        return Choice(lists[:count], f"{' and '.join(numbers)} of {len(everyone)} heads, as requested", False)
    if by is None and published and circuits is not None and top is None:
        by = CIRCUITS
    if by is not None and by.partition(".")[0] == CIRCUITS:
        return _circuit(dataset, circuits, by.partition(".")[2], top)
    if top is None and by is None:
        return Choice([everyone] * count, "", True)
    ranked, which = ranked_heads(dataset, by, DEFAULT_TOP if top is None else top)
    return Choice([ranked] * count, which, False)


def _circuit(dataset: xr.Dataset, circuits: xr.Dataset | None, task: str, top: int | None) -> Choice:
    """The heads of a task's circuit in each condition: as many of the largest effects as explain the goal, largest first.

    Without a task, the first for which every condition has a circuit.
    """
    if circuits is None:
        raise StudyError(
            "This atlas has no circuits; add them with headwise build --studies circuits -o ATLAS, or choose heads another way."
        )
    names, known = names_of(dataset), [str(name) for name in circuits["name"].values]
    if known[: len(names)] != names:
        raise StudyError(
            f"The circuits are of {' and '.join(known)}, the patterns of {' and '.join(names)}; build both with the same "
            "reference."
        )
    needed = circuits["needed"].sel({UNIT: "heads"}).isel({CONDITION: slice(len(names))})
    solved = [str(name) for name in circuits[TASK].values if bool(needed.sel({TASK: name}).notnull().all())]
    if not solved:
        raise StudyError("No task has a circuit in both models; choose heads another way.")
    task = task or solved[0]
    if task not in solved:
        raise StudyError(f"There is no circuit of a task {task!r}. {did_you_mean(task, solved)}")
    lists = []
    for index, effects in enumerate(("effect", "reference_effect")[: len(names)]):
        size = int(needed.isel({CONDITION: index}).sel({TASK: task}))
        found = strongest_cells(abs(circuits[effects].sel({TASK: task})), min(size, top or size))
        lists.append([head for head in found if head in set(all_heads(dataset))])
    label, goal = circuits["label"].sel({TASK: task}).values, float(circuits.attrs["goal"])
    sizes = " and ".join(f"{len(one)} in {name}" for one, name in zip(lists, names, strict=True))
    cut = f", of these the first {top}" if top else ""
    return Choice(
        lists, f"the circuit of the task “{label}”, as many of the largest effects as explain {100 * goal:g} %{cut}: {sizes}",
        False,
    )  # fmt: skip


def _grid_shape(grid: str | None, choice: Choice, published: bool) -> tuple[int, int] | None:
    """Rows and columns of tiles; None: as they fit."""
    most = max(map(len, choice.heads))
    if grid is None:
        columns = min(most, PUBLISHED_COLUMNS)
        return (-(-most // columns), columns) if published else None
    match = re.fullmatch(r"\s*(\d+)\s*[x×]\s*(\d+)\s*", grid)
    rows, columns = map(int, match.groups()) if match else (0, 0)
    if rows < 1 or columns < 1:
        raise StudyError(f"--grid takes rows x columns of tiles, such as 8x16, not {grid!r}.")
    if rows * columns < most:
        raise StudyError(
            f"A grid of {rows} x {columns} has {rows * columns} places for {most} heads; choose a larger one."
        )
    return rows, columns


def strongest_cells(values: xr.DataArray, count: int) -> list[Head]:
    """The cells with the largest values, largest first."""
    array = values.transpose(LAYER, HEAD).values
    order = np.argsort(np.where(np.isfinite(array), -array, np.inf), axis=None, kind="stable")[:count]
    return [(int(index) // array.shape[1], int(index) % array.shape[1]) for index in order]


def _pictures(maps: xr.DataArray, heads: list[Head], size: int) -> np.ndarray:
    """(head, row, column), NaN where the mask hides."""
    values = maps.transpose(LAYER, HEAD, ...).values
    return np.stack([pooled(values[layer, head].astype(np.float32), size) for layer, head in heads])


def _grid_scale(pictures: list[np.ndarray], average: bool) -> Scale:
    """From 0 to a quantile of the weights: the maximum is always 1, in the first row."""
    seen = np.concatenate([picture[np.isfinite(picture)] for picture in pictures])
    high = scale_end(seen)
    label = "Attention weight, mean over prompts" if average else "Attention weight"
    return Scale(label, 0.0, high, "Blues", over=bool(seen.max() > high * (1 + 1e-3)))


def _grid_panel(
    dataset: xr.Dataset, name: str, levels: np.ndarray, choice: Choice, index: int, shape: tuple[int, int] | None
) -> Tiles:
    """One condition. All heads in a grid of layers by heads, the longer side across; chosen ones one after the other."""
    heads, layers, width = choice.heads[index], dataset.sizes[LAYER], dataset.sizes[HEAD]
    whole, upright = choice.everyone and shape is None and len(heads) == layers * width, layers >= width
    order = np.arange(len(heads))
    most = max(map(len, choice.heads))
    columns = min(most, max(6, math.ceil(math.sqrt(2.2 * most)))) if shape is None else shape[1]
    rows_of, columns_of = ("", 0), ("", 0)
    if whole:
        columns = layers if upright else width
        order = order.reshape(layers, width).T.ravel() if upright else order
        sides = (("Head", width), ("Layer", layers))
        rows_of, columns_of = sides if upright else sides[::-1]
    return Tiles(
        key=str(dataset[CONDITION].values[index]),
        title=name,
        levels=levels[order],
        names=tuple(head_name(*heads[place]) for place in order),
        columns=columns,
        scale="weight",
        row_name=rows_of[0],
        row_labels=_indices(rows_of[1]),
        column_name=columns_of[0],
        column_labels=_indices(columns_of[1]),
    )


def _indices(size: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(size))


def _grid_note(dataset: xr.Dataset, average: bool, pixels: int) -> str:
    if average:
        what = f"Each tile is one head's attention map, the average over {prompts_of(dataset)}"
        length = None
    else:
        tokens = [str(token) for token in dataset["token_text"].values]
        text = provenance_of(dataset).get("parameters", {}).get("prompt") or "".join(tokens)
        shown = text if len(text) <= 120 else f"{text[:119]}…"
        what, length = (
            f"Each tile is one head's attention map of the prompt “{shown}” ({len(tokens)} tokens)",
            len(tokens),
        )
    small = length is None or length > pixels
    pooled_note = f", drawn in {pixels} x {pixels} pixels by the largest weight in each" if small else ""
    return (
        f"{what}{pooled_note}. Rows are query tokens, from the top; columns are key tokens, from the left. "
        "White: no weight. Strokes: hidden by the mask."
    )


HEAD_STATISTICS = ("diagonal", "first", "peak", "active")  # numbers written over a map


def head_figure(dataset: xr.Dataset, name: str) -> Figure:
    """One head of every condition."""
    (head, *_) = chosen_heads(dataset, name)
    labels = token_labels(dataset)
    maps = dataset["shown"].isel({LAYER: head[0], HEAD: head[1]}).values.astype(np.float32)
    panels = tuple(
        Heatmap(
            key=str(dataset[CONDITION].values[index]),
            title=condition,
            subtitle=_head_statistics(dataset, index, head),
            values=maps[index],
            x=Axis("Key token", labels),
            y=Axis("Query token", labels),
            scale="weight",
            missing="hidden by the mask",
        )
        for index, condition in enumerate(names_of(dataset))
    )
    return Figure(
        title=f"Attention of {head_name(*head)}",
        panels=panels,
        columns=len(panels),
        scales={"weight": Scale("Attention weight", 0.0, 1.0, "Blues")},
        notes=(_head_note(dataset, head, len(labels)),),
    )


def _head_statistics(dataset: xr.Dataset, index: int, head: tuple[int, int]) -> str:
    one = dataset["value"].isel({CONDITION: index, LAYER: head[0], HEAD: head[1]})
    return ", ".join(f"{key} {float(one.sel({STATISTIC: key})):.2g}" for key in HEAD_STATISTICS)


def _head_note(dataset: xr.Dataset, head: tuple[int, int], rows: int) -> str:
    tokens = dataset.sizes["token"]
    pooled_note = f", {tokens} tokens in {rows} rows by the largest weight in each" if tokens > rows else ""
    text = f"Map of the shown prompt{pooled_note}; numbers above are means over {prompts_of(dataset)}."
    text += " Strokes: hidden by the mask."
    if "similarity" in dataset:
        at = {LAYER: head[0], HEAD: head[1]}
        alike, other = (float(dataset[name].isel(at)) for name in ("similarity", "other"))
        text += f" Similarity of the two maps (1 − Jensen-Shannon, over the prompts): {alike:.2f}"
        text += f"; with the next head of the layer: {other:.2f}" if np.isfinite(other) else ""
        text += f"; with the first token counted as nowhere: {float(dataset['elsewhere'].isel(at)):.2f}."
    return text


MAX_MARKED_CELLS = 1200  # in larger maps the cells are too small for dots
LETTERS = ("A", "B")  # the two conditions, whose names are too long to stand over a map
UNBOUNDED = ("off_diagonal",)
EQUAL = 1e-3


def numbers_figure(dataset: xr.Dataset, statistics: Iterable[str] | str | None) -> Figure:
    """Maps of these statistics; None: of all, but for one model not those that are equal in every head."""
    keys = chosen_keys(dataset, STATISTIC, statistics, "The patterns study")
    same = [] if statistics is not None else _same(dataset, keys)
    keys = [key for key in keys if key not in same] or keys
    panels: list[Heatmap] = []
    scales: dict[str, Scale] = {}
    names = names_of(dataset)
    for key in keys:
        one = dataset.sel({STATISTIC: key}).transpose(..., LAYER, HEAD)
        scales[key] = _statistic_scale(one, key)
        panels += [_statistic_panel(one, key, index) for index in range(len(names))]
        if len(names) == 2:
            scales[f"{key} change"] = scale_around(one["change"].values, "change")
            panels.append(_change_panel(one, key))
    return Figure(
        title="The attention maps in numbers",
        panels=tuple(panels),
        columns=_columns(len(keys), len(names)),
        scales=scales,
        notes=(_statistics_note(dataset, keys, names, same),),
    )


def _same(dataset: xr.Dataset, keys: list[str]) -> list[str]:
    """Statistics that are equal in all heads of a single model: without gates all edges are open and all rows sum to 1."""
    if dataset.sizes[CONDITION] > 1:
        return []
    values = dataset["value"].isel({CONDITION: 0})
    spread = {key: float(values.sel({STATISTIC: key}).max() - values.sel({STATISTIC: key}).min()) for key in keys}
    return [key for key in keys if spread[key] < EQUAL]


def _statistic_scale(one: xr.Dataset, key: str) -> Scale:
    uniform = one["uniform"].values
    level = float(np.nanmean(uniform)) if np.isfinite(uniform).any() else None
    marks = (ScaleMark(level, "uniform head"),) if level is not None else ()
    return scale_over(one["value"].values, "", ceiling=None if key in UNBOUNDED else 1.0, marks=marks)


def _statistic_panel(one: xr.Dataset, key: str, index: int) -> Heatmap:
    here = one.isel({CONDITION: index})
    return Heatmap(
        key=f"{key} {one[CONDITION].values[index]}",
        title=str(one["label"].values),
        subtitle=LETTERS[index] if one.sizes[CONDITION] > 1 else "",
        values=here["value"].values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale=key,
        extras={extra: here[extra].values for extra in ("value", "low", "high", "uniform")},
    )


def _change_panel(one: xr.Dataset, key: str) -> Heatmap:
    q = one["q"].values
    sure = int((q < ALPHA).sum())
    return Heatmap(
        key=f"{key} change",
        title="Change, B − A",
        subtitle=f"q < {ALPHA}: {sure} of {int(np.isfinite(q).sum())} heads",
        values=one["change"].values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale=f"{key} change",
        marks=_dots(q),
        extras={extra: one[extra].values for extra in ("change", "change_low", "change_high", "p", "q")},
    )


def _dots(q: np.ndarray) -> tuple[Mark, ...]:
    """On the cells that changed; on none where cells are too small."""
    if q.size > MAX_MARKED_CELLS:
        return ()
    return tuple(Mark(int(row), int(column), f"q < {ALPHA}", "dot") for row, column in np.argwhere(q < ALPHA))


def _columns(numbers: int, conditions: int) -> int:
    if conditions == 1:
        return min(numbers, 6)
    return 6 if numbers > 1 else 3


def _statistics_note(dataset: xr.Dataset, keys: list[str], names: list[str], same: list[str]) -> str:
    definitions = [
        f"{dataset['label'].sel({STATISTIC: key}).values}: {dataset['definition'].sel({STATISTIC: key}).values}"
        for key in keys
    ]
    text = f"Each cell is one head, its mean over {prompts_of(dataset)}. {'; '.join(definitions)}."
    if len(names) == 2:
        text += (
            f" A: {names[0]}. B: {names[1]}. q: Wilcoxon's signed-rank test over prompts, Benjamini-Hochberg over "
            "the heads of a map."
        )
        text += f" Dots: q < {ALPHA}." if dataset["q"].isel({STATISTIC: 0}).size <= MAX_MARKED_CELLS else ""
    if same:
        unchanging = " and ".join(str(dataset["label"].sel({STATISTIC: key}).values) for key in same)
        text += f" Not drawn, because equal in every head: {unchanging}."
    if bool(dataset["value"].sel({STATISTIC: keys}).isnull().any()):
        text += " Strokes: undefined for a head without any attention."
    return f"{text} The pointer on a bar: a head with uniform attention."


ALIKE = ("change", "similarity")  # two names of one ranking: least similar first
MAX_LABEL = 14  # characters of a token


def names_of(dataset: xr.Dataset) -> list[str]:
    """The conditions as they are written over their maps."""
    return [str(name) for name in dataset["name"].values]


def all_heads(dataset: xr.Dataset) -> list[Head]:
    """The heads that the model has, layer by layer."""
    measured = dataset["value"].isel({CONDITION: 0}).sel({STATISTIC: "peak"}).transpose(LAYER, HEAD).notnull().values
    return [(int(layer), int(head)) for layer, head in np.argwhere(measured)]


def chosen_heads(dataset: xr.Dataset, wanted: Iterable[str] | str) -> list[Head]:
    """Heads by name, in the order given; one that the model does not have is refused."""
    heads = list(dict.fromkeys(parse_heads(wanted)))
    known = set(all_heads(dataset))
    for head in heads:
        if head not in known:
            layers, width = dataset.sizes[LAYER], dataset.sizes[HEAD]
            raise DataError(
                f"There is no head {head_name(*head)} in these patterns: layers go from 0 to {layers - 1} and heads from 0 "
                f"to {width - 1}."
            )
    if not heads:
        raise DataError("No head was named; write them as L3H1,L5H2.")
    return heads


def ranked_heads(dataset: xr.Dataset, by: str | None, top: int) -> tuple[list[Head], str]:
    """The ``top`` heads by a statistic, largest first, and which they are in words; ``by`` as in `figure`."""
    if top < 1:
        raise StudyError(f"top must be at least 1, not {top}; leave it out for the usual number.")
    two = "change" in dataset
    by = by or ("change" if two else "peak")
    known = [str(key) for key in dataset[STATISTIC].values]
    options = [*known, *([*ALIKE, *(f"{key}_change" for key in known)] if two else [])]
    if by not in options:
        raise StudyError(f"Heads cannot be ranked by {by!r}. {did_you_mean(by, options)}")
    values, which = _ranking(dataset, by, two)
    heads = all_heads(dataset)
    flat = np.nan_to_num([float(values.isel({LAYER: layer, HEAD: head})) for layer, head in heads], nan=-np.inf)
    order = np.argsort(-flat, kind="stable")
    chosen = order[:top]
    tied = len(order) > len(chosen) and flat[order[len(chosen)]] == flat[chosen[-1]]
    which = f"{len(chosen)} of {len(heads)} heads, {which}"
    return [heads[index] for index in chosen], f"{which}; others have the same value as the last" if tied else which


def _ranking(dataset: xr.Dataset, by: str, two: bool) -> tuple[xr.DataArray, str]:
    """The values that heads are ranked by, and their meaning in words."""
    if by in ALIKE:
        return 1 - dataset["similarity"], "those whose maps changed most (least similar first)"
    key = by.removesuffix("_change")
    label = str(dataset["label"].sel({STATISTIC: key}).values)
    if by.endswith("_change"):
        change = abs(dataset["change"].sel({STATISTIC: key}))
        return change, f"those whose “{label}” changed most, up or down"
    of = f" in {names_of(dataset)[0]}" if two else ""
    return dataset["value"].isel({CONDITION: 0}).sel({STATISTIC: key}), f"those with the largest “{label}”{of}"


def token_labels(dataset: xr.Dataset) -> tuple[str, ...]:
    """Labels of the rows of the shown maps: one token, or the first and the last of pooled rows."""
    return row_tokens(dataset, _written)


def row_tokens(dataset: xr.Dataset, written: Callable[[str], str] = str) -> tuple[str, ...]:
    """The same with full tokens, or with each token converted by ``written``."""
    tokens = [written(str(token)) for token in dataset["token_text"].values]
    starts = [int(index) for index in dataset["query"].values]
    ends = [*starts[1:], len(tokens)]
    return tuple(
        tokens[start] if end - start == 1 else f"{tokens[start]}…{tokens[end - 1]}"
        for start, end in zip(starts, ends, strict=True)
    )


def prompts_of(dataset: xr.Dataset) -> str:
    """Such as "32 prompts of 128 tokens"."""
    tokens = provenance_of(dataset).get("parameters", {}).get("tokens")
    count = dataset.sizes.get("example", 0)
    return f"{count} prompts of {tokens} tokens" if tokens else f"{count} prompts"


def _written(token: str) -> str:
    """Line ends escaped, stripped, truncated."""
    text = token.replace("\n", "\\n").replace("\t", "\\t").strip() or "␣"
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"
