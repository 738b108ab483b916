"""Which heads' attention differs when the model answers wrongly, and can that be used to tell?

Shown: every question with the answer the model gave (study `answers`), prompt and answer in one teacher-forced pass.
Observed: `AnswerSpectrum`, and the residual stream at the last token. Answers that were refusals, or empty, are left
out and counted.

Two Datasets come of it. `spectral`: for every head and feature, a two-sided Mann-Whitney test of wrong against correct
answers, with effect size, q-value, a null from shuffled labels, and the same test on answers paired by length, because
wrong answers are often longer. `detection`: detectors on the same features, by cross-validation, beside baselines.

After Binkowski et al. (arXiv 2502.17598). How ten eigenvalues become one number a head is our choice: their mean. Beside
it stand the ten tests of one rank each, combined into one p (`p_cauchy`, `p_min`: the smallest, corrected).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, PART, RANK, SITE, TOKEN
from headwise.core.errors import DataError
from headwise.core.provenance import Provenance
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.instruments import PARTS, TOP_K, Activations, AnswerSpectrum
from headwise.model import Model
from headwise.probes import KS
from headwise.seam import Structure
from headwise.stats import combine_ranks, mann_whitney_maps, match_lengths, permutation_null
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import Observed, read_together
from headwise.studies.run import StudyRun
from headwise.studies.spectral import detection
from headwise.studies.spectral.spec import SPEC, SpectralOptions

LEAST = 20  # answers of each class
LEAST_PAIRS = 5  # of answers of equal length
RANKED = {"laplacian": "laplacian", "attention": "attention"}  # feature -> reading with one number a rank
COMBINATIONS = {"p_cauchy": "cauchy", "p_min": "min-p"}

FACES = {  # feature -> reading of the instrument, label, definition
    "attention_score": ("attention_score", "AttnScore", "mean over tokens of the log weight on the token itself"),
    "laplacian": ("laplacian_top10_mean", "Laplacian eigenvalues", "mean of the ten largest eigenvalues of D - A"),
    "attention": (
        "attention_top10_mean",
        "Attention eigenvalues",
        "mean of the ten largest weights on the token itself",
    ),
    "lookback": ("lookback", "Lookback", "weight per prompt token against weight per answer token"),
    "sink": ("sink", "First token (sink)", "weight on the first token"),
    "entropy": ("entropy", "Entropy", "entropy of a row over the log of the keys it can see"),
}


def prepare(model: Model, inputs: StudyInputs, options: SpectralOptions | None = None) -> StudyRun:
    """The spectral study of this model on its answers (the Dataset of the study `answers`)."""
    options = options or SpectralOptions()
    answers = inputs.maps["answers"]
    structure = Structure(model)
    kept = judged(answers)
    options = replace(options, k=_ranks(kept, options.k))
    origin = Provenance.from_attrs(answers.attrs)
    data = {"name": origin.data.get("name"), "size": kept.sizes[EXAMPLE], "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    reader = SpectralReader(structure, kept, options)

    def measure(shard: Shard) -> xr.Dataset:
        return read_together({SPEC.name: reader}, [text.id for text in reader.texts[shard.start : shard.stop]])[
            SPEC.name
        ]

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        table = detection.to_table(readings, kept, options.seed)
        counts = json.dumps({**_counts(answers), "judged": kept.sizes[EXAMPLE]})
        maps = to_maps(readings, kept, options)
        return {
            detection.NAME: table.assign_attrs(counts=counts),
            SPEC.name: maps.assign_attrs(counts=json.dumps({**_counts(answers), **json.loads(maps.attrs["counts"])})),
        }

    def leave(atlas: Path, datasets: Mapping[str, xr.Dataset], shards: Sequence[xr.Dataset]) -> None:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        about = {"model": model.id, "digest": provenance.model["digest"], "k": options.k}
        fitted = detection.fit_best(readings, kept, datasets[detection.NAME], options.seed, about)
        fitted.save(atlas / detection.SAVED)

    return StudyRun(provenance, kept.sizes[EXAMPLE], options.shard, measure, conclude, leave, reader)


def _counts(answers: xr.Dataset) -> dict[str, int]:
    """Answers by label, all of them."""
    labels, counts = np.unique(answers["label"].values.astype(str), return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def judged(answers: xr.Dataset) -> xr.Dataset:
    """The answers that are right or wrong and not empty; refused if either class has too few."""
    label = answers["label"].values
    said = answers["answer_tokens"].values > 0
    wrong, correct = (label == "wrong") & said, (label == "correct") & said
    for what, found, other in (("wrong", wrong, "harder"), ("correct", correct, "easier")):
        if found.sum() < LEAST:
            raise DataError(
                f"only {int(found.sum())} of {len(label)} answers are {what}, and at least {LEAST} are needed to "
                f"compare wrong answers with correct ones; give more or {other} questions"
            )
    return answers.isel({EXAMPLE: wrong | correct})


def _ranks(answers: xr.Dataset, wanted: int | None) -> int:
    """How many eigenvalues to keep of every answer: as wanted, if the shortest has as many."""
    lengths = answers["prompt_tokens"].values + answers["answer_tokens"].values
    shortest = int(lengths.min())
    if wanted is None:
        return max((k for k in KS if k <= shortest), default=shortest)
    if not 1 <= wanted <= shortest:
        name = answers[EXAMPLE].values[int(lengths.argmin())]
        raise DataError(
            f"k={wanted} eigenvalues a head were asked for, and the shortest question with its answer ({name!r}) has "
            f"{shortest} tokens and so {shortest} eigenvalues; give k from 1 to {shortest}, or leave k out"
        )
    return wanted


def to_maps(readings: xr.Dataset, answers: xr.Dataset, options: SpectralOptions) -> xr.Dataset:
    """Tests of every head and feature: a pure function of what was read and how the answers were judged."""
    values = xr.concat([readings[reading] for reading, _, _ in FACES.values()], dim=FEATURE)
    values = values.assign_coords({FEATURE: list(FACES), PART: list(PARTS)})
    values = values.transpose(EXAMPLE, PART, FEATURE, LAYER, HEAD)
    wrong = answers["label"].values == "wrong"
    lengths = answers["answer_tokens"].values
    maps = (PART, FEATURE)
    tests = mann_whitney_maps(values, wrong, maps=maps)
    null = permutation_null(values, wrong, maps=maps, shuffles=options.shuffles, seed=options.seed)
    pairs = match_lengths(lengths, wrong, seed=options.seed)
    if pairs.pairs >= LEAST_PAIRS:
        paired = mann_whitney_maps(values.isel({EXAMPLE: pairs.rows}), wrong[pairs.rows], maps=maps, min_per_class=1)
    else:  # lengths that hardly overlap leave nothing to compare
        paired = tests[["p", "q"]] * np.nan
    dataset = xr.Dataset(
        {
            "p": tests["p"],
            "q": tests["q"],
            "effect": tests["auroc"],
            "effect_low": tests["low"],
            "effect_high": tests["high"],
            "p_matched": paired["p"],
            "q_matched": paired["q"],
            "share": null["observed"],
            "share_matched": (paired["p"] < 0.05).sum((LAYER, HEAD)) / paired["p"].notnull().sum((LAYER, HEAD)),
            "null_mean": null["null_mean"],
            "null_high": null["null_95"],
            "null_p": null["p"],
            "per_example": values,
        }
    ).astype(np.float32)
    for name, method in COMBINATIONS.items():
        dataset[name] = _combined(readings, wrong, tests["p"], method).astype(np.float32)
    for name in ("share_matched", *COMBINATIONS):
        dataset[name].attrs.pop("definition", None)  # xarray hands on that of p, from which they are made
    dataset = dataset.assign(
        wrong=(EXAMPLE, wrong), answer_tokens=(EXAMPLE, lengths), topic=(EXAMPLE, answers["topic"].values)
    )
    _, labels, definitions = zip(*FACES.values(), strict=True)
    counts = {"correct": int((~wrong).sum()), "wrong": int(wrong.sum()), "pairs": pairs.pairs}
    return dataset.assign_coords(
        {EXAMPLE: answers[EXAMPLE].values, "label": (FEATURE, list(labels)), "definition": (FEATURE, list(definitions))}
    ).assign_attrs(
        title="Which heads differ when the answer is wrong",
        record=json.dumps(["p", "q", "effect"]),
        counts=json.dumps(counts),
    )


def _combined(readings: xr.Dataset, wrong: np.ndarray, like: xr.DataArray, method: Any) -> xr.DataArray:
    """One p from the tests of the ten largest eigenvalues, a rank at a time; NaN for features that have no ranks."""
    combined = xr.full_like(like, np.nan)
    for feature, reading in RANKED.items():
        ranks = readings[reading].isel({RANK: slice(0, TOP_K)})
        p = mann_whitney_maps(ranks, wrong, maps=(RANK,))["p"]
        combined.loc[{PART: "whole", FEATURE: feature}] = combine_ranks(p, method).transpose(LAYER, HEAD)
    return combined


class SpectralReader:
    """Reads the spectral features of answers, and the residual stream at their last token."""

    def __init__(self, structure: Structure, answers: xr.Dataset, options: SpectralOptions) -> None:
        self.structure, self.batch_tokens = structure, options.batch_tokens
        self._eigenvalues = options.k or max(KS)
        self._prompt_tokens = [int(count) for count in answers["prompt_tokens"].values]
        rows = zip(answers[EXAMPLE].values, answers["prompt_ids"].values, answers["answer_ids"].values, strict=True)
        self.texts: Sequence[Example] = [
            Example(str(name), "answer", _ids(prompt) + _ids(answer)) for name, prompt, answer in rows
        ]
        self.suffixes: Sequence[tuple[int, ...]] = [()] * len(self.texts)

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """It needs no logits."""
        return None

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """The eigenvalues and other features of every head, and the last token's residual stream."""
        prompts = torch.tensor([1 if row is None else self._prompt_tokens[row] for row in rows])
        spectrum, residual = AnswerSpectrum(prompts, self._eigenvalues), Activations(("residual",), "last")

        def collect() -> xr.Dataset:
            hidden = residual.result()["activation"].isel({SITE: 0, TOKEN: 0}, drop=True)
            return spectrum.result().assign(hidden=hidden)

        return Observed((spectrum, residual), lambda logits: collect)


def read(structure: Structure, answers: xr.Dataset, options: SpectralOptions) -> xr.Dataset:
    """The readings of some answers (rows of the study `answers`), in the order they were given."""
    reader = SpectralReader(structure, answers, options)
    return read_together({SPEC.name: reader}, [text.id for text in reader.texts])[SPEC.name]


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split())
