"""The figures of the masking study: does the model need a function's heads, and for that function only?

| kind | shows |
|---|---|
| ``masking`` | accuracy on steps that the intact model solves, with the function's heads and with matched control sets masked |
| ``effects`` | the loss beyond the controls, on the function's own steps and on those of the others |
| ``cross`` | the same as a matrix: heads of the row's function, steps of the column's; and the overlap of the head sets |
| ``augment`` | accuracy with a direction (correct - wrong answers) added to the heads, and with random directions |
| ``hierarchy`` | whole questions with the heads of a low-order function masked: what high-order steps lose |

Nothing is computed here. After Ma et al., arXiv 2512.10978.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import AMOUNT, DRAW, FUNCTION, MASKED, REMOVED
from headwise.core.errors import StudyError
from headwise.core.schema import INTERVAL_ENDS
from headwise.figures.figure import Figure
from headwise.figures.matrices import written_matrix
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Heatmap, Intervals, Legend, Panel
from headwise.figures.scale import Scale, scale_around
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.power import minimum_detectable_gain
from headwise.studies.functions.figure import Parts, columns_for, shown_functions

MIN_STEPS = 5  # for a confidence interval over steps to be interpreted
POOLED = "all functions together"
WHERE = {
    "answer": "from the last prompt token on",
    "decode": "at the decode steps",
    "everywhere": "at every token",
}
OWN, RANDOM = "#b5500b", "#8c8c8c"
TITLES = {
    "masking": "Accuracy without a function's heads",
    "effects": "What a function's heads are needed for",
    "cross": "Heads of one function masked, steps of another answered",
    "augment": "Accuracy with a function's heads augmented",
    "hierarchy": "Whole questions without the heads of a low-order function",
}


def figure(dataset: xr.Dataset, *, kind: str = "masking", functions: Iterable[str] | str | None = None) -> Figure:
    """Masking curves of all functions (or of those named), or another ``kind``."""
    names = shown_functions(dataset, functions, "The function_masking study")
    parts = _KINDS[kind](dataset.sel({FUNCTION: names, MASKED: names}))
    return Figure(
        title=TITLES[kind],
        panels=parts.panels,
        columns=parts.columns,
        scales=parts.scales,
        notes=parts.notes,
    )


# ---- masking --------------------------------------------------------------------------------------------------------


def _masking(chosen: xr.Dataset) -> Parts:
    tested = _tested(chosen, "reason", "masked")
    if tested.sizes[REMOVED] == 1:
        return _one_size(chosen, tested)
    panels = tuple(_masked(tested.sel({FUNCTION: name}), str(name)) for name in tested[FUNCTION].values)
    legend = _legend("own heads masked", f"{control(chosen)} masked")
    note = (
        f"{_how(chosen)} Steps: held-out steps that the intact model solves, so a change can only lower the accuracy. Bands: "
        f"95 % confidence interval over steps (own heads) and over {chosen.sizes[DRAW]} draws ({control(chosen)}). Loss: "
        f"accuracy with {control(chosen)} masked minus accuracy with the function's own, mean over all numbers of heads. "
        f"{_controls(chosen)}"
    )
    return Parts((*panels, legend), columns_for(len(panels)), _notes(note, chosen, "reason", "Not masked"))


def _one_size(chosen: xr.Dataset, tested: xr.Dataset) -> Parts:
    """Where one number of heads was masked: the own set next to the range of its control sets."""
    rows, names, groups = [], [], []
    for name in tested[FUNCTION].values:
        one = tested.sel({FUNCTION: name}).isel({REMOVED: 0})
        each = one["random_draws"].values[np.isfinite(one["random_draws"].values)]
        p = f", p = {float(one['rank_p']):.2g}" if "rank_p" in one else ""
        rows += [(one["own"], one["own_low"], one["own_high"]), (each.mean(), each.min(), each.max())]
        names += [f"{name}{p}", f"{len(each)} control sets"]
        groups += [0, 1]
    value, low, high = np.array(rows, dtype=float).T
    size = int(tested[REMOVED].values[0])
    panel = Intervals(
        "masking", f"Accuracy with {size} heads masked", value, low, high, Axis("Accuracy", low=-0.02, high=1.02),
        Axis("", tuple(names)), groups=tuple(groups),
        categories=(Category("own", "own heads masked", OWN), Category("random", f"{control(chosen)} masked", RANDOM)),
    )  # fmt: skip
    note = (
        f"{_how(chosen)} Steps: held-out steps that the intact model solves, {int(tested['masked_steps'].min())} to "
        f"{int(tested['masked_steps'].max())} per function. Lines: 95 % confidence interval over steps (own heads), and the "
        f"lowest and highest control set. {_controls(chosen)}"
    )
    return Parts((panel,), 1, _notes(note, chosen, "reason", "Not masked"))


def _masked(one: xr.Dataset, name: str) -> Curves:
    value, low, high = (_signed(one[f"mean_effect{end}"]) for end in INTERVAL_ENDS)
    return Curves(
        key=name,
        title=name,
        subtitle=f"{int(one['masked_steps'])} steps\nloss {value} ({low} to {high})",
        curves=(
            _curve(one, REMOVED, "random", RANDOM, "dashed"),
            _curve(one, REMOVED, "own", OWN, "line"),
        ),
        x=Axis("Heads masked", log=True),
        y=Axis("Accuracy", low=-0.03, high=1.03),
    )


def _effects(chosen: xr.Dataset) -> Parts:
    tested = _tested(chosen, "reason", "masked")
    size = int(chosen.attrs["size"])
    panels = (
        _intervals(
            tested, "mean_effect", "Loss of its own steps", "Accuracy, mean over numbers of heads", last="pooled_"
        ),
        _intervals(tested, "spill", "Loss of the others' steps", f"Accuracy, {size} heads"),
    )
    lines = "lines: 95 % confidence interval."
    note = (
        f"Accuracy with {control(chosen)} masked minus accuracy with the function's own; {lines} {_how(chosen)} "
        f"{_controls(chosen)}{_power(tested)}"
    )
    return Parts(panels, 2, _notes(note, chosen, "reason", "Not masked"))


def _cross(chosen: xr.Dataset) -> Parts:
    tested = _tested(chosen, "reason", "masked")
    names = tuple(str(name) for name in tested[FUNCTION].values)
    tested = tested.sel({MASKED: list(names)}).transpose(MASKED, FUNCTION, ...)
    size = int(chosen.attrs["size"])
    counts = tested["masked_steps"].values
    labels = tuple(f"{name} ({count})" for name, count in zip(names, counts, strict=True))
    x, y = Axis("Steps of (number)", labels), Axis(f"{size} heads masked of", names)
    shared = Axis("among the heads of", names), Axis(f"{size} heads of", names)
    effect, low = tested["cross_effect"].values, tested["cross_effect_low"].values
    panels = (
        written_matrix(
            "cross", f"Loss beyond {control(chosen)}", effect, x, y, "lost", framed=(low > 0) & (counts >= MIN_STEPS)
        ),
        written_matrix("overlap", "Overlap of the head sets", tested["overlap"].values, *shared, "share"),
    )
    scales = {
        "lost": scale_around(np.append(effect, 0.1), "loss of accuracy"),
        "share": Scale("share of heads", 0.0, 1.0, "Greys"),
    }
    note = (
        f"Left: accuracy on the column's steps with {control(chosen)} (of the column's own heads) masked minus that with the "
        f"row's heads masked; boxed where its 95 % confidence interval is above 0 and there are at least {MIN_STEPS} steps. "
        f"Right: share of the row's heads that are among the column's. {_how(chosen)}"
    )
    return Parts(panels, 2, _notes(note, chosen, "reason", "Not masked"), scales)


# ---- augmenting, hierarchy ------------------------------------------------------------------------------------------


def _augment(chosen: xr.Dataset) -> Parts:
    tested = _tested(chosen, "augment_reason", "augmented")
    panels = tuple(_augmented(tested.sel({FUNCTION: name}), str(name)) for name in tested[FUNCTION].values)
    legend = _legend("towards correct answers", "random directions")
    note = (
        "Direction: mean over correct minus mean over wrong training steps, scaled to alpha standard deviations along it, "
        "added to each of the function's heads. Bands: 95 % confidence intervals; dashed: random directions of the same length "
        "in the same heads. Steps: held-out steps, including those that the intact model fails."
    )
    return Parts((*panels, legend), columns_for(len(panels)), _notes(note, chosen, "augment_reason", "Not augmented"))


def _augmented(one: xr.Dataset, name: str) -> Curves:
    return Curves(
        key=name,
        title=name,
        subtitle=f"{int(one['augmented_steps'])} steps",
        curves=(
            _curve(one, AMOUNT, "augmented_random", RANDOM, "dashed"),
            _curve(one, AMOUNT, "augmented", OWN, "line"),
        ),
        x=Axis("alpha", low=0),
        y=Axis("Accuracy", low=-0.03, high=1.03),
        guides=(Guide("y", float(one["augmented"].values[0])),),
    )


def _hierarchy(chosen: xr.Dataset) -> Parts:
    tried = np.isfinite(chosen["chain"].transpose(MASKED, FUNCTION).values).any(axis=1)
    if not tried.any():
        reason = chosen.attrs["chain_reason"] or "none of the functions shown was masked in whole questions"
        raise StudyError(f"There is no hierarchy to draw: {reason}.")
    names = [str(name) for name in chosen[MASKED].values[tried]]
    panels: tuple[Panel, ...] = (_chains(chosen, names),)
    loss = _intervals(
        chosen.sel({FUNCTION: names}), "chain_effect", "Loss of high-order steps", f"Accuracy beyond {control(chosen)}"
    )
    note = (
        f"{int(chosen.attrs['chains'])} whole questions: every step follows the model's own earlier answers; number of steps "
        f"in brackets. {int(chosen.attrs['size'])} heads are masked; {control(chosen)}: mean over functions and draws. Loss: "
        f"accuracy on high-order steps with {control(chosen)} masked minus that with own heads masked; "
        f"lines: 95 % confidence interval. {_how(chosen)}"
    )
    if "chain_random" not in chosen:
        note += " Dashes: this atlas has random heads only for all high-order steps together."
    if np.isfinite(loss.values).any():
        panels += (loss,)
    return Parts(panels, 2, (note,), {"accuracy": Scale("accuracy", 0.0, 1.0, "Blues")})


def _chains(chosen: xr.Dataset, names: list[str]) -> Heatmap:
    """Accuracy on each function's steps and on all high-order ones: intact, with control sets masked, with own heads masked."""
    tested = chosen.isel({FUNCTION: np.isfinite(chosen["chain_intact"].values)}).transpose(MASKED, FUNCTION, ...)
    steps, high = tested["chain_steps"].values, tested["order"].values == "high"
    intact, masked = tested["chain_intact"].values, tested["chain"].sel({MASKED: names}).values
    random = tested["chain_random"].values if "chain_random" in tested else np.full(intact.shape, np.nan)
    rows = np.vstack([intact, random, masked])
    labels = [f"{name} ({count})" for name, count in zip(tested[FUNCTION].values, steps, strict=True)]
    if high.any():
        together = np.average(intact[high], weights=steps[high])
        own, others = (chosen.sel({FUNCTION: names})[f"chain_high_{key}"].values for key in ("own", "random"))
        rows = np.hstack([rows, np.array([together, np.nanmean(others), *own])[:, None]])
        labels.append(f"all high-order ({int(steps[high].sum())})")
    return written_matrix(
        "chain", "Accuracy in whole questions", rows, Axis("Steps of (number)", tuple(labels)),
        Axis("Masked", ("no head", control(chosen), *names)), "accuracy", missing="not stored, or no such steps",
    )  # fmt: skip


