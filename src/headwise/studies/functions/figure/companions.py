"""The companions of the functions' maps.

| kind | shows |
|---|---|
| ``sorted`` | importance of all heads, largest first, with the spread over seeds and the elbow; dashed: shuffled labels |
| ``layers`` | how many of the function's heads (those up to the elbow) each layer has |
| ``similarity`` | correlation of the functions' maps over heads, like beside like, and the tree of these |
| ``probe`` | the model's accuracy on each function, the AUROC of the probe, and of a probe that sees only the answer's form |
| ``confusion`` | which functions the probe takes for which |

Each takes the chosen functions of the Dataset and gives the parts of a figure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from headwise.core.dims import FUNCTION, HEAD, LAYER, PREDICTED, SEED
from headwise.core.errors import StudyError
from headwise.figures.clustering import Tree, tree_of
from headwise.figures.matrices import written_matrix
from headwise.figures.panels import Axis, Curve, Curves, Guide, Intervals, Panel
from headwise.figures.scale import Scale
from headwise.figures.ticks import round_up
from headwise.studies.functions.figure.grid import Parts, columns_for

BLUE, GREY = "#31688e", "#8c8c8c"
CHANCE = 0.5
MANY = 300  # heads from which on the sorted curve is cut where it has long been flat
TITLES = {
    "sorted": "How concentrated each function is",
    "layers": "Where each function's heads stand",
    "similarity": "Which functions have similar maps",
    "probe": "How well functions are told apart",
    "confusion": "Which functions the probe takes for which",
}


def correlations(dataset: xr.Dataset) -> xr.DataArray:
    """Pearson's correlation over heads of the maps of two functions, (function, predicted); those refused are left out."""
    kept = dataset.isel({FUNCTION: np.flatnonzero(~dataset["refused"].values)})
    names = kept[FUNCTION].values
    size = kept.sizes[LAYER] * kept.sizes[HEAD]
    maps = kept["magnitude"].transpose(FUNCTION, LAYER, HEAD).values.reshape(len(names), size).astype(float)
    measured = np.isfinite(maps).all(axis=0)
    away = maps[:, measured] - maps[:, measured].mean(axis=1, keepdims=True)
    length = np.sqrt((away**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (away @ away.T) / np.outer(length, length)
    return xr.DataArray(found, dims=(FUNCTION, PREDICTED), coords={FUNCTION: names, PREDICTED: names})


# ---- one panel a function -------------------------------------------------------------------------------------------


def _sorted(chosen: xr.Dataset) -> Parts:
    kept = _with_maps(chosen)
    top, heads = round_up(float(np.nanmax(kept["sorted"].values))), kept.sizes[LAYER] * kept.sizes[HEAD]
    end = heads if heads <= MANY else min(heads, max(10 * int(kept["elbow"].max()), MANY))
    panels = tuple(_falling(kept.sel({FUNCTION: name}), str(name), top, end) for name in kept[FUNCTION].values)
    part = "" if end == heads else f" The first {end:,} heads are shown."
    note = (
        f"Absolute importance of every head, largest first; band: standard deviation over {chosen.sizes[SEED]} seeds. Dashes: "
        f"what 95 % of maps with shuffled labels stay below, sorted alike.{part} {_refused(chosen)}"
    )
    return Parts(panels, columns_for(len(panels)), (note.strip(),))


def _falling(one: xr.Dataset, name: str, top: float, end: int) -> Curves:
    magnitude, spread, null = (
        one[key].transpose(LAYER, HEAD).values.ravel() for key in ("magnitude", "importance_sd", "null_high")
    )
    known = np.flatnonzero(np.isfinite(magnitude))
    order = known[np.argsort(-magnitude[known], kind="stable")]
    rank, value = np.arange(1.0, len(order) + 1), magnitude[order]
    curves = (
        Curve("null", "shuffled", rank, np.sort(null[known])[::-1], colour=GREY, style="dashed"),
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
    kept = _with_maps(chosen)
    counts = kept["chosen"].transpose(FUNCTION, LAYER, HEAD).values.sum(2)  # (function, layer)
    layers = kept[LAYER].values.astype(float)
    panels = tuple(
        Curves(
            key=str(name),
            title=str(name),
            subtitle=f"{int(count.sum())} heads in {int((count > 0).sum())} of {len(layers)} layers",
            curves=(Curve("heads", "heads", layers, count, np.zeros(len(layers)), count, BLUE, "step"),),
            x=Axis("Layer", low=layers[0] - 0.5, high=layers[-1] + 0.5),
            y=Axis("Heads", low=0, high=max(float(counts.max()), 1) * 1.05),
        )
        for name, count in zip(kept[FUNCTION].values, counts, strict=True)
    )
    note = f"Heads up to the elbow of a function's sorted importance, of {chosen.sizes[HEAD]} heads a layer. {_refused(chosen)}"
    return Parts(panels, columns_for(len(panels)), (note.strip(),))


# ---- all functions together -----------------------------------------------------------------------------------------


def _similarity(chosen: xr.Dataset) -> Parts:
    found = correlations(_with_maps(chosen))
    if len(found) < 2:
        raise StudyError("Maps can be compared where at least two functions have one; here there is one.")
    tree = tree_of(found.values)
    names = tuple(str(found[FUNCTION].values[row]) for row in tree.order)
    values = found.values[np.ix_(tree.order, tree.order)]
    axis = Axis("", names)
    panels: tuple[Panel, ...] = (
        written_matrix("correlation", "Correlation of maps, over heads", values, axis, axis, "r"),
        _branches(tree, names),
    )
    note = (
        "Pearson's correlation of the absolute importances of all heads. Tree: average linkage of 1 - correlation. "
        f"{_refused(chosen)}"
    )
    return Parts(panels, 2, (note.strip(),), {"r": Scale("correlation", -1.0, 1.0, "RdBu_r")})


def _branches(tree: Tree, names: tuple[str, ...]) -> Curves:
    """All brackets as one line with gaps: from one branch to where it meets the other, and back."""
    gap = np.nan
    x = [
        value for join in tree.joins for value in (join.upper_from, join.distance, join.distance, join.lower_from, gap)
    ]
    y = [value for join in tree.joins for value in (join.upper, join.upper, join.lower, join.lower, gap)]
    far = max(join.distance for join in tree.joins)
    return Curves(
        key="tree",
        title="Tree of maps",
        curves=(Curve("tree", "tree", np.array(x), np.array(y), colour="#222222"),),
        x=Axis("1 - correlation", low=0, high=max(1.05 * far, 1e-6)),
        y=Axis("", names, low=len(names) - 0.5, high=-0.5),
    )


def _probe(chosen: xr.Dataset) -> Parts:
    names = tuple(str(name) for name in chosen[FUNCTION].values)
    rows = {
        "accuracy": ("The model answers right", "Share of steps", None),
        "auroc": ("The probe on all heads", "AUROC", CHANCE),
        "confound_auroc": ("Length and first token of the answer alone", "AUROC", CHANCE),
    }
    panels = []
    for key, (title, what, chance) in rows.items():
        value, low, high = (chosen[f"{key}{end}"].values for end in ("", "_low", "_high"))
        floor = 0.0 if chance is None else min(0.4, float(np.floor(10 * np.nanmin(low, initial=0.4)) / 10))
        guides = () if chance is None else (Guide("x", chance),)
        panels.append(
            Intervals(key, title, value, low, high, Axis(what, low=floor, high=1.02), Axis("", names), guides=guides)
        )
    note = (
        "Lines: 95 % intervals. AUROC: this function against all others, on held-out steps. A probe that sees only how long "
        "an answer is and what kind its first token is (right) tells how much of the middle column may be the answer's form."
    )
    return Parts(tuple(panels), 3, (note,))


def _confusion(chosen: xr.Dataset) -> Parts:
    names = tuple(str(name) for name in chosen[FUNCTION].values)
    values = chosen["confusion"].sel({PREDICTED: list(names)}).transpose(FUNCTION, PREDICTED).values
    panel = written_matrix(
        "confusion", "Named by the probe, share of held-out steps", values, Axis("Named", names),
        Axis("Function of the step", names), "share",
    )  # fmt: skip
    note = f"Mean over {chosen.sizes[SEED]} seeds; rows sum to 1 over all functions."
    return Parts((panel,), 1, (note,), {"share": Scale("share", 0.0, 1.0, "Blues")})


COMPANIONS: dict[str, Callable[[xr.Dataset], Parts]] = {
    "sorted": _sorted,
    "layers": _layers,
    "similarity": _similarity,
    "probe": _probe,
    "confusion": _confusion,
}


def _with_maps(chosen: xr.Dataset) -> xr.Dataset:
    kept = chosen.isel({FUNCTION: np.flatnonzero(~chosen["refused"].values)})
    if not kept.sizes[FUNCTION]:
        raise StudyError(f"No function has a map: {chosen[FUNCTION].values[0]}: {chosen['reason'].values[0]}.")
    return kept


def _refused(chosen: xr.Dataset) -> str:
    names = [str(name) for name in chosen[FUNCTION].values[chosen["refused"].values]]
    return f"Without a map, because the probe does not tell them: {', '.join(names)}." if names else ""
