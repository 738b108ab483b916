"""Can wrong answers be detected from how the heads attended? Detectors on the spectral study's readings.

| row                         | features                                                                                |
|-----------------------------|-----------------------------------------------------------------------------------------|
| LapEigvals                  | the k largest Laplacian eigenvalues per head                                            |
| AttnEigvals                 | the k largest weights on the token itself, per head                                     |
| AttnLogDet                  | the mean log weight on the token itself, per head                                       |
| Lookback, Entropy           | over the answer's tokens, per head                                                      |
| Hidden state                | the residual stream at the last token, at the best layer                                |
| Headwise                    | LapEigvals, Lookback, Entropy and log-probability, stacked inside the training folds    |
| AttnScore                   | no training: minus the mean over layers of the sum over heads of AttnLogDet             |
| Log-probability (mean, min) | of the answer's tokens, negated                                                         |
| Length                      | of the answer in tokens: a confounder, so always in the table                           |
| Question: ...               | nothing of the model (`studies.question_controls`), and all such rows stacked           |
| Question + X                | all question-only rows and X, stacked: does X tell anything that the question does not? |

Gains are counted from the strongest question-only row, paired, and every row has an AUROC within strata of similar questions.
The comparison that the headline reports is fixed beforehand: `HEADS`, what heads alone add to the question.

All choices (k, layer, weights) are made inside training folds: see `headwise.probes.table`. For transfer between topics,
topics with too few answers are merged first (`headwise.probes.generalisation.group_topics`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, EXAMPLE, HEAD, LAYER
from headwise.probes.detector import Detector
from headwise.probes.generalisation import group_topics
from headwise.probes.table import TableOptions, detector_table
from headwise.scores.attention import (
    attention_eigenvalues,
    attention_log_determinant,
    attention_score,
    entropy,
    laplacian_eigenvalues,
    lookback,
)
from headwise.studies.question_controls import QuestionControls, question_controls

NAME = "detection"
HEAD_FEATURES = (laplacian_eigenvalues, attention_eigenvalues, attention_log_determinant, lookback, entropy)
COMBINED = {"Headwise": ("LapEigvals", "Lookback", "Entropy", "Log-probability, mean")}
ALL_QUESTION = "Question: all"
HEADS = "Question + heads"
WITH_QUESTION = {
    "Question + LapEigvals": ("LapEigvals",),
    HEADS: ("LapEigvals", "Lookback", "Entropy"),
    "Question + Hidden state": ("Hidden state",),
    "Question + Headwise": COMBINED["Headwise"],
    "Question + Log-probability, min": ("Log-probability, min",),
}
SWEPT = ("LapEigvals", "AttnEigvals")  # rows with sweeps over layers, training set sizes and topics
TRAINED = ("supervised", "combined")  # kinds of rows that can score a new answer
DETECTOR_FILE = "detector"  # files detector.json and detector.safetensors in the atlas


def feature_sets(readings: xr.Dataset) -> dict[str, xr.DataArray]:
    """The features of the supervised rows, by name."""
    features = {one.name: one(readings).transpose(EXAMPLE, LAYER, HEAD, ...) for one in HEAD_FEATURES}
    return features | {"Hidden state": readings["hidden"]}


def baselines(readings: xr.Dataset, answers: xr.Dataset) -> dict[str, np.ndarray]:
    """One score per answer and baseline; larger: more likely wrong."""
    return {
        "AttnScore": attention_score(readings),
        "Log-probability, mean": -answers["logprob_mean"].values,
        "Log-probability, min": -answers["logprob_min"].values,
        "Length": answers["answer_tokens"].values.astype(np.float64),
    }


def finalize(
    readings: xr.Dataset, answers: xr.Dataset, seed: int, controls: QuestionControls | None = None
) -> xr.Dataset:
    """The table of detectors, from the readings and the labels of the answers."""
    wrong = answers["label"].values == "wrong"
    middle = readings["hidden"].isel({LAYER: readings.sizes[LAYER] // 2}).values.astype(np.float64)
    topics = group_topics(answers["topic"].values.astype(str), middle, wrong)  # small ones merged with similar ones
    controls = controls or question_controls(answers, seed)
    names = tuple(controls.features)
    every = {ALL_QUESTION: names} if len(names) > 1 else {}
    table = detector_table(
        feature_sets(readings),
        wrong,
        baselines(readings, answers),
        combine=every | COMBINED | {name: (*names, *members) for name, members in WITH_QUESTION.items()},
        questions=controls.features,
        topics=topics if len(set(topics)) > 1 else None,
        strata=controls.strata,
        options=TableOptions(seed=seed, details=SWEPT),
    )
    return table.assign_coords(
        {"label": (DETECTOR, table[DETECTOR].values), EXAMPLE: answers[EXAMPLE].values.astype(str)}
    ).assign_attrs(
        title="Telling wrong answers from correct ones", record=json.dumps([]), heads=HEADS, strata=controls.kind,
        n_strata=len(np.unique(controls.strata)),
    )  # fmt: skip


def best_members(table: xr.Dataset) -> tuple[str, tuple[str, ...]]:
    """The trained row with the highest cross-validated AUROC, and the feature sets it uses; none that uses the question."""
    trained = table.isel({DETECTOR: np.isin(table["kind"].values.astype(str), TRAINED)})
    name = str(trained[DETECTOR].values[np.argmax(trained["auroc"].values)])
    return name, COMBINED.get(name, (name,))


def fit_best(
    readings: xr.Dataset, answers: xr.Dataset, table: xr.Dataset, seed: int, about: Mapping[str, Any] | None = None
) -> Detector:
    """The best row's detector, fitted on all answers. Its recorded AUROC is the largest of several, so slightly optimistic."""
    name, members = best_members(table)
    known = {**feature_sets(readings), **baselines(readings, answers)}
    row = table.sel({DETECTOR: name})
    auroc = [round(float(row[key]), 4) for key in ("auroc", "auroc_low", "auroc_high")]
    about = {
        "row": name,
        "auroc": auroc,
        "best_of": int(np.isin(table["kind"].values.astype(str), TRAINED).sum()),
        **(about or {}),
    }
    features = {member: known[member] for member in members}
    return Detector(seed=seed).fit(features, answers["label"].values == "wrong", about=about)
