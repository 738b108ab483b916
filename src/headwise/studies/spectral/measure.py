"""Which heads' attention differs when the model answers wrongly, and can wrong answers be detected from it?

Shown: every question with the model's answer (study `answers`), prompt and answer in one teacher-forced pass. Observed:
`AnswerSpectrum`, and the residual stream at the last token. Refusals and empty answers are excluded and counted.

After Binkowski et al. (arXiv 2502.17598). `finalize` tests every head; `detection` fits detectors on the same readings.

Per head and feature: a two-sided Mann-Whitney U test of wrong against correct answers, with effect size (AUROC) and q-value,
and a null from permuted labels. The question itself says much
about whether its answer is wrong, so the same is tested *within strata* of similar questions (van Elteren's test), with labels
permuted within strata (``question_controls``): `_within` compares answers to questions of one topic and difficulty,
`_strict` those of one topic and length band, `_matched` those of exactly the same length. `detectable` is the AUROC that a
single head would need in order to be found. Ten eigenvalues become one number per head by their mean, which is our choice;
`p_cauchy` and `p_min` instead combine ten tests, one per rank, into one p-value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, PART, RANK, SITE, TOKEN
from headwise.core.errors import DataError
from headwise.core.parsing import parse_attribute
from headwise.core.progress import StepCount
from headwise.core.provenance import Provenance, public_name
from headwise.core.schema import with_interval
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.instruments.activations import Activations
from headwise.instruments.spectrum import PARTS, TOP_K, AnswerSpectrum
from headwise.model import Model
from headwise.probes.batched_logistic.parallel_map import parallel_map
from headwise.probes.features import KS
from headwise.seam import Structure
from headwise.stats import (
    combine_ranks,
    mann_whitney_maps,
    minimum_detectable_auroc,
    permutation_null,
    van_elteren_maps,
)
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.inputs import StudyInputs, require_both_classes
from headwise.studies.passes import Observed, choose_sizes, read_together
from headwise.studies.question_controls import QuestionControls, is_judged, question_controls
from headwise.studies.run import StudyRun
from headwise.studies.spectral import detection
from headwise.studies.spectral.spec import SPEC, SpectralOptions


def prepare(model: Model, inputs: StudyInputs, options: SpectralOptions | None = None) -> StudyRun:
    """The spectral study of this model on its answers (the Dataset of the study `answers`)."""
    options = options or SpectralOptions()
    answers = inputs.maps["answers"]
    judged = judged_answers(answers)
    options = replace(options, k=eigenvalues_of(judged, options.k))
    origin = Provenance.from_attrs(answers.attrs)
    data = {"name": origin.data.get("name"), "size": judged.sizes[EXAMPLE], "digest": origin.key()}
    structure, read_bytes = Structure(model), 8.0 * model.card.layers * model.card.heads * (options.k or 1)
    sizes = choose_sizes(options, structure, tokens=4096, shard=64, example_bytes=read_bytes)
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"} | sizes.parameters
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)
    reader = SpectralReader(structure, judged, options.k, sizes.tokens_that_fit)

    def measure(shard: Shard) -> xr.Dataset:
        ids = [text.id for text in reader.texts[shard.start : shard.stop]]
        return read_together({SPEC.name: reader}, ids)[SPEC.name]

    def write_artifacts(atlas: Path, datasets: Mapping[str, xr.Dataset], shards: Sequence[xr.Dataset]) -> None:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        about = {"model": public_name(model.id), "digest": provenance.model["digest"], "k": options.k}
        fitted = detection.fit_best(readings, judged, datasets[detection.NAME], options.seed, about)
        fitted.save(atlas / detection.DETECTOR_FILE)

    return StudyRun(
        provenance,
        judged.sizes[EXAMPLE],
        sizes.shard,
        measure,
        lambda shards: finalize(shards, answers, judged, options),
        write_artifacts,
        reader,
    )


def judged_answers(answers: xr.Dataset) -> xr.Dataset:
    """The non-empty answers that are correct or wrong; refused if either class has too few."""
    judged = answers.isel({EXAMPLE: is_judged(answers)})
    wrong = int((judged["label"].values == "wrong").sum())
    require_both_classes(wrong, judged.sizes[EXAMPLE] - wrong, answers.sizes[EXAMPLE])
    return judged


def eigenvalues_of(answers: xr.Dataset, k: int | None) -> int:
    """Eigenvalues per head: ``k`` where the shortest text has as many; None: the largest of `KS` that it has."""
    lengths = answers["prompt_tokens"].values + answers["answer_tokens"].values
    shortest = int(lengths.min())
    if k is None:
        return max((known for known in KS if known <= shortest), default=shortest)
    if not 1 <= k <= shortest:
        name = answers[EXAMPLE].values[int(lengths.argmin())]
        raise DataError(
            f"k={k} eigenvalues per head were requested, but the shortest question with its answer ({name!r}) has "
            f"{shortest} tokens and so {shortest} eigenvalues; give k from 1 to {shortest}, or leave k out"
        )
    return k


class SpectralReader:
    """Reads the spectral features of answers, and the residual stream at their last token."""

    def __init__(self, structure: Structure, answers: xr.Dataset, k: int | None, batch_tokens: int) -> None:
        self.structure, self.batch_tokens = structure, batch_tokens
        self._eigenvalues = k or max(KS)
        self._prompt_tokens = [int(count) for count in answers["prompt_tokens"].values]
        rows = zip(answers[EXAMPLE].values, answers["prompt_ids"].values, answers["answer_ids"].values, strict=True)
        self.texts: Sequence[Example] = [
            Example(str(name), "answer", tuple(int(token) for token in f"{prompt} {answer}".split()))
            for name, prompt, answer in rows
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
    """The readings of some answers (rows of the study `answers`), in the order given."""
    sizes = choose_sizes(options, structure, tokens=4096, shard=64, example_bytes=1)
    reader = SpectralReader(structure, answers, options.k, sizes.tokens_that_fit)
    return read_together({SPEC.name: reader}, [text.id for text in reader.texts])[SPEC.name]


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
    controls = question_controls(judged, options.seed)
    table = detection.finalize(readings, judged, options.seed, controls)
    maps = head_tests(readings, judged, options, controls)
    return {
        detection.NAME: table.assign_attrs(counts=json.dumps({**counts, "judged": judged.sizes[EXAMPLE]})),
        SPEC.name: maps.assign_attrs(
            counts=json.dumps({**counts, **parse_attribute(maps.attrs, "counts", dict[str, int])})
        ),
    }


def head_tests(
    readings: xr.Dataset, answers: xr.Dataset, options: SpectralOptions, controls: QuestionControls | None = None
) -> xr.Dataset:
    """The tests of every head and feature, from the readings and the labels of the answers."""
    sources, labels, definitions = zip(*FEATURE_INFO.values(), strict=True)
    values = xr.concat([readings[source] for source in sources], dim=FEATURE)
    values = values.assign_coords({FEATURE: list(FEATURE_INFO), PART: list(PARTS)})
    values = values.transpose(EXAMPLE, PART, FEATURE, LAYER, HEAD)
    wrong, lengths = answers["label"].values == "wrong", answers["answer_tokens"].values
    controls = controls or question_controls(answers, options.seed)
    length = np.unique(lengths, return_inverse=True)[1]

    def tested(work: tuple[int, int]) -> xr.Dataset:
        one = values.isel({PART: [work[0]], FEATURE: [work[1]]})
        return _map_tests(one, wrong, controls, length, options)

    def combined(feature: str) -> xr.DataArray:
        return mann_whitney_maps(readings[feature].isel({RANK: slice(0, TOP_K)}), wrong, maps=(RANK,))["p"]

    works: list[Any] = [(part, feature) for part in range(len(PARTS)) for feature in range(len(FEATURE_INFO))]
    found: list[Any] = parallel_map(
        lambda work: combined(work) if isinstance(work, str) else tested(work),
        [*works, *RANKED],
        torch.device("cpu"),
        StepCount("head tests", len(works) + len(RANKED)),
    )
    by_part = [found[start : start + len(FEATURE_INFO)] for start in range(0, len(works), len(FEATURE_INFO))]
    dataset = xr.concat([xr.concat(row, dim=FEATURE) for row in by_part], dim=PART).transpose(..., LAYER, HEAD)
    dataset = dataset.assign(per_example=values.astype(np.float32))
    for name, method in COMBINATIONS.items():
        whole = xr.full_like(dataset["p"], np.nan)  # NaN for features without ranks
        for feature, p in zip(RANKED, found[len(works) :], strict=True):
            whole.loc[{PART: "whole", FEATURE: feature}] = combine_ranks(p, method).transpose(LAYER, HEAD)
        whole.attrs.pop("definition", None)  # that of p
        dataset[name] = whole
    dataset = dataset.assign(
        wrong=(EXAMPLE, wrong),
        answer_tokens=(EXAMPLE, lengths),
        topic=(EXAMPLE, answers["topic"].values),
        stratum=(EXAMPLE, controls.strata),
        stratum_strict=(EXAMPLE, controls.strict),
    )
    counts = {"correct": int((~wrong).sum()), "wrong": int(wrong.sum())}
    kinds = {"within": controls.kind, "strict": controls.strict_kind, "matched": "length"}
    strata = {
        name: {"kind": kind, **parse_attribute(found[0].attrs, name, dict[str, int])} for name, kind in kinds.items()
    }
    return (
        dataset.drop_attrs(deep=False)
        .assign_coords(
            {
                EXAMPLE: answers[EXAMPLE].values,
                "label": (FEATURE, list(labels)),
                "definition": (FEATURE, list(definitions)),
            }
        )
        .assign_attrs(
            title="Which heads differ when the answer is wrong",
            record=json.dumps(["p", "q", "effect", "q_within", "effect_within"]),
            counts=json.dumps(counts),
            strata=json.dumps(strata),
        )
    )


def _map_tests(
    values: xr.DataArray, wrong: np.ndarray, controls: QuestionControls, length: np.ndarray, options: SpectralOptions
) -> xr.Dataset:
    """All tests of one map (of several, separately): plain, within strata, strict, of equal length."""
    tests, everyone = mann_whitney_maps(values, wrong, maps=MAPS), np.zeros_like(length)
    within, strict, matched = (
        van_elteren_maps(values, wrong, strata, maps=MAPS) for strata in (controls.strata, controls.strict, length)
    )

    def null(strata: np.ndarray | None) -> xr.Dataset:
        return permutation_null(values, wrong, within=strata, maps=MAPS, shuffles=options.shuffles, seed=options.seed)

    share = (matched["p"] < ALPHA).sum((LAYER, HEAD)) / matched["p"].notnull().sum((LAYER, HEAD))
    dataset = xr.Dataset(
        {
            **_named(tests, null(None), wrong, everyone, ""),
            **_named(within, null(controls.strata), wrong, controls.strata, "_within"),
            "p_strict": strict["p"],
            "q_strict": strict["q"],
            "null_p_strict": null(controls.strict)["p"],
            "p_matched": matched["p"],
            "q_matched": matched["q"],
            "share_matched": share.drop_attrs(),  # xarray passes on those of p
        }
    ).astype(np.float32)
    used = {"within": within, "strict": strict, "matched": matched}
    return dataset.assign_attrs(
        {
            name: json.dumps({"strata": one.attrs["n_strata"], "answers": one.attrs["n_used"]})
            for name, one in used.items()
        }
    )


def _named(
    tests: xr.Dataset, null: xr.Dataset, wrong: np.ndarray, strata: np.ndarray, suffix: str
) -> dict[str, xr.DataArray]:
    """The variables of one way of testing."""
    return {
        f"p{suffix}": tests["p"],
        f"q{suffix}": tests["q"],
        **with_interval(f"effect{suffix}", tests["auroc"], tests["low"], tests["high"]),
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
