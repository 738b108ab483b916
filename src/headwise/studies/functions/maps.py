"""From what was read to the Dataset of the functions study: pure functions, no model.

`to_dataset` puts together: the answers and how many are right; the joint probe over seeds (`probes.joint`) with what it
gets on held-out steps, beside chance; importance with its spread and its null (`chance`); the elbow; each head alone
(`second_opinion`) and how well the two maps agree; what the answer's form alone tells (`confounds`); directions of right
answers, for augmenting (`directions`).

A function's map is refused, NaN and a reason, where the probe does not tell it from the others on held-out steps: where
the 95 % interval of its AUROC includes 0.5. If all are refused there is no study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from headwise.core.dims import FUNCTION, HEAD, LAYER, RANK, SEED, WIDTH, head_name
from headwise.corpora import HIGH_ORDER, LOW_ORDER, TRAIN
from headwise.probes.joint import JointFits, JointTraining, fit_joint
from headwise.stats import correlation, rank_vectors, t_half_width, wilson_interval
from headwise.studies.functions.chance import against_shuffled
from headwise.studies.functions.confounds import form_of, told_by_form
from headwise.studies.functions.directions import direction
from headwise.studies.functions.elbow import elbow
from headwise.studies.functions.rows import Rows, joined
from headwise.studies.functions.second_opinion import each_alone
from headwise.studies.functions.told import ENDS, area_of, told, with_ends

__all__ = ["attributes", "to_dataset"]

Floats = NDArray[np.float64]
ALPHA = 0.05  # of q


def to_dataset(readings: xr.Dataset, functions: Sequence[str], options: Any, device: Any = "cpu") -> xr.Dataset:
    """The whole study. `options`: seeds, shuffles, most_epochs, seed; `device`: where the joint probe is fitted."""
    rows = Rows(readings, functions)
    fits = fit_joint(
        joined(rows.z, rows.there), rows.labels, rows.trains, rows.groups,
        classes=len(functions), seeds=options.seeds, shuffles=options.shuffles, seed=options.seed,
        training=JointTraining(max_epochs=options.most_epochs), device=device,
    )  # fmt: skip
    said, refused = told(rows, fits)
    maps = _maps(rows, fits, refused)
    alone = _alone(rows, maps, options.seed)
    parts = [_answers(readings, rows), said, maps, alone, _confounds(rows), _directions(rows)]
    whole = xr.merge(parts, compat="override", join="override")
    floats = {name: array.astype(np.float32) for name, array in whole.data_vars.items() if array.dtype == np.float64}
    return whole.assign(floats).assign_attrs(shuffles=options.shuffles, epochs=fits.epochs)


# ---- answers --------------------------------------------------------------------------------------------------------


def _answers(readings: xr.Dataset, rows: Rows) -> xr.Dataset:
    of, right = readings["function_of"].values.astype(str), readings["right"].values
    split = readings["split_of"].values.astype(str)
    counts = np.array([(of == name).sum() for name in rows.functions])
    share = np.array([right[of == name].mean() for name in rows.functions])
    found: dict[str, Any] = {
        f"accuracy{end}": (FUNCTION, values)
        for end, values in zip(ENDS, (share, *wilson_interval(share, counts)), strict=True)
    }
    orders = [("low" if name in LOW_ORDER else "high" if name in HIGH_ORDER else "") for name in rows.functions]
    trains = np.array([((of == name) & (split == TRAIN)).sum() for name in rows.functions], dtype=np.int64)
    coords = {
        FUNCTION: np.array(rows.functions, dtype=object),
        "order": (FUNCTION, np.array(orders, dtype=object)),
        "train": (FUNCTION, trains),
        "held_out": (FUNCTION, (counts - trains).astype(np.int64)),
        LAYER: np.arange(rows.shape[0]),
        HEAD: np.arange(rows.shape[1]),
    }
    return xr.merge([readings.drop_vars("z"), xr.Dataset(found)]).assign_coords(coords)


# ---- importance -----------------------------------------------------------------------------------------------------


def _maps(rows: Rows, fits: JointFits, refused: NDArray[np.bool_]) -> xr.Dataset:
    seeds = np.where(refused[:, None], np.nan, fits.importance.astype(np.float64))  # (seed, function, head)
    mean, spread = seeds.mean(axis=0), seeds.std(axis=0, ddof=1)
    half = t_half_width(seeds)
    worth = against_shuffled(mean, fits.null_importance.astype(np.float64))
    size = np.abs(mean)
    order = np.argsort(-np.nan_to_num(size, nan=-1), axis=1, kind="stable")
    ordered = np.take_along_axis(size, order, axis=1)
    counts = np.array([0 if out else elbow(row) for row, out in zip(ordered, refused, strict=True)], dtype=np.int64)
    chosen = np.zeros(size.shape, dtype=bool)
    for place, count in enumerate(counts):
        chosen[place, order[place, :count]] = True
    beyond = np.nan_to_num(worth.q, nan=1.0) < ALPHA
    names = np.array([head_name(int(layer), int(head)) for layer, head in np.argwhere(rows.there)], dtype=object)
    whole = {
        "importance": mean, "importance_low": mean - half, "importance_high": mean + half, "importance_sd": spread,
        "magnitude": size, "null_high": np.where(refused[:, None], np.nan, worth.high), "p": worth.p, "q": worth.q,
    }  # fmt: skip
    dims = (FUNCTION, LAYER, HEAD)
    found: dict[str, Any] = {name: (dims, rows.on_map(values)) for name, values in whole.items()}
    found |= {
        "beyond_null": (dims, rows.on_map(beyond, False)),
        "chosen": (dims, rows.on_map(chosen, False)),
        "importance_seeds": ((SEED, *dims), rows.on_map(seeds.astype(np.float32))),
        "sorted": ((FUNCTION, RANK), ordered),
        "ranked": ((FUNCTION, RANK), names[order]),
        "elbow": (FUNCTION, counts),
        "agreement": (FUNCTION, np.array([_agreement(np.abs(seeds[:, place])) for place in range(len(size))])),
        "best": ((LAYER, HEAD), rows.on_map(_best(rows.functions, size, beyond), "")),
    }
    return xr.Dataset(found, coords={RANK: np.arange(size.shape[1])})


def _agreement(maps: Floats) -> float:
    """Mean rank correlation of every pair of seeds' maps, (seed, head)."""
    if not np.isfinite(maps).all() or len(maps) < 2:
        return float("nan")
    vectors = rank_vectors(maps)
    return float((vectors @ vectors.T)[np.triu_indices(len(maps), 1)].mean())