_KINDS: dict[str, Callable[[xr.Dataset], Parts]] = {
    "masking": _masking,
    "effects": _effects,
    "cross": _cross,
    "augment": _augment,
    "hierarchy": _hierarchy,
}


def _legend(own: str, random: str) -> Legend:
    return Legend("legend", (Category("own", own, OWN, "line"), Category("random", random, RANDOM, "dashed")))


def _curve(one: xr.Dataset, dim: str, key: str, colour: str, style: str) -> Curve:
    """Accuracy with its interval, where measured; the legend names it."""
    known = np.isfinite(one[key].values)
    x, value, low, high = (one[name].values[known] for name in (dim, key, f"{key}_low", f"{key}_high"))
    return Curve(key, "", x.astype(float), value, low, high, colour, style)


def _intervals(tested: xr.Dataset, key: str, title: str, what: str, *, last: str = "") -> Intervals:
    """One row per function; with ``last``, one more from the variables of that prefix: all functions together."""
    rows = [tested[f"{key}{end}"].values for end in INTERVAL_ENDS]
    names = tuple(str(name) for name in tested[FUNCTION].values)
    if last:
        names += (POOLED,)
        rows = [np.append(row, tested[f"{last}{key}{end}"]) for row, end in zip(rows, INTERVAL_ENDS, strict=True)]
    value, low, high = rows
    floor, top = float(np.nanmin(low, initial=-0.05)), float(np.nanmax(high, initial=0.1))
    axes = Axis(what, low=floor - 0.02, high=top + 0.03), Axis("", names)
    return Intervals(key, title, value, low, high, *axes, guides=(Guide("x", 0.0),))


