"""The figures of the functions study: which heads carry which cognitive function?

| kind | shows |
|---|---|
| ``maps`` | one layer x head map per function, on one colour scale with a round cap (a plus where heads lie beyond it) |
| ``sorted`` | importance of all heads, largest first, with the spread over seeds and the elbow; dashed: permuted labels |
| ``layers`` | how many of the function's heads (those up to the elbow) each layer has |
| ``similarity`` | correlation of the functions' maps over heads, ordered by a tree of average linkage |
| ``depth`` | AUROC of single heads, by layer: for the function, and for how its steps are worded, a label that is no function |
| ``probe`` | the model's accuracy per function, the AUROC of the probe, and of a probe that sees only the answer's form |
| ``confusion`` | the probe's confusion matrix |

A refused function has no map, and its panel states the reason. ``value`` of the maps: "magnitude" (absolute importance),
"importance" (signed), or "single_head_auroc" (a probe on the head alone). The eight functions of Ma et al. (arXiv 2512.10978)
are shown as in their figure, two rows of four; other sets in stored order. ``style="paper"`` leaves out what is written over
the maps. Nothing is computed here beyond scales, counts and
correlations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr

from headwise.core.dims import FUNCTION, HEAD, LAYER, PREDICTED, SEED
from headwise.core.errors import StudyError
from headwise.core.schema import INTERVAL_ENDS
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.matrices import Tree, tree_of, written_matrix
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Heatmap, Intervals, Legend, Panel
from headwise.figures.provenance import cell_names
from headwise.figures.scale import Scale, scale_around, scale_over
from headwise.figures.ticks import round_up
from headwise.stats.auroc import CHANCE

PUBLISHED = (
    "Knowledge Recall", "Retrieval", "Logical Reasoning", "Decision-making",
    "Semantic Understanding", "Syntactic Understanding", "Inference", "Math Calculation",
)  # fmt: skip
MAX_COLUMNS = 4
VALUES = {
    "magnitude": "Head importance",
    "importance": "Head importance, signed",
    "single_head_auroc": "AUROC of the head alone",
}
TOOLTIP = (
    "importance", "importance_low", "importance_high", "importance_sd", "null_high", "q", "single_head_auroc",
    "single_head_q",
)  # fmt: skip
CLIP = 0.99  # the cap is the round number above this share of all heads' values
BLUE, GREY, ORANGE = "#31688e", "#8c8c8c", "#b5500b"
MAX_SORTED_HEADS = 300  # beyond this the sorted curve is cut in its flat part
TITLES = {
    "maps": "",
    "sorted": "How concentrated each function is",
    "layers": "Layers of each function's heads",
    "similarity": "Which functions have similar maps",
    "depth": "Functions by layer, next to a label that is no function",
    "probe": "How well functions are distinguished",
    "confusion": "Which functions the probe confuses",
}


@dataclass(frozen=True)
class Parts:
    """A figure's contents, without its title and provenance."""

    panels: tuple[Panel, ...]
    columns: int
    notes: tuple[str, ...]
    scales: Mapping[str, Scale] = field(default_factory=dict)


def figure(
    dataset: xr.Dataset,
    *,
    kind: str = "maps",
    value: str = "magnitude",
    functions: Iterable[str] | str | None = None,
    cap: float | None = None,
    style: str = "full",
) -> Figure:
    """Maps of all functions (or of those named), or another ``kind``; ``cap``: upper end of the colour scale."""
    if cap is not None and not (math.isfinite(cap) and cap > 0):
        raise StudyError(f"The cap of the colour scale is {cap}; give a number above 0, such as 0.004.")
    chosen = dataset.sel({FUNCTION: shown_functions(dataset, functions, "The functions study")})
    title = str(TITLES[kind] or dataset.attrs.get("title") or "Functions of heads")
    parts = _maps(dataset, chosen, value, cap) if kind == "maps" else _KINDS[kind](chosen)
    found = Figure(title, parts.panels, parts.columns, parts.scales, notes=parts.notes)
    return found.without_subtitles() if style == "paper" else found


