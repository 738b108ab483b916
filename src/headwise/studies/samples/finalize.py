"""From sampled answers to types of errors and the accuracy of every strategy, with confidence intervals.

A pure function of the samples and their activations; no model is needed.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DRAW, ERROR_TYPE, EXAMPLE, STRATEGY
from headwise.corpora.matching import CORRECT
from headwise.studies.samples.error_types import TYPES, clusters, counts_of, type_probes, types_of
from headwise.studies.samples.selection import STRATEGIES, GreedyAnswers, bootstrap, picks, score_samples
from headwise.studies.samples.spec import SamplingOptions

__all__ = ["finalize"]


def finalize(read: xr.Dataset, options: SamplingOptions, others: GreedyAnswers | None = None) -> xr.Dataset:
    """The Dataset `samples`, without the site and layer of the probe; `others`: greedy answers to questions not sampled."""
    read = read.transpose(EXAMPLE, DRAW, ...)
    labels = read["label"].values.astype(str).astype(object)
    groups = np.array([clusters([str(text) for text in row]) for row in read["exact"].values])
    counts = counts_of(labels, groups)
    types = types_of(counts, labels.shape[1])
    greedy = np.array([str(label) == CORRECT for label in read["greedy_label"].values])
    activations = read["activation"].values.astype(np.float32)
    own = GreedyAnswers(
        read["greedy"].values.astype(np.float32), read["greedy_label"].values.astype(str).astype(object)
    )
    nothing = GreedyAnswers(np.empty((0, activations.shape[2]), dtype=np.float32), np.empty(0, dtype=object))
    scored = score_samples(activations, labels, own, others or nothing, folds=options.folds, seed=options.seed)
    picked = picks(labels, groups, scored.score, greedy)  # (strategy, question)
    probes = type_probes(own.activations, activations, types, folds=options.folds, seed=options.seed)
    variables: dict[str, Any] = {
        name: ((EXAMPLE, DRAW), read[name].values.astype(object)) for name in ("answer", "label", "exact")
    }
    variables |= {
        "answer_tokens": ((EXAMPLE, DRAW), read["answer_tokens"].values.astype(np.int64)),
        "logprob_mean": ((EXAMPLE, DRAW), read["logprob_mean"].values.astype(np.float32)),
        "group": ((EXAMPLE, DRAW), groups.astype(np.int64)),
        "score": ((EXAMPLE, DRAW), scored.score.astype(np.float32)),
        "fold_of": ((EXAMPLE,), scored.fold_of.astype(np.int64)),
        "is_type": ((EXAMPLE, ERROR_TYPE), types),
        "picked": ((STRATEGY, EXAMPLE), picked.astype(np.float32)),
        "greedy_correct": ((EXAMPLE,), greedy),
    }
    variables |= {name: ((EXAMPLE,), part.astype(np.int64)) for name, part in counts._asdict().items()}
    variables |= {name: ((EXAMPLE,), read[name].values.astype(object)) for name in ("question", "topic")}
    variables |= _intervals(picked, types, options.seed)
    for name in ("auroc", "low", "high", "null_high"):
        variables[f"type_{name}"] = ((ERROR_TYPE,), np.array([getattr(p, name) for p in probes], dtype=np.float32))
    for name in ("value", "low", "high"):
        ending = "" if name == "value" else f"_{name}"
        variables[f"probe_auroc{ending}"] = ((), np.float32(getattr(scored.auroc, name)))
        variables[f"within_auroc{ending}"] = ((), np.float32(getattr(scored.within, name)))
    for name, count in zip(("fit_questions", "fit_answers"), scored.fitted_on, strict=True):
        variables[name] = ((), np.int64(count))
    coords = {
        EXAMPLE: read[EXAMPLE].values, DRAW: np.arange(labels.shape[1]), STRATEGY: np.array(STRATEGIES, dtype=object),
        ERROR_TYPE: np.array(list(TYPES), dtype=object),
        "type_name": (ERROR_TYPE, np.array(list(TYPES.values()), dtype=object)),
    }  # fmt: skip
    title = "Sampled many times: types of errors, and which answer is best"
    return xr.Dataset(variables, coords=coords).assign_attrs(title=title, record=json.dumps([]))


def _intervals(picked: NDArray[np.float64], types: NDArray[np.bool_], seed: int) -> dict[str, Any]:
    """Accuracy and gain over greedy of every strategy: of all questions, and of those of each type."""
    found: dict[str, Any] = {}
    for name, rows in (("accuracy", picked), ("gain", picked - picked[:1])):
        overall = bootstrap(rows, seed=seed)
        each = [bootstrap(rows[:, flag], seed=seed) for flag in types.T]
        for index, ending in enumerate(("", "_low", "_high")):
            found[f"{name}{ending}"] = ((STRATEGY,), overall[index].astype(np.float32))
            by_type = np.stack([one[index] for one in each]).astype(np.float32)
            found[f"type_{name}{ending}"] = ((ERROR_TYPE, STRATEGY), by_type)
    return found
