"""Sparsity without training in words: what each rule drops, what that costs, and which heads tolerate it.

Every number is recorded in `Description.numbers`: "rise top 6" is that variable at
that rule, "needed L3H1" the keys that a head needs; means and counts are named as such.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import RULE
from headwise.describe import maps
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_in, with_interval
from headwise.describe.writer import Writer, listed

KINDS = {
    "top": "The largest of a row",
    "over": "Those over a threshold",
    "window": "A window and the first tokens",
    "entmax": "Entmax in place of softmax",
    "random": "As many at random, a control",
}
MAX_RISE = 0.05  # of the loss, in nats: tolerable
NAMED = 3


def _kinds(dataset: xr.Dataset) -> list[str]:
    found = {str(kind) for kind in dataset["kind"].values}
    return [kind for kind in KINDS if kind in found]


def _overview(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    rules = writer.count(dataset.sizes[RULE], "rules", "rule")
    prompts = writer.count(int(dataset.attrs["prompts"]), "prompts", "prompt")
    tokens = writer.count(int(dataset.attrs["tokens"]), "tokens", "token")
    yield (
        f"What {model_in(dataset)} loses when attention weights are dropped at inference, without training, by {rules}, on "
        f"{prompts} of {tokens}."
    )


def _axes(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    dense = writer.number(float(dataset["dense"]), "dense")
    scaled = "rescaled to the row's sum" if dataset.attrs["renormalised"] else "left unchanged"
    yield (
        f"The loss is {dense} nats with nothing dropped; rises are paired by prompt, with 95 % intervals in brackets. The "
        f"remaining weights of a row are {scaled}. The change of a head's output is the norm of the difference over "
        "the norm of the output, for the head alone."
    )


def _kind(writer: Writer, dataset: xr.Dataset, kind: str) -> str:
    parts = []
    for name in dataset[RULE].values[dataset["kind"].values == kind]:
        one = dataset.sel({RULE: name})
        kept = writer.percent(float(one["kept_mean"]), f"kept {name}")
        mass = writer.percent(float(one["mass_mean"]), f"mass {name}")
        rise = with_interval(writer, one.__getitem__, "rise", name)
        change = writer.fixed(float(one["change_mean"]), f"change {name}")
        parts.append(
            f"{name} keeps {kept} of edges, drops {mass} of the weight, changes head outputs by {change} of their "
            f"norm and raises the loss by {rise}"
        )
    return f"{KINDS[kind]}: {'; '.join(parts)}."


def _cheapest(dataset: xr.Dataset) -> xr.Dataset | None:
    """The setting with the fewest edges whose rise of the loss is tolerable, interval included."""
    cheap = dataset.isel({RULE: np.flatnonzero(dataset["rise_high"].values <= MAX_RISE)})
    return cheap.isel({RULE: int(np.argmin(cheap["kept_mean"].values))}) if cheap.sizes[RULE] else None


def _sparsest(writer: Writer, dataset: xr.Dataset) -> str:
    """The sparsest setting that costs little, of all rules."""
    limit = writer.number(MAX_RISE, "limit")
    best = _cheapest(dataset)
    if best is None:
        return f"No setting keeps the rise of the loss below {limit} nats, interval included."
    name = str(best[RULE].values)
    kept = writer.percent(float(best["kept_mean"]), f"kept {name}")
    rise = writer.fixed(float(best["rise"]), f"rise {name}")
    return (
        f"The fewest edges at a rise below {limit} nats, interval included, are left by {name}: {kept}, at {rise} nats."
    )


def _control(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    for index in np.flatnonzero(dataset["kind"].values == "random"):
        amount = float(dataset["strength"].values[index])
        same = np.flatnonzero((dataset["kind"].values == "top") & (dataset["strength"].values == amount))
        if same.size:
            random, top = (str(dataset[RULE].values[each]) for each in (index, same[0]))
            by = [writer.fixed(float(dataset["rise"].sel({RULE: name})), f"rise {name}") for name in (random, top)]
            keys = writer.number(amount, f"strength {top}")
            yield (
                f"Which keys stay matters: {keys} keys per row drawn at random raise the loss by {by[0]} nats, the {keys} "
                f"largest by {by[1]}."
            )


def _heads(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    needed = dataset["needed"]
    mean = writer.number(float(needed.mean()), "needed mean")
    few, many = (
        [
            f"{one.name} ({writer.number(one.value, f'needed {one.name}')})"
            for one in maps.strongest(needed, NAMED, by=by)
        ]
        for by in ("smallest", "largest")
    )
    yield f"For 99 % of a row's weight a head needs {mean} keys on average; the fewest {listed(few)}, the most {listed(many)}."
    trend = maps.depth_trend(needed)
    if trend is not None:
        thirds = [
            writer.number(value, f"needed {third}") for third, value in zip(maps.THIRDS, trend.means, strict=True)
        ]
        yield f"By depth: {thirds[0]} keys in the early, {thirds[1]} in the middle and {thirds[2]} in the late third of layers."


def _caveats(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    tokens = writer.count(int(dataset.attrs["tokens"]), "tokens", "token")
    yield (
        f"Prompts have {tokens}: in a longer text the same number of keys is a smaller share. Shares are those of the dense "
        "pass. The rules are exact; how fast a sparse kernel would be is not measured."
    )


def _headline(writer: Writer, dataset: xr.Dataset) -> str:
    best = _cheapest(dataset)
    if best is None:
        best = dataset.isel({RULE: int(np.argmin(dataset["rise"].values))})
    name = str(best[RULE].values)
    kept, rise = (
        writer.percent(float(best["kept_mean"]), f"kept {name}"),
        writer.fixed(float(best["rise"]), f"rise {name}"),
    )
    return f"With {kept} of its attention edges ({name}), {model_in(dataset)} loses {rise} nats, without training."


describe = Narrative(
    "What a sparse kernel would cost",
    lambda dataset: dataset,
    (
        _overview,
        _axes,
        lambda writer, dataset: (_kind(writer, dataset, kind) for kind in _kinds(dataset)),
        (_sparsest, _control, _heads),
        _caveats,
    ),
    _headline,
)
