"""The maps of the probing study: from readings to AUROC at every layer and token, and at every head.

Layer by layer, so that only one layer's activations are in memory at a time:

1. the fifteen tokens of each site: `probes.probe_cells` (AUROC, confidence interval, null, inner folds);
2. every head's z at the exact answer: the same;
3. the first site at the published spans: AUROC only, for the leak;
4. the paper's protocol at the first site: no scaling, scikit-learn's defaults (100 iterations, which do not converge), one
   80/20 split with seed 0, published spans.

Then a table of detectors of wrong answers, probes next to scores that need none (`table`), and a matrix between groups of
topics (`transfer`).

A pure function of readings and labels; no model is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, SITE, TOKEN
from headwise.core.progress import StepCount
from headwise.probes.cell_maps import CellMap, Strata, nested, significance
from headwise.probes.crossvalidation import assign_folds
from headwise.stats import auroc_by_fold, auroc_rows, delong_test
from headwise.stats.permutation import permuted_labels
from headwise.studies.probing.fitting import FittedProbes, ShardReader, fit_probes
from headwise.studies.probing.positions import EXACT, EXACT_COLUMNS, LAST_COLUMN, POSITIONS, Positions
from headwise.studies.probing.reading import ProbedAnswer
from headwise.studies.probing.spec import ProbingOptions
from headwise.studies.probing.table import LOGPROB_NAMES, Judged, baseline_scores, detector_table
from headwise.studies.probing.transfer import TransferPlan, transfer
from headwise.studies.question_controls import question_controls

__all__ = ["finalize"]

FRAME_MARGIN = 0.02  # below the best AUROC: layers within it are framed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Labels = NDArray[np.bool_]
Variables = dict[str, Any]
Coordinates = dict[str, Any]


def finalize(
    shards: Sequence[xr.Dataset],
    answers: xr.Dataset,
    probed: Sequence[ProbedAnswer],
    positions: Positions,
    options: ProbingOptions,
    has_exact: Labels | None = None,
    device: torch.device | None = None,
) -> xr.Dataset:
    """The Dataset `probing`, without the texts of exact answers and the counts of answers.

    `has_exact` (answer,): False where no exact answer was found, so that the last token was read; None: found everywhere.
    """
    device = device or torch.device("cpu")
    wrong = np.array([str(label) == "wrong" for label in answers["label"].values])
    topics = [str(topic) for topic in answers["topic"].values]
    answer_tokens = answers["answer_tokens"].values.astype(np.int64)
    fold_of = assign_folds(wrong, folds=options.folds, seed=options.seed)
    controls = question_controls(answers, options.seed)
    strata = Strata.make(controls.strata, wrong, folds=options.folds, shuffles=options.shuffles, seed=options.seed)
    has_exact = np.ones(len(wrong), dtype=bool) if has_exact is None else has_exact
    judged = Judged(wrong, fold_of, has_exact, strata)
    permuted = permuted_labels(wrong, fold_of, sets=options.shuffles, seed=options.seed)
    differs = np.stack([one.published != one.positions[EXACT_COLUMNS] for one in probed])
    reader = ShardReader(shards, device)
    layers, heads = shards[0].sizes[LAYER], shards[0].sizes[HEAD]
    plan = TransferPlan.of(
        np.array(topics),
        lambda: reader.read("activation", 0, layers // 2)[0].double().cpu().numpy(),
        wrong,
        options.seed,
    )
    probes = fit_probes(reader, judged, permuted, differs, plan, paper=options.paper)
    summarised = StepCount("tables and maps", 3)
    small = xr.concat([shard[["logprob", "p_true"]] for shard in shards], dim=EXAMPLE, data_vars="all")
    scores = baseline_scores(small, answer_tokens)
    table, detectors, references = detector_table(probes.first_site, probes.heads, scores, controls.features, judged)
    summarised()
    across, groups = (
        ({}, {})
        if plan is None
        else transfer(
            plan,
            probes.transfer,
            lambda layer: reader.read("activation", 0, layer)[LAST_COLUMN],
            scores[LOGPROB_NAMES["mean_exact"]],
        )
    )
    summarised()
    maps = _maps(probes, judged, layers, heads)
    summarised()
    variables = maps | {
        "wrong": ((EXAMPLE,), wrong),
        "fold_of": ((EXAMPLE,), fold_of),
        "has_exact": ((EXAMPLE,), has_exact),
        "stratum": ((EXAMPLE,), controls.strata.astype(np.int64)),
        "exact_first": ((EXAMPLE,), np.array([one.span[0] for one in probed], dtype=np.int64)),
        "exact_last": ((EXAMPLE,), np.array([one.span[1] for one in probed], dtype=np.int64)),
        "answer_tokens": ((EXAMPLE,), answer_tokens),
        "topic_of": ((EXAMPLE,), np.array(topics, dtype=object)),
        "received": ((LAYER, TOKEN), _mean_received(shards)),
        "in_prompt": ((TOKEN,), positions.in_prompt),
        "moved": ((TOKEN,), positions.moved),
        "p_true": ((EXAMPLE,), small["p_true"].values.astype(np.float32)),
    }
    coords: Coordinates = {
        SITE: np.array([str(site) for site in shards[0][SITE].values], dtype=object),
        LAYER: np.arange(layers), HEAD: np.arange(heads), TOKEN: np.array(POSITIONS, dtype=object),
        EXAMPLE: answers[EXAMPLE].values,
    }  # fmt: skip
    return xr.Dataset(variables | table | across, coords=coords | detectors | groups).assign_attrs(
        title="Where a probe detects wrong answers",
        record=json.dumps(
            [name for name in ("head_auroc", "head_q", "head_within", "head_within_q") if name in variables]
        ),
        leak=json.dumps(_leak(probes, wrong, fold_of)),
        folds=options.folds,
        shuffles=options.shuffles,
        spans=options.spans,
        strata=controls.description,
        **references,
    )


# ---- maps -----------------------------------------------------------------------------------------------------------


def _maps(probes: FittedProbes, judged: Judged, layers: int, heads: int) -> Variables:
    per_site: dict[str, list[Any]] = {}
    for cells in probes.sites.values():
        for name, values in _site_map(cells, judged, layers).items():
            per_site.setdefault(name, []).append(values)
    found: Variables = {}
    for name, several in per_site.items():
        values = np.array(several)
        found[name] = ((SITE, LAYER, TOKEN)[: values.ndim], _compact(values))  # one map or one number per site
    for prefix, of_heads in (("head", probes.heads), ("head_within", probes.heads.within)):
        if of_heads is None:
            continue
        against = significance(of_heads)
        maps = {
            "low": of_heads.low,
            "high": of_heads.high,
            "p": against.p,
            "q": against.q,
            "null_high": against.null_high,
        }
        maps["auroc" if prefix == "head" else ""] = of_heads.value
        for name, values in maps.items():
            found[f"{prefix}_{name}".rstrip("_")] = ((LAYER, HEAD), _compact(values.reshape(layers, heads)))
        found[f"{prefix}_best_high"], found[f"{prefix}_best_p"] = ((), against.best_high), ((), against.best_p)
    published = np.full((layers, len(POSITIONS)), np.nan)  # NaN at tokens that do not depend on the exact answer
    published[:, EXACT_COLUMNS] = probes.published.value.reshape(layers, len(EXACT))
    found["published"] = ((LAYER, TOKEN), _compact(published))
    if probes.paper is not None:
        found["paper"] = ((LAYER, TOKEN), _compact(probes.paper))
    return found


def _site_map(cells: CellMap, judged: Judged, layers: int) -> dict[str, NDArray[Any]]:
    against = significance(cells)
    best, _, chosen = nested(cells, judged.wrong, judged.fold_of)
    shape = (layers, len(POSITIONS))
    first, last = _framed_layers(cells.value.reshape(shape), against.best_high)
    maps = {
        "auroc": cells.value, "low": cells.low, "high": cells.high, "p": against.p, "q": against.q,
        "null_high": against.null_high, "chosen": np.bincount(chosen, minlength=cells.value.size),
        "auroc_exact": _with_exact(cells.score, judged),
    }  # fmt: skip
    numbers = {
        "best_high": against.best_high, "best_p": against.best_p, "nested": float(best.value),
        "nested_low": float(best.low), "nested_high": float(best.high), "frame_first": first, "frame_last": last,
    }  # fmt: skip
    if cells.within is not None and judged.strata is not None:
        more_maps, more_numbers = _within_map(cells.within, judged.wrong, judged.strata)
        maps |= more_maps
        numbers |= more_numbers
    return {name: values.reshape(shape) for name, values in maps.items()} | {
        name: np.array(value) for name, value in numbers.items()
    }


def _within_map(cells: CellMap, wrong: Labels, strata: Strata) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    """A site's map within strata, and its best cell, chosen on other strata than it is evaluated on."""
    against, best = significance(cells), nested(cells, wrong, strata.fold_of, strata=strata)[0]
    maps = {
        "within": cells.value, "within_low": cells.low, "within_high": cells.high, "within_p": against.p,
        "within_q": against.q, "within_null_high": against.null_high,
    }  # fmt: skip
    return maps, {
        "within_best_high": against.best_high, "within_best_p": against.best_p, "nested_within": float(best.value),
        "nested_within_low": float(best.low), "nested_within_high": float(best.high),
    }  # fmt: skip


