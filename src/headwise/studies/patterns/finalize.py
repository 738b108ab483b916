"""From readings to the study's Dataset: statistics of each condition, tests between the two, maps to draw.

Per head: means over prompts with 95 % intervals (Student's t). Between two conditions: the change of each statistic with a
paired test over prompts (`stats.paired_changes`), the similarity of the maps with its control, and the shares of active
edges dropped and gained. For the model as a whole (`whole`, along `feature`): one number per prompt, such as the share of
heads that are dominant there, then mean, interval and paired test over prompts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import xarray as xr

from headwise.core.dims import CONDITION, EXAMPLE, FEATURE, HEAD, LAYER, STATISTIC
from headwise.stats import mean_interval, paired_changes

HALF = 0.5  # a head with more than half of its weight on the diagonal band is dominant
STATISTIC_INFO = {  # number -> label, definition
    "diagonal": ("Diagonal band", "share of the weight that lies on |i - j| <= 1"),
    "first": ("First token", "weight on the first token, per row"),
    "peak": ("Peak", "largest weight of a row"),
    "off_diagonal": ("Off-diagonal", "weights over {peak} with i - j >= 2, except the first token, per row"),
    "entropy": (
        "Entropy",
        "entropy of a row divided by the log of the number of visible keys",
    ),
    "active": ("Active edges", "share of visible pairs with weight over {active}"),
    "open": ("Open edges", "share of visible pairs with any weight"),
    "mass": ("Row sum", "sum of the weights of a row"),
}
FEATURE_INFO = {  # feature -> what it is, over all heads of a prompt
    "dominant": "share of heads with over half of their weight on the diagonal band",
    "peaked": "share of heads with an off-diagonal peak",
    **{name: f"mean over heads: {definition}" for name, (_, definition) in STATISTIC_INFO.items()},
    "loss": "mean next-token loss, nats",
}


def finalize(
    shards: Sequence[xr.Dataset], names: Sequence[str], tokens: Sequence[str], thresholds: dict[str, float]
) -> xr.Dataset:
    """All shards to the study's Dataset. `names`: of the conditions; `tokens`: of the shown prompt."""
    shown = shards[0]["shown"]
    readings = xr.concat([shard.drop_vars(["shown", "maps"], errors="ignore") for shard in shards], dim=EXAMPLE,
                         data_vars="all")  # fmt: skip
    count = readings.sizes[EXAMPLE]
    values = readings["value"].transpose(CONDITION, EXAMPLE, STATISTIC, LAYER, HEAD)
    each = mean_interval(values, EXAMPLE).rename(mean="value")
    found = each.assign(
        uniform=readings["uniform"].mean(EXAMPLE).transpose(STATISTIC, LAYER, HEAD),
        per_example=values,
        loss=readings["loss"].transpose(CONDITION, EXAMPLE),
        peaked=(values.sel({STATISTIC: "off_diagonal"}, drop=True) > 0).mean(EXAMPLE),
    )
    whole = whole_of(values, readings["loss"])
    found = found.assign({f"whole{end}": one for end, one in _ended(mean_interval(whole, EXAMPLE)).items()})
    if values.sizes[CONDITION] == 2:
        found = found.assign(_between(readings, values, whole))
    found = found.astype(np.float32)
    average = xr.concat([shard["maps"] for shard in shards], dim=EXAMPLE).sum(EXAMPLE, skipna=False) / count
    found = found.assign(average=average.astype(np.float16), shown=shown.astype(np.float16))
    return _named(found, names, tokens, thresholds).assign_attrs(
        title="What the attention maps look like",
        record=json.dumps(
            [name for name in ("value", "change", "q", "similarity", "elsewhere", "dropped") if name in found]
        ),
    )


