"""From the readings to the Dataset of the functions study: the joint probe, importance with its null, and what qualifies it.

A function's importance map is gradient x activation of its logit, signed, on held-out steps, mean over seeds (`probes.joint`).
It is refused (NaN and a reason) where the probe does not distinguish the function; see `probe_quality`.

- **Null.** Each permutation of the labels gives a map per class. A head's importance, standardised by its own null, is compared
  with all heads' standardised nulls of that function (`stats.shuffle_test`, two-sided); q is Benjamini-Hochberg over heads and
  nowhere below the whole map's rank among the shuffled ones, so that 20 permutations are needed for q < 0.05. Real maps are
  means over seeds and null maps single probes, which vary more: the test is conservative. It shows that a head carries
  information about the function, not that the model uses it.
  A label that is no function passes the same test; `depth_of_wording` measures one.
- **Own heads.** What says "this is alpha" says "this is not beta", so a head that carries one function matters to all. Which
  function is a head's own? The differences of its importance to that for every other function go through the same test,
  one-sided, and all have to pass (`own_q`). These heads, where a probe on the head alone also passes (it does not see the mean
  of the layer, which says what neighbours know), are the study's head sets; a head that matters as much to two is in neither,
  as every head is where there are only two functions.
- **Training steps.** The same importance on the steps that the probe was trained on (`train_importance`) ranks heads for the
  study `function_masking`, which may then mask them on steps that neither the probe nor the ranking has seen.
- **Elbow.** A function's heads are those up to the elbow of its sorted importance: the point furthest below the chord between
  the curve's ends, both axes scaled to 0..1. A convention, not a test.
- **Direction**, for augmenting: d = σ · u with u = unit(mean z of right - mean z of wrong answers) and σ the deviation of z
  along u, over *training* steps, so an amount of 1 is one standard deviation towards right answers (inference-time
  intervention, Li et al. 2023). NaN with fewer than `MIN_ANSWERS_PER_CLASS` right or wrong answers.

**Wording**: what would a label that is no function look like? From single heads, layer by layer: how is a step worded?
Every head that sees the words of a step beats permuted labels, because functions are asked in different words. The null that
means something is a label that is no function. Here: whether a step begins with the word that most steps of its function begin
with, *within* the function, so that it says nothing about the function. Next to it, the function itself on the same footing:

    wording     steps of the function that begin with its most frequent first word, against its other steps
    function    as many steps of the function, against as many steps of the others

Each is read by one-step logistic probes on single heads (`probe_quality`), cross-validated with whole questions in one fold; a
layer's value is the mean AUROC of its heads. Functions with fewer than `MIN_PER_FORM` steps of either wording are left out
(NaN). Both labels have the same numbers of steps, so that neither is decoded better because it has more.

Cost: two probes per head and function on some tens of steps: below a second on the default model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from headwise.core.dims import FUNCTION, HEAD, LAYER, RANK, SEED, WIDTH, head_name
from headwise.core.schema import with_interval
from headwise.corpora import HIGH_ORDER, LOW_ORDER, TRAIN
from headwise.probes.cell_maps import OneStepProbes, device_auroc
from headwise.probes.joint import JointFits, JointTraining, fit_joint
from headwise.stats import correlation, rank_vectors, shuffle_test, t_half_width, wilson_interval
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.functions.probe_quality import (
    ProbeData,
    form_probe_quality,
    joint_probe_quality,
    question_folds,
    single_head_probes,
)
from headwise.studies.functions.spec import KEY_TOKEN_RULES

Floats = NDArray[np.float64]
MIN_ANSWERS_PER_CLASS = 5  # right and wrong training answers, for a direction


def finalize(
    readings: xr.Dataset, functions: Sequence[str], options: Any, *, left_out: Mapping[str, str] | None = None,
    output_norm: NDArray[Any] | None = None, device: Any = "cpu",
) -> xr.Dataset:  # fmt: skip
    """The Dataset, from what `StepReader.read` gives.

    `left_out`: function -> reason; `output_norm`: (layer, head); `device`: of the joint probe.
    """
    data = ProbeData(readings, functions)
    fits = fit_joint(
        data.features(options.layer_mean), data.labels, data.trains, data.groups,
        classes=len(functions), seeds=options.seeds, shuffles=options.shuffles, seed=options.seed,
        training=JointTraining(max_epochs=options.max_epochs), device=device,
    )  # fmt: skip
    quality, refused = joint_probe_quality(data, fits)
    maps = _importance(data, fits, refused)
    parts = [
        _answers(readings, data), quality, maps, _single_heads(data, maps, options.seed), form_probe_quality(data),
        _directions(data), depth_of_wording(data, options.seed),
    ]  # fmt: skip
    whole = xr.merge(parts, compat="override", join="override")
    if output_norm is not None:
        whole["output_norm"] = ((LAYER, HEAD), output_norm)
    floats = {name: array.astype(np.float32) for name, array in whole.data_vars.items() if array.dtype == np.float64}
    return whole.assign(floats).assign_attrs(
        title="Which heads carry which cognitive function",
        record=json.dumps(["importance", "best"]),
        key_rule=KEY_TOKEN_RULES[options.key_tokens],
        left_out=json.dumps(dict(left_out or {}), ensure_ascii=False),
        shuffles=options.shuffles,
        epochs=fits.epochs,
    )


def _answers(readings: xr.Dataset, data: ProbeData) -> xr.Dataset:
    of, right = readings["function_of"].values.astype(str), readings["right"].values
    split = readings["split_of"].values.astype(str)
    counts = np.array([(of == name).sum() for name in data.functions])
    share = np.array([right[of == name].mean() for name in data.functions])
    trains = np.array([((of == name) & (split == TRAIN)).sum() for name in data.functions], dtype=np.int64)
    orders = [("low" if name in LOW_ORDER else "high" if name in HIGH_ORDER else "") for name in data.functions]
    coords = {
        FUNCTION: np.array(data.functions, dtype=object),
        "order": (FUNCTION, np.array(orders, dtype=object)),
        "train": (FUNCTION, trains),
        "held_out": (FUNCTION, (counts - trains).astype(np.int64)),
        LAYER: np.arange(data.shape[0]),
        HEAD: np.arange(data.shape[1]),
    }
    accuracy = xr.Dataset(with_interval("accuracy", share, *wilson_interval(share, counts), dims=FUNCTION))
    return xr.merge([readings.drop_vars("z"), accuracy]).assign_coords(coords)


# ---- importance -----------------------------------------------------------------------------------------------------


def _importance(data: ProbeData, fits: JointFits, refused: NDArray[np.bool_]) -> xr.Dataset:
    seeds = np.where(refused[:, None], np.nan, fits.importance.astype(np.float64))  # (seed, function, head)
    mean, half = seeds.mean(axis=0), t_half_width(seeds)
    null = fits.null_importance.astype(np.float64)  # (permutation, function, head)
    p, q, map_p = shuffle_test(mean, null, two_sided=True)
    null_high = np.quantile(np.abs(null), 0.95, axis=(0, 1)) if len(null) else np.full(mean.shape[1:], np.nan)
    size = np.abs(mean)
    order = np.argsort(-np.nan_to_num(size, nan=-1), axis=1, kind="stable")
    ordered = np.take_along_axis(size, order, axis=1)
    counts = np.array([0 if out else elbow(row) for row, out in zip(ordered, refused, strict=True)], dtype=np.int64)
    chosen = np.zeros(size.shape, dtype=bool)
    for row, count in enumerate(counts):
        chosen[row, order[row, :count]] = True
    beyond = np.nan_to_num(q, nan=1.0) < ALPHA
    names = np.array([head_name(int(layer), int(head)) for layer, head in np.argwhere(data.there)], dtype=object)
    on_heads = {
        **with_interval("importance", mean, mean - half, mean + half),
        "importance_sd": seeds.std(axis=0, ddof=1), "magnitude": size,
        "train_importance": np.where(refused[:, None], np.nan, fits.train_importance.mean(axis=0, dtype=np.float64)),
        "null_high": np.where(refused[:, None], np.nan, null_high), "p": p, "q": q,
        "own_q": own_q(mean, null),
    }  # fmt: skip
    dims = (FUNCTION, LAYER, HEAD)
    found: dict[str, Any] = {name: (dims, data.on_map(values)) for name, values in on_heads.items()}
    found |= {
        "beyond_null": (dims, data.on_map(beyond, False)),
        "chosen": (dims, data.on_map(chosen, False)),
        "importance_seeds": ((SEED, *dims), data.on_map(seeds.astype(np.float32))),
        "sorted": ((FUNCTION, RANK), ordered),
        "ranked": ((FUNCTION, RANK), names[order]),
        "elbow": (FUNCTION, counts),
        "map_p": (FUNCTION, map_p),
        "agreement": (FUNCTION, np.array([_seed_agreement(np.abs(seeds[:, row])) for row in range(len(size))])),
        "best": ((LAYER, HEAD), data.on_map(_best_function(data.functions, size, beyond), "")),
    }
    return xr.Dataset(found, coords={RANK: np.arange(size.shape[1])})


def own_q(importance: Floats, null: Floats) -> Floats:
    """(function, head): q of mattering more to this function than to every other one; null (permutation, function, head).

    All differences to other functions have to pass, so q is the largest of theirs; a head that matters as much to two passes
    for neither, but at the test's level.
    """
    size, shuffled = np.abs(importance), np.abs(null)
    found = np.full(size.shape, np.nan)
    mapped = np.flatnonzero(np.isfinite(size).all(axis=1))  # not refused
    for row in mapped:
        if len(others := mapped[mapped != row]):
            difference = shuffle_test(size[row] - size[others], shuffled[:, [row]] - shuffled[:, others])
            found[row] = difference.q.max(axis=0)
    return found


def elbow(values: NDArray[np.floating]) -> int:
    """How many of the values, sorted from the largest, lie up to the elbow; 0 where all are equal.

    >>> elbow(np.array([9.0, 8.0, 1.0, 0.9, 0.8, 0.0]))
    3
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 3 or np.ptp(values) == 0:
        return 0
    height = (values - values[-1]) / (values[0] - values[-1])
    below = 1 - np.linspace(0, 1, len(values)) - height  # how far the curve lies below the chord
    return int(below.argmax()) + 1 if below.max() > 0 else 0