def _tested(chosen: xr.Dataset, reason: str, done: str) -> xr.Dataset:
    """The functions that were masked, or augmented."""
    why = [str(text) for text in chosen[reason].values]
    tested = chosen.isel({FUNCTION: [index for index, text in enumerate(why) if not text]})
    if not tested.sizes[FUNCTION]:
        reasons = "; ".join(f"{name}: {text}" for name, text in zip(chosen[FUNCTION].values, why, strict=True))
        raise StudyError(f"No function was {done}: {reasons}.")
    return tested


def control(dataset: xr.Dataset) -> str:
    """What the heads were compared with, in words: matched control sets, or (older versions) random heads of all layers."""
    return "control sets" if "rank_p" in dataset else "random heads"


def _controls(chosen: xr.Dataset) -> str:
    if "rank_p" not in chosen:
        return "Random heads are of any layer, which an older version drew: what they show may be a matter of depth."
    return (
        "Control sets have as many heads in every layer as the own set, near in the norm of what they write. p: rank of the "
        "own set among them, (1 + sets that cost at least as much) / (1 + sets). Heads are ranked on training steps."
    )


def where_masked(dataset: xr.Dataset) -> str:
    """At which tokens heads were masked, in words."""
    where = str(dataset.attrs["positions"])
    return WHERE.get(where, f"at {where}")