def whole_of(values: xr.DataArray, loss: xr.DataArray) -> xr.DataArray:
    """Features over all heads together, (condition, example, feature)."""
    heads = (LAYER, HEAD)
    diagonal, peaks = values.sel({STATISTIC: "diagonal"}), values.sel({STATISTIC: "off_diagonal"})
    there = values.sel({STATISTIC: "peak"}).notnull()
    shares = {
        "dominant": (diagonal > HALF).sum(heads) / there.sum(heads),
        "peaked": (peaks > 0).sum(heads) / there.sum(heads),
    }
    means = {name: values.sel({STATISTIC: name}).mean(heads) for name in STATISTIC_INFO}
    found = [one.reset_coords(drop=True) for one in (shares | means | {"loss": loss}).values()]
    return (
        xr.concat(found, dim=FEATURE)
        .assign_coords({FEATURE: list(FEATURE_INFO)})
        .transpose(CONDITION, EXAMPLE, FEATURE)
    )


def _between(readings: xr.Dataset, values: xr.DataArray, whole: xr.DataArray) -> dict[str, xr.DataArray]:
    """Everything that needs two conditions."""
    before, after = values.isel({CONDITION: 0}), values.isel({CONDITION: 1})
    tests = paired_changes(before, after).rename(low="change_low", high="change_high")
    overall = paired_changes(whole.isel({CONDITION: 0}), whole.isel({CONDITION: 1}), maps=(FEATURE,))
    overall = overall.drop_vars("q").rename({name: f"whole_{name}" for name in ("change", "p")})
    overall = overall.rename(low="whole_change_low", high="whole_change_high")
    found = dict(tests.data_vars) | dict(overall.data_vars)
    for name, one in _edges(readings).items():
        found |= {f"{name}{end}": value for end, value in _ended(mean_interval(one, EXAMPLE)).items()}
    heads = (LAYER, HEAD)
    summed = readings[["before", "after", "both"]].sum(heads)
    overall_edges = _edges(
        summed.assign({name: readings[name].mean(heads) for name in ("similarity", "other", "elsewhere")})
    )
    for name, one in (overall_edges | {"kl": readings["kl"]}).items():
        found[f"{name}_of_prompt"] = one
        found |= {f"whole_{name}{end}": value for end, value in _ended(mean_interval(one, EXAMPLE)).items()}
    return {str(name): one.reset_coords(drop=True) for name, one in found.items()}


def _edges(readings: xr.Dataset) -> dict[str, xr.DataArray]:
    """Shares of the active edges that only one of the two has; NaN where there are none."""
    before, after, both = (readings[name] for name in ("before", "after", "both"))
    return {
        "dropped": 1 - both / before.where(before > 0),
        "gained": 1 - both / after.where(after > 0),
        "similarity": readings["similarity"],
        "other": readings["other"],
        "elsewhere": readings["elsewhere"],
    }


def _ended(interval: xr.Dataset) -> dict[str, xr.DataArray]:
    return {"": interval["mean"], "_low": interval["low"], "_high": interval["high"]}


def _named(found: xr.Dataset, names: Sequence[str], tokens: Sequence[str], thresholds: dict[str, float]) -> xr.Dataset:
    labels, definitions = zip(*(STATISTIC_INFO[name] for name in found[STATISTIC].values.tolist()), strict=True)
    formatted = [text.format(**thresholds) for text in definitions]
    features = [FEATURE_INFO[name].format(**thresholds) for name in found[FEATURE].values.tolist()]
    keys = ("model", "reference")[: len(names)]
    return found.assign_coords(
        {CONDITION: list(keys), "name": (CONDITION, list(names)), "label": (STATISTIC, list(labels)),
         "definition": (STATISTIC, formatted), "feature_definition": (FEATURE, features), **_positions(found, len(tokens)),
         "token_text": ("token", list(tokens))}
    )  # fmt: skip


def _positions(found: xr.Dataset, tokens: int) -> dict[str, np.ndarray]:
    """Where the rows and columns of the shown maps begin, in tokens: one per token unless they were pooled."""
    return {dim: np.arange(found.sizes[dim]) * tokens // found.sizes[dim] for dim in ("query", "key")}
