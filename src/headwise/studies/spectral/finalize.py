"""From readings to Datasets: per head and feature, a test of wrong against correct answers; and the detector table.

Two-sided Mann-Whitney U with effect size (AUROC) and q-value, and a null from permuted labels. The question itself says much
about whether its answer is wrong, so the same is tested *within strata* of similar questions (van Elteren's test), with labels
permuted within strata (``question_controls``): `_within` compares answers to questions of one topic and difficulty,
`_strict` those of one topic and length band, `_matched` those of exactly the same length. `detectable` is the AUROC that a
single head would need in order to be found. Ten eigenvalues become one number per head by their mean, which is our choice;
`p_cauchy` and `p_min` instead combine ten tests, one per rank, into one p-value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, PART, RANK
from headwise.instruments import PARTS, TOP_K
from headwise.stats import (
    combine_ranks,
    mann_whitney_maps,
    minimum_detectable_auroc,
    permutation_null,
    van_elteren_maps,
)
from headwise.studies.question_controls import question_controls
from headwise.studies.spectral import detection
from headwise.studies.spectral.spec import SPEC, SpectralOptions

ALPHA = 0.05
MAPS = (PART, FEATURE)  # each with its own q-values and null
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
    tests = mann_whitney_maps(values, wrong, maps=MAPS)
    null = permutation_null(values, wrong, maps=MAPS, shuffles=options.shuffles, seed=options.seed)
    controls = question_controls(answers, options.seed)
    length = np.unique(lengths, return_inverse=True)[1]
    within, strict, matched = (
        van_elteren_maps(values, wrong, strata, maps=MAPS) for strata in (controls.strata, controls.strict, length)
    )
    dataset = xr.Dataset(
        {
            **_named(tests, null, wrong, np.zeros_like(length), ""),
            **_named(within, _null(values, wrong, controls.strata, options), wrong, controls.strata, "_within"),
            "p_strict": strict["p"],
            "q_strict": strict["q"],
            "null_p_strict": _null(values, wrong, controls.strict, options)["p"],
            "p_matched": matched["p"],
            "q_matched": matched["q"],
            "share_matched": (matched["p"] < ALPHA).sum((LAYER, HEAD)) / matched["p"].notnull().sum((LAYER, HEAD)),
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
        wrong=(EXAMPLE, wrong),
        answer_tokens=(EXAMPLE, lengths),
        topic=(EXAMPLE, answers["topic"].values),
        stratum=(EXAMPLE, controls.strata),
        stratum_strict=(EXAMPLE, controls.strict),
    )
    counts = {"correct": int((~wrong).sum()), "wrong": int(wrong.sum())}
    strata = {
        name: {"kind": kind, "strata": found.attrs["n_strata"], "answers": found.attrs["n_used"]}
        for name, kind, found in (
            ("within", controls.kind, within),
            ("strict", controls.strict_kind, strict),
            ("matched", "length", matched),
        )
    }
    return dataset.assign_coords(
        {EXAMPLE: answers[EXAMPLE].values, "label": (FEATURE, list(labels)), "definition": (FEATURE, list(definitions))}
    ).assign_attrs(
        title="Which heads differ when the answer is wrong",
        record=json.dumps(["p", "q", "effect", "q_within", "effect_within"]),
        counts=json.dumps(counts),
        strata=json.dumps(strata),
    )


def _null(values: xr.DataArray, wrong: np.ndarray, strata: np.ndarray, options: SpectralOptions) -> xr.Dataset:
    return permutation_null(values, wrong, within=strata, maps=MAPS, shuffles=options.shuffles, seed=options.seed)


def _named(
    tests: xr.Dataset, null: xr.Dataset, wrong: np.ndarray, strata: np.ndarray, suffix: str
) -> dict[str, xr.DataArray]:
    """The variables of one way of testing."""
    return {
        f"p{suffix}": tests["p"],
        f"q{suffix}": tests["q"],
        f"effect{suffix}": tests["auroc"],
        f"effect{suffix}_low": tests["low"],
        f"effect{suffix}_high": tests["high"],
        f"share{suffix}": null["observed"],
        f"null_mean{suffix}": null["null_mean"],
        f"null_high{suffix}": null["null_95"],
        f"null_p{suffix}": null["p"],
        f"detectable{suffix}": _detectable(tests["p"], wrong, strata),
    }


def _detectable(p: xr.DataArray, wrong: np.ndarray, strata: np.ndarray) -> xr.DataArray:
    """Per map, the AUROC with which a head would be found in four cases of five among the heads of that map."""
    n_wrong, size = np.bincount(strata, wrong), np.bincount(strata)
    heads = p.notnull().sum((LAYER, HEAD))
    needed = {
        count: minimum_detectable_auroc(n_wrong, size - n_wrong, tests=count) if count else np.nan
        for count in np.unique(heads.values).tolist()
    }
    return heads.copy(data=np.vectorize(needed.__getitem__, otypes=[np.float64])(heads.values))