def _how(chosen: xr.Dataset) -> str:
    return f"Masked heads are multiplied by {float(chosen.attrs['factor']):g} {where_masked(chosen)}."


def detectable(tested: xr.Dataset, name: str = "mean_effect") -> NDArray[np.float64]:
    """The loss that would have been found with 80 % power, from the width of each interval."""
    width = (tested[f"{name}_high"] - tested[f"{name}_low"]).values.astype(np.float64)
    return np.array([minimum_detectable_gain(float(one) / (2 * HALF_WIDTH)) for one in np.atleast_1d(width)])


def _power(tested: xr.Dataset) -> str:
    found = detectable(tested)
    found = found[np.isfinite(found)]
    return (
        f" With these steps, a loss of {found.min():.2f} to {found.max():.2f} is found with 80 % power."
        if len(found)
        else ""
    )


def _notes(text: str, chosen: xr.Dataset, reason: str, lead: str) -> tuple[str, ...]:
    out = [f"{n} ({why})" for n, why in zip(chosen[FUNCTION].values, chosen[reason].values, strict=True) if why]
    return (text, f"{lead}: {'; '.join(out)}.") if out else (text,)


def _signed(value: xr.DataArray) -> str:
    text = f"{float(value):.2f}"
    return text.replace("-0.00", "0.00").replace("-", "−")
