"""From readings to Datasets: per head and feature, a test of wrong against correct answers; and the detector table.

Two-sided Mann-Whitney U with effect size (AUROC) and q-value, a null from permuted labels, and the same test on answers
paired by length, because wrong answers are often longer. Ten eigenvalues become one number per head by their mean, which is
our choice; `p_cauchy` and `p_min` instead combine ten tests, one per rank, into one p-value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, PART, RANK
from headwise.instruments import PARTS, TOP_K
from headwise.stats import combine_ranks, mann_whitney_maps, match_lengths, permutation_null
from headwise.studies.spectral import detection
from headwise.studies.spectral.spec import SPEC, SpectralOptions

ALPHA = 0.05
MIN_PAIRS = 5  # of a wrong and a correct answer of equal length
RANKED = ("laplacian", "attention")  # features, and readings with one number per rank
COMBINATIONS: dict[str, Literal["cauchy", "min-p"]] = {"p_cauchy": "cauchy", "p_min": "min-p"}

FEATURE_INFO = {  # feature -> reading of the instrument, label, definition
    "attention_score": ("attention_score", "AttnScore", "mean over tokens of the log weight on the token itself"),
    "laplacian": (
        "laplacian_mean",
        "Laplacian eigenvalues",
        "mean of the ten largest eigenvalues of D - A; answer tokens: mean weight from later tokens minus the own",
    ),
    "attention": (
        "attention_mean",
        "Attention eigenvalues",
        "mean of the ten largest weights on the token itself; answer tokens: mean of all",
    ),
    "lookback": ("lookback", "Lookback", "weight per prompt token against weight per answer token"),
    "sink": ("sink", "First token (sink)", "weight on the first token"),
    "entropy": ("entropy", "Entropy", "entropy of a row over the log of the keys it can see"),
}


def finalize(
    shards: Sequence[xr.Dataset], answers: xr.Dataset, judged: xr.Dataset, options: SpectralOptions
) -> dict[str, xr.Dataset]:
    """The Datasets `detection` and `spectral`; ``judged``: the answers that were read, of all ``answers``."""
    readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
    labels, found = np.unique(answers["label"].values.astype(str), return_counts=True)
    counts = dict(zip(labels.tolist(), found.tolist(), strict=True))
    table = detection.finalize(readings, judged, options.seed)
    maps = head_tests(readings, judged, options)
    return {
        detection.NAME: table.assign_attrs(counts=json.dumps({**counts, "judged": judged.sizes[EXAMPLE]})),
        SPEC.name: maps.assign_attrs(counts=json.dumps({**counts, **json.loads(maps.attrs["counts"])})),
    }


def head_tests(readings: xr.Dataset, answers: xr.Dataset, options: SpectralOptions) -> xr.Dataset:
    """The tests of every head and feature, from the readings and the labels of the answers."""
    sources, labels, definitions = zip(*FEATURE_INFO.values(), strict=True)
    values = xr.concat([readings[source] for source in sources], dim=FEATURE)
    values = values.assign_coords({FEATURE: list(FEATURE_INFO), PART: list(PARTS)})
    values = values.transpose(EXAMPLE, PART, FEATURE, LAYER, HEAD)
    wrong, lengths = answers["label"].values == "wrong", answers["answer_tokens"].values
    maps = (PART, FEATURE)
    tests = mann_whitney_maps(values, wrong, maps=maps)
    null = permutation_null(values, wrong, maps=maps, shuffles=options.shuffles, seed=options.seed)
    pairs = match_lengths(lengths, wrong, seed=options.seed)
    if pairs.pairs >= MIN_PAIRS:
        matched = mann_whitney_maps(values.isel({EXAMPLE: pairs.rows}), wrong[pairs.rows], maps=maps, min_per_class=1)
    else:  # the lengths of wrong and correct answers hardly overlap
        matched = tests[["p", "q"]] * np.nan
    dataset = xr.Dataset(
        {
            "p": tests["p"],
            "q": tests["q"],
            "effect": tests["auroc"],
            "effect_low": tests["low"],
            "effect_high": tests["high"],
            "p_matched": matched["p"],
            "q_matched": matched["q"],
            "share": null["observed"],
            "share_matched": (matched["p"] < ALPHA).sum((LAYER, HEAD)) / matched["p"].notnull().sum((LAYER, HEAD)),
            "null_mean": null["null_mean"],
            "null_high": null["null_95"],
            "null_p": null["p"],
            "per_example": values,
        }
    ).astype(np.float32)
    for name, method in COMBINATIONS.items():
        combined = xr.full_like(tests["p"], np.nan)  # NaN for features without ranks
        for feature in RANKED:
            ranks = readings[feature].isel({RANK: slice(0, TOP_K)})
            p = mann_whitney_maps(ranks, wrong, maps=(RANK,))["p"]
            combined.loc[{PART: "whole", FEATURE: feature}] = combine_ranks(p, method).transpose(LAYER, HEAD)
        dataset[name] = combined.astype(np.float32)
    for name in ("share_matched", *COMBINATIONS):
        dataset[name].attrs.pop("definition", None)  # xarray passes on that of p, from which they are computed
    dataset = dataset.assign(
        wrong=(EXAMPLE, wrong), answer_tokens=(EXAMPLE, lengths), topic=(EXAMPLE, answers["topic"].values)
    )
    counts = {"correct": int((~wrong).sum()), "wrong": int(wrong.sum()), "pairs": pairs.pairs}
    return dataset.assign_coords(
        {EXAMPLE: answers[EXAMPLE].values, "label": (FEATURE, list(labels)), "definition": (FEATURE, list(definitions))}
    ).assign_attrs(
        title="Which heads differ when the answer is wrong",
        record=json.dumps(["p", "q", "effect"]),
        counts=json.dumps(counts),
    )