def _with_exact(score: Floats, judged: Judged) -> Floats:
    """(cell,): AUROC, mean over folds, of the answers that have an exact answer; NaN where a fold has one class of them."""
    found = []
    for fold in np.unique(judged.fold_of):
        rows = judged.has_exact & (judged.fold_of == fold)
        if len(set(judged.wrong[rows].tolist())) < 2:
            return np.full(len(score), np.nan)
        found.append(auroc_rows(score[:, rows], judged.wrong[rows]))
    return np.where(np.isnan(score).any(axis=1), np.nan, np.mean(found, axis=0))


def _framed_layers(values: Floats, best_high: float) -> tuple[int, int]:
    """First and last layer within 0.02 of the best, at the exact answer; -1 where that is chance."""
    best = np.nan_to_num(values[:, EXACT_COLUMNS], nan=-1.0).max(axis=1)  # (layer,)
    if not best.max() > best_high:
        return -1, -1
    near = np.flatnonzero(best >= best.max() - FRAME_MARGIN)
    return int(near[0]), int(near[-1])


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float32)


def _mean_received(shards: Sequence[xr.Dataset]) -> NDArray[np.float32]:
    """(layer, token) over the answers that have a value, shard by shard."""
    count, total = np.zeros(()), np.zeros(())
    for shard in shards:
        received = shard["received"].values
        measured = np.isfinite(received)
        count = count + measured.sum(axis=0)
        total = total + np.where(measured, received, 0.0).sum(axis=0, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)