def _best(functions: Sequence[str], size: Floats, beyond: NDArray[np.bool_]) -> NDArray[Any]:
    """The function for which each head matters most, relative to that function's largest; empty where none is beyond chance."""
    largest = np.nanmax(np.where(np.isnan(size), 0, size), axis=1, keepdims=True)
    share = np.where(beyond, size / np.where(largest > 0, largest, 1), -1)
    names = np.array(functions, dtype=object)[share.argmax(axis=0)]
    return np.where(share.max(axis=0) > 0, names, "")


# ---- what speaks for and against it ---------------------------------------------------------------------------------


def _alone(rows: Rows, maps: xr.Dataset, seed: int) -> xr.Dataset:
    alone = each_alone(rows.z[:, rows.there], rows.labels, rows.groups, len(rows.functions), seed=seed)
    dims = (FUNCTION, LAYER, HEAD)
    found: dict[str, Any] = {
        "alone": (dims, rows.on_map(alone.auroc)),
        "alone_p": (dims, rows.on_map(alone.p)),
        "alone_q": (dims, rows.on_map(alone.q)),
    }
    own = (rows.on_map(part) for part in (alone.accuracy, alone.low, alone.high))
    found |= with_ends("alone_accuracy", (LAYER, HEAD), *own)
    sizes = maps["magnitude"].values[:, rows.there]
    each = [_rank_correlation(size, other, seed) for size, other in zip(sizes, alone.auroc, strict=True)]
    return xr.Dataset(found | with_ends("rank_correlation", FUNCTION, *np.array(each).T))


def _rank_correlation(one: Floats, other: Floats, seed: int) -> tuple[float, float, float]:
    if not np.isfinite(one).all():
        return np.nan, np.nan, np.nan
    found = correlation(stats.rankdata(one), stats.rankdata(other), seed=seed)
    return found.value, found.low, found.high


def _confounds(rows: Rows) -> xr.Dataset:
    read = rows.readings
    first_keys = [str(text).split(" | ")[0] for text in read["key_text"].values]
    form = form_of(
        [str(text) for text in read["answer"].values],
        first_keys,
        read["answer_tokens"].values,
        read["key_tokens"].values,
    )
    said = np.maximum(told_by_form(form, rows.labels, rows.trains, len(rows.functions)), -50)
    truth, hits = rows.held_out, said.argmax(axis=1) == rows.held_out
    areas = [area_of(said[None], truth, place, rows) for place in range(len(rows.functions))]
    recall = np.array([hits[truth == place].mean() for place in range(len(rows.functions))])
    found = dict(with_ends("confound_accuracy", (), hits.mean(), *wilson_interval(hits.mean(), len(hits))))
    found["confound_recall"] = (FUNCTION, recall)
    parts = ([getattr(one, part) for one in areas] for part in ("value", "low", "high"))
    return xr.Dataset(found | with_ends("confound_auroc", FUNCTION, *parts))


def _directions(rows: Rows) -> xr.Dataset:
    right = rows.readings["right"].values
    own = [(rows.labels == place) & rows.trains for place in range(len(rows.functions))]
    found = np.stack([direction(rows.z[some], right[some]) for some in own])
    return xr.Dataset(
        {
            "direction": ((FUNCTION, LAYER, HEAD, WIDTH), np.where(rows.there[:, :, None], found, np.nan)),
            "train_right": (FUNCTION, np.array([right[some].sum() for some in own], dtype=np.int64)),
            "train_wrong": (FUNCTION, np.array([(~right[some]).sum() for some in own], dtype=np.int64)),
        }
    )


def attributes(left_out: dict[str, str], key_rule: str) -> dict[str, str]:
    """What the Dataset says about itself."""
    return {
        "title": "Which heads carry which cognitive function",
        "record": json.dumps(["importance", "best"]),
        "key_rule": key_rule,
        "left_out": json.dumps(left_out, ensure_ascii=False),
    }
