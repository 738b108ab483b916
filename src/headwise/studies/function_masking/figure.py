"""The figures of the masking study: does the model need a function's heads, and for that function only?

- ``kind="masking"``: one panel a function: accuracy on steps that the whole model does, with the function's most important
  heads masked, and with as many random ones.
- ``kind="effects"``: what masking costs beyond random heads, on the function's own steps and on those of the others.
- ``kind="cross"``: the same as a matrix: heads of the row's function masked, steps of the column's asked; beside it how
  many heads two functions share.
- ``kind="augment"``: accuracy with a direction (correct less wrong answers) added to the heads, and with random directions.
- ``kind="hierarchy"``: whole chains with the heads of a low-order function masked: what high-order steps lose.

Nothing is computed here. After Ma et al., arXiv 2512.10978.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import AMOUNT, DRAW, FUNCTION, MASKED, REMOVED
from headwise.core.errors import StudyError, did_you_mean
from headwise.figures.figure import Figure
from headwise.figures.matrices import written_matrix
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Heatmap, Intervals, Legend, Panel
from headwise.figures.provenance import provenance_caption, provenance_of, with_model
from headwise.figures.scale import Scale, scale_around
from headwise.studies.functions.figure.grid import Parts, columns_for, shown_functions

LEAST_ASKED = 5  # steps, for an interval over them to mean something
TOGETHER = "all of them together"
WHERE = {
    "answer": "from the last prompt token on",
    "decode": "at the decode steps",
    "everywhere": "at every token",
}
OWN, RANDOM = "#b5500b", "#8c8c8c"
TITLES = {
    "masking": "Steps without a function's heads",
    "effects": "What a function's heads are needed for",
    "cross": "Heads of one function masked, steps of another asked",
    "augment": "Steps with a function's heads strengthened",
    "hierarchy": "Whole chains without the heads of a low-order function",
}


def figure(dataset: xr.Dataset, *, kind: str = "masking", functions: Iterable[str] | str | None = None) -> Figure:
    """Masking curves of all functions (or of those named); with another ``kind``, matrices, augmenting or hierarchy."""
    if kind not in TITLES:
        raise StudyError(f"The function_masking figure has no kind {kind!r}. {did_you_mean(kind, TITLES)}")
    names = shown_functions(dataset, functions, "The function_masking study")
    parts = _KINDS[kind](dataset.sel({FUNCTION: names, MASKED: names}))
    origin = provenance_of(dataset)
    return Figure(
        title=with_model(TITLES[kind], origin),
        panels=parts.panels,
        columns=parts.columns,
        scales=parts.scales,
        notes=parts.notes,
        provenance=provenance_caption(origin),
    )


# ---- masking --------------------------------------------------------------------------------------------------------


def _masking(chosen: xr.Dataset) -> Parts:
    kept = _without(chosen, "reason", "masked")
    panels = tuple(_masked(kept.sel({FUNCTION: name}), str(name)) for name in kept[FUNCTION].values)
    legend = _legend("its heads masked", "random heads masked")
    note = (
        f"{_how(chosen)} Asked: held-out steps that the whole model does, so that any change can only lower the accuracy. "
        f"Bands: 95 % interval over steps (its heads) and over {chosen.sizes[DRAW]} draws (random heads, outside the masked "
        "ones). Lost: accuracy with random heads masked less accuracy with its own, mean over all numbers of heads."
    )
    return Parts((*panels, legend), columns_for(len(panels)), _notes(note, chosen, "reason", "Not masked"))


def _masked(one: xr.Dataset, name: str) -> Curves:
    lost = (
        f"lost {_signed(one['mean_effect'])} ({_signed(one['mean_effect_low'])} to {_signed(one['mean_effect_high'])})"
    )
    return Curves(
        key=name,
        title=name,
        subtitle=f"{int(one['asked'])} steps\n{lost}",
        curves=(
            _curve(one, REMOVED, "random", RANDOM, "dashed"),
            _curve(one, REMOVED, "own", OWN, "line"),
        ),
        x=Axis("Heads masked", log=True),
        y=Axis("Accuracy", low=-0.03, high=1.03),
    )


def _effects(chosen: xr.Dataset) -> Parts:
    kept = _without(chosen, "reason", "masked")
    size = int(chosen.attrs["size"])
    panels = (
        _intervals(
            kept, "mean_effect", "Lost by its own steps", "Accuracy, mean over numbers of heads", last="pooled_"
        ),
        _intervals(kept, "spill", "Lost by the steps of others", f"Accuracy, {size} heads"),
    )
    note = (
        f"Accuracy with random heads masked less accuracy with the function's own; lines: 95 % interval. {_how(chosen)}"
    )
    return Parts(panels, 2, _notes(note, chosen, "reason", "Not masked"))


def _cross(chosen: xr.Dataset) -> Parts:
    kept = _without(chosen, "reason", "masked")
    names = tuple(str(name) for name in kept[FUNCTION].values)
    kept = kept.sel({MASKED: list(names)}).transpose(MASKED, FUNCTION, ...)
    size = int(chosen.attrs["size"])
    asked = kept["asked"].values
    labels = tuple(f"{name} ({count})" for name, count in zip(names, asked, strict=True))
    x, y = Axis("Steps of (how many)", labels), Axis(f"{size} heads masked of", names)
    shared = Axis("among the heads of", names), Axis(f"{size} heads of", names)
    effect, low = kept["cross_effect"].values, kept["cross_effect_low"].values
    panels = (
        written_matrix(
            "cross", "Lost beyond random heads", effect, x, y, "lost", framed=(low > 0) & (asked >= LEAST_ASKED)
        ),
        written_matrix("overlap", "Heads that the two share", kept["overlap"].values, *shared, "share"),
    )
    scales = {
        "lost": scale_around(np.append(effect, 0.1), "accuracy lost"),
        "share": Scale("share of heads", 0.0, 1.0, "Greys"),
    }
    note = (
        "Left: accuracy on the column's steps with random heads (outside the column's own) masked, less that with the "
        "row's heads masked; boxed where "
        f"its 95 % interval is above 0 and at least {LEAST_ASKED} steps were asked. Right: share of the row's heads that are "
        f"among the column's. {_how(chosen)}"
    )
    return Parts(panels, 2, _notes(note, chosen, "reason", "Not masked"), scales)


# ---- augmenting, hierarchy ------------------------------------------------------------------------------------------


def _augment(chosen: xr.Dataset) -> Parts:
    kept = _without(chosen, "augment_reason", "augmented")
    panels = tuple(_augmented(kept.sel({FUNCTION: name}), str(name)) for name in kept[FUNCTION].values)
    legend = _legend("towards right answers", "random directions")
    note = (
        "The direction is the mean over correct less the mean over wrong training steps, of unit length, times alpha standard "
        "deviations along it, added to each of the function's heads. Bands: 95 % intervals; dashes: random directions of "
        "the same length in the same heads. Asked are held-out steps, those that the whole model fails too."
    )
    return Parts((*panels, legend), columns_for(len(panels)), _notes(note, chosen, "augment_reason", "Not augmented"))


def _augmented(one: xr.Dataset, name: str) -> Curves:
    return Curves(
        key=name,
        title=name,
        subtitle=f"{int(one['augment_asked'])} steps",
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
        why = chosen.attrs["chain_reason"] or "none of the functions shown was masked in them"
        raise StudyError(f"There is no hierarchy to draw: {why}.")
    names = [str(name) for name in chosen[MASKED].values[tried]]
    panels: tuple[Panel, ...] = (_chains(chosen, names),)
    lost = _intervals(
        chosen.sel({FUNCTION: names}), "chain_effect", "Lost by high-order steps", "Accuracy beyond random"
    )
    note = (
        f"{int(chosen.attrs['chains'])} whole chains: every step is asked after the model's own earlier answers; in brackets "
        f"how many steps. {int(chosen.attrs['size'])} heads are masked; random heads are outside of all these functions' "
        "heads, mean over draws. Lost: accuracy on high-order steps with random heads masked less that with the function's "
        f"heads masked; lines: 95 % interval. {_how(chosen)}"
    )
    if "chain_random" not in chosen:
        note += " Strokes: this atlas kept random heads for the high-order steps together only."
    if np.isfinite(lost.values).any():
        panels += (lost,)
    return Parts(panels, 2, (note,), {"accuracy": Scale("accuracy", 0.0, 1.0, "Blues")})


def _chains(chosen: xr.Dataset, names: list[str]) -> Heatmap:
    """Accuracy of each function's steps and of all high-order ones: of the whole model, without random heads, without own."""
    asked = chosen.isel({FUNCTION: np.isfinite(chosen["chain_whole"].values)}).transpose(MASKED, FUNCTION, ...)
    steps, high = asked["chain_steps"].values, asked["order"].values == "high"
    whole, masked = asked["chain_whole"].values, asked["chain"].sel({MASKED: names}).values
    random = asked["chain_random"].values if "chain_random" in asked else np.full(whole.shape, np.nan)
    rows = np.vstack([whole, random, masked])
    labels = [f"{name} ({count})" for name, count in zip(asked[FUNCTION].values, steps, strict=True)]
    if high.any():
        together = np.average(whole[high], weights=steps[high])
        own, beside = (chosen.sel({FUNCTION: names})[f"chain_high_{key}"].values for key in ("own", "random"))
        rows = np.hstack([rows, np.array([together, beside[0], *own])[:, None]])
        labels.append(f"all high-order ({int(steps[high].sum())})")
    return written_matrix(
        "chain", "Accuracy in whole chains", rows, Axis("Steps of (how many)", tuple(labels)),
        Axis("Masked", ("no head", "random heads", *names)), "accuracy", missing="not kept, or no such steps",
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
    """Accuracy with its interval, as far as it was measured; the legend names it."""
    known = np.isfinite(one[key].values)
    place, value, low, high = (one[name].values[known] for name in (dim, key, f"{key}_low", f"{key}_high"))
    return Curve(key, "", place.astype(float), value, low, high, colour, style)


def _intervals(kept: xr.Dataset, key: str, title: str, what: str, *, last: str = "") -> Intervals:
    """One row a function; with ``last``, one more from the variables of that prefix: all functions together."""
    rows = [kept[f"{key}{end}"].values for end in ("", "_low", "_high")]
    names = tuple(str(name) for name in kept[FUNCTION].values)
    if last:
        names += (TOGETHER,)
        rows = [np.append(row, kept[f"{last}{key}{end}"]) for row, end in zip(rows, ("", "_low", "_high"), strict=True)]
    value, low, high = rows
    floor, top = float(np.nanmin(low, initial=-0.05)), float(np.nanmax(high, initial=0.1))
    axes = Axis(what, low=floor - 0.02, high=top + 0.03), Axis("", names)
    return Intervals(key, title, value, low, high, *axes, guides=(Guide("x", 0.0),))


def _without(chosen: xr.Dataset, reason: str, done: str) -> xr.Dataset:
    """The functions that something was done to."""
    why = [str(text) for text in chosen[reason].values]
    kept = chosen.isel({FUNCTION: [place for place, text in enumerate(why) if not text]})
    if not kept.sizes[FUNCTION]:
        told = "; ".join(f"{name}: {text}" for name, text in zip(chosen[FUNCTION].values, why, strict=True))
        raise StudyError(f"No function was {done}: {told}.")
    return kept


def where_masked(dataset: xr.Dataset) -> str:
    """At which tokens heads were masked, in words."""
    where = str(dataset.attrs["positions"])
    return WHERE.get(where, f"at {where}")


def _how(chosen: xr.Dataset) -> str:
    return f"Masked heads are multiplied by {float(chosen.attrs['factor']):g} {where_masked(chosen)}."


def _notes(text: str, chosen: xr.Dataset, reason: str, said: str) -> tuple[str, ...]:
    out = [f"{n} ({why})" for n, why in zip(chosen[FUNCTION].values, chosen[reason].values, strict=True) if why]
    return (text, f"{said}: {'; '.join(out)}.") if out else (text,)


def _signed(value: xr.DataArray) -> str:
    text = f"{float(value):.2f}"
    return text.replace("-0.00", "0.00").replace("-", "−")