def shown_functions(dataset: xr.Dataset, wanted: Iterable[str] | str | None, owner: str) -> list[str]:
    """The wanted functions, or all (None)."""
    names = chosen_keys(dataset, FUNCTION, wanted, owner)
    return list(PUBLISHED) if wanted is None and set(names) == set(PUBLISHED) else names


def worded(dataset: xr.Dataset) -> xr.Dataset | None:
    """The functions that have a label that is no function next to them (`wording`); None where there are none."""
    if "wording_by_layer" not in dataset:
        return None
    both = (np.isfinite(dataset[f"{name}_by_layer"].values).any(axis=1) for name in ("function", "wording"))
    tested = np.flatnonzero(np.logical_and(*both))
    names = ["function_by_layer", "wording_by_layer", "first_word", "with_first_word", "without_first_word"]
    return dataset[names].isel({FUNCTION: tested}) if len(tested) else None


def columns_for(count: int) -> int:
    """Panels per row: as few rows as possible, evenly filled.

    >>> [columns_for(count) for count in (1, 2, 4, 5, 8, 9, 11)]
    [1, 2, 4, 3, 4, 3, 4]
    """
    rows = -(-count // MAX_COLUMNS)
    return -(-count // rows)


def correlations(dataset: xr.Dataset) -> xr.DataArray:
    """Pearson correlation over heads of the maps of two functions, (function, predicted); refused functions are omitted."""
    mapped = dataset.isel({FUNCTION: np.flatnonzero(~dataset["refused"].values)})
    names = mapped[FUNCTION].values
    size = mapped.sizes[LAYER] * mapped.sizes[HEAD]
    maps = mapped["magnitude"].transpose(FUNCTION, LAYER, HEAD).values.reshape(len(names), size).astype(float)
    measured = np.isfinite(maps).all(axis=0)
    centred = maps[:, measured] - maps[:, measured].mean(axis=1, keepdims=True)
    length = np.sqrt((centred**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (centred @ centred.T) / np.outer(length, length)
    return xr.DataArray(found, dims=(FUNCTION, PREDICTED), coords={FUNCTION: names, PREDICTED: names})


# ---- maps -----------------------------------------------------------------------------------------------------------


def _maps(dataset: xr.Dataset, chosen: xr.Dataset, value: str, cap: float | None) -> Parts:
    panels = tuple(_map(chosen.sel({FUNCTION: name}), str(name), value) for name in chosen[FUNCTION].values)
    if value == "single_head_auroc":
        meaning = (
            "Each cell: cross-validated AUROC of a linear probe that sees this head alone and distinguishes the function from "
            "the others. q: Benjamini-Hochberg over the heads, against permuted labels."
        )
    else:
        sign, values = "absolute value of the " if value == "magnitude" else "", chosen["auroc"].values
        auroc = " to ".join(dict.fromkeys(f"{end:.2f}" for end in (np.nanmin(values), np.nanmax(values))))
        meaning = (
            f"Each cell: {sign}gradient x activation of the function's logit over the head's features, mean over held-out "
            f"steps of the function and over {chosen.sizes[SEED]} seeds of a probe that sees all heads, whose AUROC for the "
            f"function against the others is {auroc}."
        )
    low, high = float(dataset["probe_accuracy_low"]), float(dataset["probe_accuracy_high"])
    quality = (
        f"{int(dataset['train'].sum())} training and {int(dataset['held_out'].sum())} held-out steps: the probe predicts the "
        f"function of {float(dataset['probe_accuracy']):.2f} of the latter ({low:.2f} to {high:.2f}). Baselines: most frequent "
        f"function {float(dataset['majority']):.2f}, permuted labels {float(dataset['permuted']):.2f}, the answer's length and "
        f"kind of first token alone {float(dataset['confound_accuracy']):.2f}."
    )
    notes: tuple[str, ...] = (meaning, quality)
    if (both := worded(dataset)) is not None:
        function, wording = (float(both[name].mean()) for name in ("function_by_layer", "wording_by_layer"))
        notes += (
            f"Single heads decode a function with an AUROC of {function:.2f} on average, and how a step of it is worded, a "
            f"label that is no function, with {wording:.2f}.",
        )
    return Parts(panels, columns_for(len(panels)), notes, {value: scale_of(chosen, value, cap)})


def scale_of(dataset: xr.Dataset, value: str = "magnitude", cap: float | None = None) -> Scale:
    """The colour scale that all maps share."""
    values = dataset[value].values
    finite = values[np.isfinite(values)]
    if value == "single_head_auroc":
        return Scale(VALUES[value], CHANCE, 1.0, "viridis", under=bool((finite < CHANCE).any()))
    found = (scale_around if value == "importance" else scale_over)(values, VALUES[value], clip=CLIP)
    if cap is not None:
        low = -cap if value == "importance" else 0.0
        over, under = bool((finite > cap).any()), bool((finite < low).any())
        found = Scale(VALUES[value], low, cap, found.colours, over, under)
    # as many decimals as write the cap with two digits (0.004 as 0.0040) and round no tick
    fewest = max(0, 1 - math.floor(math.log10(found.high) + 1e-9))
    ticks = [tick for tick, _ in found.ticks()]
    exact = (count for count in range(fewest, fewest + 4) if all(math.isclose(round(t, count), t) for t in ticks))
    return replace(found, decimals=next(exact, fewest))


def _map(one: xr.Dataset, name: str, value: str) -> Heatmap:
    one = one.transpose(LAYER, HEAD, ...)
    refused = bool(one["refused"]) and value != "single_head_auroc"
    return Heatmap(
        key=name,
        title=name,
        subtitle=_subtitle(one, value),
        values=one[value].values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale=value,
        extras={key: one[key].values for key in TOOLTIP if key != value},
        missing=f"No map: {one['reason'].item()}" if refused else "not measured",
    )


def _subtitle(one: xr.Dataset, value: str) -> str:
    if value == "single_head_auroc":
        q = one["single_head_q"].values
        return f"q < 0.05: {int((q < 0.05).sum())} of {int(np.isfinite(q).sum())} heads"
    auroc, count = f"AUROC {float(one['auroc']):.2f}", int(one["elbow"])
    return auroc if bool(one["refused"]) else f"{auroc}\n{count} {'head' if count == 1 else 'heads'} to the elbow"


# ---- one panel per function -----------------------------------------------------------------------------------------


def _sorted(chosen: xr.Dataset) -> Parts:
    mapped = _with_maps(chosen)
    top, heads = round_up(float(np.nanmax(mapped["sorted"].values))), mapped.sizes[LAYER] * mapped.sizes[HEAD]
    end = min(heads, max(10 * int(mapped["elbow"].max()), MAX_SORTED_HEADS))
    panels = tuple(_sorted_curve(mapped.sel({FUNCTION: name}), str(name), top, end) for name in mapped[FUNCTION].values)
    part = "" if end == heads else f" The first {end:,} heads are shown."
    note = (
        f"Absolute importance of every head, largest first; band: standard deviation over {chosen.sizes[SEED]} seeds. Dashed: "
        f"95th percentile under permuted labels, also sorted.{part} {_refused(chosen)}"
    )
    return Parts(panels, columns_for(len(panels)), (note.strip(),))


def _sorted_curve(one: xr.Dataset, name: str, top: float, end: int) -> Curves:
    magnitude, spread, null = (
        one[key].transpose(LAYER, HEAD).values.ravel() for key in ("magnitude", "importance_sd", "null_high")
    )
    known = np.flatnonzero(np.isfinite(magnitude))
    order = known[np.argsort(-magnitude[known], kind="stable")]
    rank, value = np.arange(1.0, len(order) + 1), magnitude[order]
    curves = (
        Curve("null", "permuted", rank, np.sort(null[known])[::-1], colour=GREY, style="dashed"),
        Curve("sorted", "importance", rank, value, np.maximum(value - spread[order], 0), value + spread[order], BLUE),
    )
    elbow = int(one["elbow"])
    return Curves(
        key=name,
        title=name,
        subtitle=f"{elbow} of {len(order):,} heads",
        curves=curves,
        x=Axis("Heads, most important first", low=0, high=end * 1.02),
        y=Axis("Importance", low=0, high=top),
        guides=(Guide("x", elbow, f"elbow {elbow}" if elbow < 0.6 * end else ""),),  # text needs room on its right
    )


def _layers(chosen: xr.Dataset) -> Parts:
    mapped = _with_maps(chosen)
    counts = mapped["chosen"].transpose(FUNCTION, LAYER, HEAD).values.sum(2)  # (function, layer)
    layers = mapped[LAYER].values.astype(float)
    panels = tuple(
        Curves(
            key=str(name),
            title=str(name),
            subtitle=f"{int(count.sum())} heads in {int((count > 0).sum())} of {len(layers)} layers",
            curves=(Curve("heads", "heads", layers, count, np.zeros(len(layers)), count, BLUE, "step"),),
            x=Axis("Layer", low=layers[0] - 0.5, high=layers[-1] + 0.5),
            y=Axis("Heads", low=0, high=max(float(counts.max()), 1) * 1.05),
        )
        for name, count in zip(mapped[FUNCTION].values, counts, strict=True)
    )
    note = (
        f"Heads up to the elbow of a function's importance, of {chosen.sizes[HEAD]} heads per layer. {_refused(chosen)}"
    )
    return Parts(panels, columns_for(len(panels)), (note.strip(),))


# ---- all functions together -----------------------------------------------------------------------------------------


def _similarity(chosen: xr.Dataset) -> Parts:
    found = correlations(_with_maps(chosen))
    if len(found) < 2:
        raise StudyError("Similarity needs at least two functions with a map; here there is one.")
    tree = tree_of(found.values)
    names = tuple(str(found[FUNCTION].values[row]) for row in tree.order)
    axis = Axis("", names)
    panels: tuple[Panel, ...] = (
        written_matrix(
            "correlation",
            "Correlation of maps, over heads",
            found.values[np.ix_(tree.order, tree.order)],
            axis,
            axis,
            "r",
        ),
        _tree(tree, names),
    )
    note = (
        "Pearson correlation of the absolute importances of all heads. Tree: average linkage of 1 - correlation. "
        f"{_refused(chosen)}"
    )
    return Parts(panels, 2, (note.strip(),), {"r": Scale("correlation", -1.0, 1.0, "RdBu_r")})


def _tree(tree: Tree, names: tuple[str, ...]) -> Curves:
    """All brackets as one line with gaps: from one branch to where it meets the other, and back."""
    gap = np.nan
    x = [
        value for join in tree.joins for value in (join.upper_from, join.distance, join.distance, join.lower_from, gap)
    ]
    y = [value for join in tree.joins for value in (join.upper, join.upper, join.lower, join.lower, gap)]
    return Curves(
        key="tree",
        title="Tree of maps",
        curves=(Curve("tree", "tree", np.array(x), np.array(y), colour="#222222"),),
        x=Axis("1 - correlation", low=0, high=max(1.05 * max(join.distance for join in tree.joins), 1e-6)),
        y=Axis("", names, low=len(names) - 0.5, high=-0.5),
    )


def _depth(chosen: xr.Dataset) -> Parts:
    if "wording_by_layer" not in chosen:
        raise StudyError(
            "This functions map is of an older version, which measured no label next to the functions; build it again "
            "with --redo functions."
        )
    tested = worded(chosen)
    if tested is None:
        raise StudyError("No function has enough steps of two wordings, so there is no label to draw next to it.")
    both = np.stack([tested[name].values for name in ("function_by_layer", "wording_by_layer")])
    low = min(0.4, float(np.floor(10 * np.nanmin(both)) / 10))
    layers = tested[LAYER].values.astype(float)
    panels: tuple[Panel, ...] = tuple(
        Curves(
            key=str(name),
            title=str(name),
            subtitle=f"“{one['first_word'].item()}”: {int(one['with_first_word'])} of "
            f"{int(one['with_first_word']) + int(one['without_first_word'])} steps",
            curves=(
                Curve("wording", "", layers, one["wording_by_layer"].values, colour=ORANGE, style="dashed"),
                Curve("function", "", layers, one["function_by_layer"].values, colour=BLUE),
            ),
            x=Axis("Layer", low=layers[0], high=layers[-1]),
            y=Axis("AUROC", low=low, high=1.02),
            guides=(Guide("y", CHANCE),),
        )
        for name in tested[FUNCTION].values
        for one in [tested.sel({FUNCTION: name})]
    )
    legend = Legend(
        "legend",
        (
            Category("function", "the function against other steps", BLUE, "line"),
            Category("wording", "its first word against its other steps", ORANGE, "dashed"),
        ),
    )
    mean = np.nanmean(both, axis=(1, 2))
    note = (
        "Mean over the heads of a layer of the cross-validated AUROC of a probe on one head. Dashed: a label that is no "
        "function, whether a step begins with the word that most steps of its function begin with, among the steps of that "
        f"function. Both labels have the same numbers of steps. Mean over functions and layers: {mean[0]:.2f} for the "
        f"function, {mean[1]:.2f} for its wording."
    )
    missing = [str(name) for name in chosen[FUNCTION].values if name not in tested[FUNCTION].values]
    notes = (note, f"Too few steps of two wordings: {', '.join(missing)}.") if missing else (note,)
    return Parts((*panels, legend), columns_for(len(panels)), notes)


def _probe(chosen: xr.Dataset) -> Parts:
    names = tuple(str(name) for name in chosen[FUNCTION].values)
    rows = {
        "accuracy": ("The model answers correctly", "Share of steps", None),
        "auroc": ("The probe on all heads", "AUROC", CHANCE),
        "confound_auroc": ("Length and first token of the answer alone", "AUROC", CHANCE),
    }
    panels = []
    for key, (title, what, chance) in rows.items():
        value, low, high = (chosen[f"{key}{end}"].values for end in INTERVAL_ENDS)
        floor = 0.0 if chance is None else min(0.4, float(np.floor(10 * np.nanmin(low, initial=0.4)) / 10))
        guides = () if chance is None else (Guide("x", chance),)
        panels.append(
            Intervals(key, title, value, low, high, Axis(what, low=floor, high=1.02), Axis("", names), guides=guides)
        )
    note = (
        "Lines: 95 % confidence intervals. AUROC: this function against all others, on held-out steps. Right: a probe that "
        "sees only the length of an answer and the kind of its first token: how much of the middle column may be due to "
        "the form of the answer."
    )
    return Parts(tuple(panels), 3, (note,))


def _confusion(chosen: xr.Dataset) -> Parts:
    names = tuple(str(name) for name in chosen[FUNCTION].values)
    values = chosen["confusion"].sel({PREDICTED: list(names)}).transpose(FUNCTION, PREDICTED).values
    panel = written_matrix(
        "confusion", "Predicted by the probe, share of held-out steps", values, Axis("Predicted", names),
        Axis("Function of the step", names), "share",
    )  # fmt: skip
    note = f"Mean over {chosen.sizes[SEED]} seeds; rows sum to 1 over all functions."
    return Parts((panel,), 1, (note,), {"share": Scale("share", 0.0, 1.0, "Blues")})


_KINDS: dict[str, Callable[[xr.Dataset], Parts]] = {
    "sorted": _sorted,
    "layers": _layers,
    "similarity": _similarity,
    "depth": _depth,
    "probe": _probe,
    "confusion": _confusion,
}


def _with_maps(chosen: xr.Dataset) -> xr.Dataset:
    mapped = chosen.isel({FUNCTION: np.flatnonzero(~chosen["refused"].values)})
    if not mapped.sizes[FUNCTION]:
        raise StudyError(f"No function has a map: {chosen[FUNCTION].values[0]}: {chosen['reason'].values[0]}.")
    return mapped


def _refused(chosen: xr.Dataset) -> str:
    names = [str(name) for name in chosen[FUNCTION].values[chosen["refused"].values]]
    return f"Without a map, because the probe does not distinguish them: {', '.join(names)}." if names else ""