def _seed_agreement(maps: Floats) -> float:
    """Mean rank correlation over all pairs of seeds; maps (seed, head)."""
    if not np.isfinite(maps).all() or len(maps) < 2:
        return float("nan")
    vectors = rank_vectors(maps)
    return float((vectors @ vectors.T)[np.triu_indices(len(maps), 1)].mean())


def _best_function(functions: Sequence[str], size: Floats, beyond: NDArray[np.bool_]) -> NDArray[Any]:
    """The function each head matters most for, relative to that function's largest head; empty where none is significant."""
    largest = np.nanmax(np.where(np.isnan(size), 0, size), axis=1, keepdims=True)
    share = np.where(beyond, size / np.where(largest > 0, largest, 1), -1)
    names = np.array(functions, dtype=object)[share.argmax(axis=0)]
    return np.where(share.max(axis=0) > 0, names, "")


def _single_heads(data: ProbeData, maps: xr.Dataset, seed: int) -> xr.Dataset:
    """Probes on single heads, and how well they rank the heads as the importance does."""
    probes = single_head_probes(data.z[:, data.there], data.labels, data.groups, len(data.functions), seed=seed)
    dims = (FUNCTION, LAYER, HEAD)
    found: dict[str, Any] = {
        f"single_head_{name}": (dims, data.on_map(getattr(probes, name))) for name in ("auroc", "p", "q")
    }
    accuracy = (data.on_map(part) for part in (probes.accuracy, probes.low, probes.high))
    found |= with_interval("single_head_accuracy", *accuracy, dims=(LAYER, HEAD))
    agreement = np.full((len(data.functions), 3), np.nan)
    for row, size in enumerate(maps["magnitude"].values[:, data.there]):
        if np.isfinite(size).all():
            one = correlation(stats.rankdata(size), stats.rankdata(probes.auroc[row]), seed=seed)
            agreement[row] = one.value, one.low, one.high
    return xr.Dataset(found | with_interval("rank_correlation", *agreement.T, dims=FUNCTION))