def _leak(probes: FittedProbes, wrong: Labels, fold_of: Ints) -> dict[str, dict[str, float]]:
    """How much does it gain to find the exact answer with knowledge of the label? Published spans against label-blind ones.

    At each of the four exact-answer tokens: the mean AUROC over layers of both, their difference, and DeLong's paired
    interval of the difference at the layer that is best with label-blind spans (a mean over layers has no simple
    interval). A difference above 0 is the worth of the leak, or of better spans: the two cannot be separated here, which
    is why label-blind spans are the default.
    """
    cells, width, tokens = probes.first_site, len(EXACT), len(POSITIONS)
    layers = cells.value.size // tokens
    found = {}
    for index, name in enumerate(EXACT):
        column = POSITIONS.index(name)
        blind = cells.value.reshape(layers, tokens)[:, column]
        published = probes.published.value.reshape(layers, width)[:, index]
        if not np.isfinite(blind).any():
            continue
        best = int(np.nanargmax(blind))
        scores = (
            probes.published.score.reshape(layers, width, -1)[best, index],
            cells.score.reshape(layers, tokens, -1)[best, column],
        )
        one, other = (auroc_by_fold(score, wrong, fold_of)[0] for score in scores)
        paired = delong_test(one, other)
        found[name] = {
            "blind": float(np.nanmean(blind)),
            "published": float(np.nanmean(published)),
            "difference": float(np.nanmean(published - blind)),
            "layer": best,
            "at_layer": paired.value,
            "low": paired.low,
            "high": paired.high,
            "p": paired.p,
        }
    return found
