"""The figures of sparsity without training: what dropping attention weights costs, and which heads tolerate it.

``kind="costs"``: how much the loss rises, and how far next-token distributions move, over the share of edges kept; one
curve per rule, with bands over prompts, and random keys as the control; next to them the change of head outputs over the
weight that is dropped.

``kind="maps"``: layer x head, the keys that a head needs for 99 % of its weight, and how much its output changes under one
setting of each rule: of those measured, the one nearest to a quarter of the edges.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, RULE
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Curve, Curves, Heatmap, Panel
from headwise.figures.provenance import cell_names
from headwise.figures.scale import Scale, scale_over

KINDS = {"costs": "What dropping attention weights costs", "maps": "Heads that tolerate dropped weights"}
RULE_INFO = {  # kind of rule -> label, colour
    "top": ("top k of a row", "#35688b"),
    "over": ("over a threshold", "#35a35d"),
    "window": ("window and first", "#b5500b"),
    "entmax": ("entmax", "#7850a8"),
    "random": ("k at random", "#8c8c8c"),
}
QUARTER = 0.25


def figure(dataset: xr.Dataset, *, kind: str = "costs", rules: Iterable[str] | str | None = None) -> Figure:
    """All rules; of the maps, those named in ``rules`` (None: one setting of each rule)."""
    return _costs(dataset) if kind == "costs" else _maps(dataset, rules)


def _kinds(dataset: xr.Dataset) -> list[str]:
    found = {str(kind) for kind in dataset["kind"].values}
    return [kind for kind in RULE_INFO if kind in found]


def _costs(dataset: xr.Dataset) -> Figure:
    shares = dataset["kept_mean"].values
    kept = Axis("Share of edges kept", log=True)
    panels = [
        _panel(dataset, "rise", "kept_mean", "Loss", kept, "Rise of the loss (nats)"),
        _panel(dataset, "kl", "kept_mean", "Next tokens", kept, "KL(dense || sparse) (nats)"),
        _panel(
            dataset,
            "change_mean",
            "mass_mean",
            "Head outputs",
            Axis("Weight dropped"),
            "Change of z, mean of heads",
            named=True,
        ),
    ]
    scaled = "The remaining weights are rescaled to the row's sum. " if dataset.attrs["renormalised"] else ""
    return Figure(
        title=KINDS["costs"],
        panels=tuple(panels),
        columns=3,
        notes=(
            f"{int(dataset.attrs['prompts'])} prompts of {int(dataset.attrs['tokens'])} tokens; all heads are sparsified "
            f"at once. {scaled}Bands: 95 % interval over prompts, paired with the dense pass (loss "
            f"{float(dataset['dense']):.2f} nats). The share kept runs from {100 * shares.min():.1f} % to "
            f"{100 * shares.max():.1f} % of visible edges. Right: each head alone, with everything before it unchanged.",
        ),
    )


def _panel(
    dataset: xr.Dataset, variable: str, over: str, title: str, x: Axis, name: str, *, named: bool = False
) -> Curves:
    curves = []
    for kind in _kinds(dataset):
        one = dataset.isel({RULE: np.flatnonzero(dataset["kind"].values == kind)})
        one = one.isel({RULE: np.argsort(one[over].values)})
        label, colour = RULE_INFO[kind]
        low, high = (one[f"{variable}{end}"].values if f"{variable}{end}" in one else None for end in ("_low", "_high"))
        style = "dashed" if kind == "random" else "line"
        curves.append(
            Curve(kind, label if named else "", one[over].values, one[variable].values, low, high, colour, style)
        )
    return Curves(variable, title, tuple(curves), x, Axis(name))


def _maps(dataset: xr.Dataset, rules: Iterable[str] | str | None) -> Figure:
    names = _one_of_each(dataset) if rules is None else chosen_keys(dataset, RULE, rules, "The sparsity map")
    one = dataset.transpose(LAYER, HEAD, ...)
    rows, columns = Axis("Layer", cell_names(one, LAYER)), Axis("Head", cell_names(one, HEAD))
    panels: list[Panel] = [
        Heatmap(
            key="needed",
            title="Keys for 99 % of the weight",
            values=one["needed"].values,
            x=columns,
            y=rows,
            scale="needed",
            extras={"low": one["needed_low"].values, "high": one["needed_high"].values},
        )
    ]
    for name in names:
        rule = one.sel({RULE: name})
        kept, mean = float(rule["kept_mean"]), float(rule["change_mean"])
        panels.append(
            Heatmap(
                key=name,
                title=name.capitalize(),
                subtitle=f"change of z, mean {mean:.2f}; {100 * kept:.0f} % of edges kept",
                values=rule["change"].values,
                x=columns,
                y=rows,
                scale="change",
                extras={end: rule[f"change_{end}"].values for end in ("low", "high")} | {"kept": rule["kept"].values},
            )
        )
    changes = dataset["change"].sel({RULE: names}).values
    scales: dict[str, Scale] = {
        "needed": scale_over(one["needed"].values, "keys"),
        "change": scale_over(changes, "||z' - z|| / ||z||", clip=0.99),
    }
    return Figure(
        title=KINDS["maps"],
        panels=tuple(panels),
        columns=min(6, len(panels)),
        scales=scales,
        notes=(
            f"{int(dataset.attrs['prompts'])} prompts of {int(dataset.attrs['tokens'])} tokens, means over prompts. Each head "
            "alone, with everything before it unchanged. Keys: the smallest number that holds 99 % of a row's weight.",
        ),
    )


def _one_of_each(dataset: xr.Dataset) -> list[str]:
    """Of each rule (the control only where it is alone) the setting that keeps nearest to a quarter of the edges."""
    names = []
    kinds = _kinds(dataset)
    for kind in [kind for kind in kinds if kind != "random"] or kinds:
        own = np.flatnonzero(dataset["kind"].values == kind)
        nearest = own[np.argmin(np.abs(np.log(dataset["kept_mean"].values[own] / QUARTER)))]
        names.append(str(dataset[RULE].values[nearest]))
    return names