# ---- directions -----------------------------------------------------------------------------------------------------


def direction(z: NDArray[np.floating], right: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(layer, head, width) from z (step, layer, head, width) of one function's training steps."""
    if right.sum() < MIN_ANSWERS_PER_CLASS or (~right).sum() < MIN_ANSWERS_PER_CLASS:
        return np.full(z.shape[1:], np.nan, dtype=np.float32)
    gap = z[right].mean(axis=0, dtype=np.float64) - z[~right].mean(axis=0, dtype=np.float64)
    length = np.linalg.norm(gap, axis=-1, keepdims=True)
    unit = gap / np.where(length > 0, length, 1)
    along = np.einsum("nlhw,lhw->nlh", z.astype(np.float64), unit)
    return np.asarray(along.std(axis=0)[..., None] * unit, dtype=np.float32)


def _directions(data: ProbeData) -> xr.Dataset:
    right = data.readings["right"].values
    own = [(data.labels == label) & data.trains for label in range(len(data.functions))]
    found = np.stack([direction(data.z[some], right[some]) for some in own])
    return xr.Dataset(
        {
            "direction": ((FUNCTION, LAYER, HEAD, WIDTH), np.where(data.there[:, :, None], found, np.nan)),
            "train_right": (FUNCTION, np.array([right[some].sum() for some in own], dtype=np.int64)),
            "train_wrong": (FUNCTION, np.array([(~right[some]).sum() for some in own], dtype=np.int64)),
        }
    )


MIN_PER_FORM = 10  # steps of either wording
Flags = NDArray[np.bool_]


def first_word(subquestion: str) -> str:
    """The first word, without the signs around it.

    >>> first_word("The colour is ..."), first_word('"Nancy sings" means ...'), first_word(" ")
    ('the', 'nancy', '')
    """
    return (subquestion.split() or [""])[0].strip("\"'“”‘’.,:;?!()").casefold()


def depth_of_wording(data: ProbeData, seed: int) -> xr.Dataset:
    """AUROC per function and layer: of the function, and of how its steps are worded."""
    words = np.array([first_word(str(text)) for text in data.readings["subquestion"].values])
    shape = (len(data.functions), data.shape[0])
    found = {name: np.full(shape, np.nan) for name in ("function_by_layer", "wording_by_layer")}
    named, counts = np.full(shape[0], "", dtype=object), np.zeros((shape[0], 2), dtype=np.int64)
    for label in range(len(data.functions)):
        own = np.flatnonzero(data.labels == label)
        ((most, _),) = Counter(words[own].tolist()).most_common(1)
        common = words[own] == most
        counts[label], named[label] = (common.sum(), (~common).sum()), most
        if counts[label].min() < MIN_PER_FORM:
            continue
        generator = np.random.default_rng([seed, label, 5])
        others = generator.permutation(np.flatnonzero(data.labels != label))[: counts[label, 1]]
        some = generator.permutation(own)[: counts[label, 0]]
        rows, positive = np.concatenate([some, others]), np.arange(len(own)) < len(some)
        if len(others) == counts[label, 1]:
            found["function_by_layer"][label] = _by_layer(data, rows, positive, seed)
        found["wording_by_layer"][label] = _by_layer(data, own, common, seed)
    variables: dict[str, Any] = {name: ((FUNCTION, LAYER), values) for name, values in found.items()}
    variables |= {
        "first_word": (FUNCTION, named),
        "with_first_word": (FUNCTION, counts[:, 0]),
        "without_first_word": (FUNCTION, counts[:, 1]),
    }
    return xr.Dataset(variables)


def _by_layer(data: ProbeData, rows: NDArray[np.int64], positive: Flags, seed: int) -> NDArray[np.float64]:
    """(layer,): mean over its heads of the cross-validated AUROC."""
    fold_of = question_folds(positive.astype(np.int64), data.groups[rows], seed)
    z = torch.from_numpy(data.z[rows][:, data.there]).transpose(0, 1).contiguous()  # (head, row, width)
    probes, target = OneStepProbes(z, fold_of), torch.from_numpy(positive)[:, None]
    both = [
        fold
        for fold in range(len(probes.divisions[0].rows))
        if 0 < positive[fold_of == fold].sum() < (fold_of == fold).sum()
    ]
    areas = device_auroc(probes.out_of_fold(target), target, probes.fold_of, both)[:, 0].numpy()
    on_map = data.on_map(areas.astype(np.float64))
    usable = np.isfinite(on_map).any(axis=1)
    return np.where(usable, np.nansum(on_map, axis=1) / np.maximum(np.isfinite(on_map).sum(axis=1), 1), np.nan)
