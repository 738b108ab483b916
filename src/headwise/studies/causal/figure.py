"""The figure of the causal study: layer x head, what the loss rises by without each head, for every class of tokens.

All maps share one scale, in nats per token, so that classes can be compared; it is clipped where a few heads would leave all
others white. Heads that were ablated exactly are marked by a dot, the largest effects by a ring and named above the map. The
last panel shows attribution against exact ablation for the heads that have both.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import ABLATION, HEAD, LAYER, TOKEN_CLASS, head_name
from headwise.core.errors import StudyError, did_you_mean
from headwise.figures.figure import Figure
from headwise.figures.head_maps import largest_cells
from headwise.figures.panels import Axis, Category, Heatmap, Mark, Panel, Scatter
from headwise.figures.provenance import cell_names
from headwise.figures.scale import Scale, scale_around

CLIP = 0.98  # quantile of the sizes of effects at which the scale is clipped
ROLES = {
    "top": ("largest attribution", "#b5500b"),
    "random": ("at random", "#31688e"),
    "all": ("all others", "#8c8c8c"),
}
NAMED = 3  # heads that the scatter names
WORDS = {"mean": "its mean output put in", "resample": "its output on another text put in"}


def figure(dataset: xr.Dataset, *, ablation: str = "mean") -> Figure:
    """Maps of all classes of tokens that occur, and attribution against exact ablation."""
    known = [str(name) for name in dataset[ABLATION].values]
    if ablation not in known:
        raise StudyError(f"The causal figure has no ablation {ablation!r}. {did_you_mean(ablation, known)}")
    one = dataset.sel({ABLATION: ablation})
    classes = [
        str(name) for name in one[TOKEN_CLASS].values if bool(one["effect"].sel({TOKEN_CLASS: name}).notnull().any())
    ]
    panels: list[Panel] = [_map(one.sel({TOKEN_CLASS: name}), name) for name in classes]
    panels.append(_scatter(one.sel({TOKEN_CLASS: classes[0]})))
    return Figure(
        title=str(dataset.attrs.get("title", "")),
        panels=tuple(panels),
        columns=3 if len(panels) > 8 else 4,
        subtitle=f"Rise of the loss without the head ({WORDS[ablation]}), by class of the predicted token",
        scales={"effect": _scale(one.sel({TOKEN_CLASS: classes})["effect"].values)},
        notes=_notes(one),
    )


def _scale(values: np.ndarray) -> Scale:
    return scale_around(values, "rise of the loss, nats per token", clip=CLIP)


def _map(one: xr.Dataset, key: str) -> Heatmap:
    one = one.transpose(LAYER, HEAD, ...)
    values, checked = one["effect"].values, one["checked"].values
    rings = largest_cells(np.abs(values))
    dots = [(int(row), int(column)) for row, column in np.argwhere(checked != "")] if (checked == "").any() else []
    named = " ".join(head_name(*cell) for cell in rings)
    return Heatmap(
        key=key,
        title=f"{one['label'].values}"[:1].upper() + f"{one['label'].values}"[1:],
        subtitle=f"{named}\n{int(one['tokens']):,} tokens" if named else f"{int(one['tokens']):,} tokens",
        values=values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale="effect",
        marks=tuple(Mark(*cell) for cell in rings)
        + tuple(Mark(*cell, sign="dot") for cell in dots if key == "all" and cell not in rings),
        extras={name: one[variable].values for name, variable in _EXTRAS.items()},
    )


_EXTRAS = {"low": "effect_low", "high": "effect_high", "q": "q", "attribution": "attribution"}


def _scatter(one: xr.Dataset) -> Scatter:
    """Of the heads with both, where both are above 0: attribution to the right, exact ablation upwards, equal log axes."""
    one = one.transpose(LAYER, HEAD, ...)
    checked = one["checked"].values
    x, y = one["attribution"].values, one["effect"].values
    cells = np.argwhere((checked != "") & (x > 0) & (y > 0))
    x, y = (values[tuple(cells.T)] for values in (x, y))
    roles = [role for role in ROLES if (checked == role).any()]
    every = np.concatenate([x, y]) if len(cells) else np.array([0.1, 1.0])
    low, high = 0.7 * float(every.min()), 1.4 * float(every.max())
    agreement = float(one["agreement_random"])
    hidden = int((checked != "").sum()) - len(cells)
    parts = [f"rank correlation {agreement:.2f}"] if np.isfinite(agreement) else []
    parts += [f"{hidden} below 0 not drawn"] if hidden else []
    return Scatter(
        key="agreement",
        title="Is attribution right?",
        subtitle="\n".join(parts),
        x_values=x,
        y_values=y,
        x=Axis("Attribution", low=low, high=high, log=True),
        y=Axis("Exact ablation", low=low, high=high, log=True),
        names=tuple(head_name(int(layer), int(head)) for layer, head in cells),
        groups=tuple(roles.index(str(checked[layer, head])) for layer, head in cells),
        categories=tuple(Category(role, ROLES[role][0], ROLES[role][1]) for role in roles),
        shown=tuple(int(index) for index in np.argsort(-y, kind="stable")[:NAMED]),
    )


def _notes(one: xr.Dataset) -> tuple[str, ...]:
    checked = one["checked"].values
    measured = np.isfinite(one["effect"].isel({TOKEN_CLASS: 0}).values)
    exact, total = int((checked != "").sum()), int(measured.sum())
    text = f"Red: the loss rises without the head. {exact} of {total} heads were ablated exactly"
    if exact == total:
        return (f"{text}.",)
    slope, error = (float(one[name].isel({TOKEN_CLASS: 0})) for name in ("slope", "error"))
    return (
        f"{text} (dots in the first map, rings are the largest effects); the others have a second-order attribution, "
        f"corrected by a curve (of slope {slope:.2f} for all tokens) that was fitted on these heads; what it misses is "
        f"{error:.2f} standard deviations of exact effects. Last panel: the heads with both, in nats per token; the rank "
        "correlation is over the random ones.",
    )
