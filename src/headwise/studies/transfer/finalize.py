"""From answers with their readings to the matrix of AUROCs: fitted on one question set, tested on another.

    auroc[detector, a, b]       fitted on all answers of set a, tested on all of set b
    auroc[detector, a, a]       cross-validated inside set a
    auroc[detector, others, b]  fitted on every set but b

Detectors are those of the study `spectral` (`detection.feature_sets`, k and layer fixed beforehand) and two that see nothing of
the model: the words of the question, and lengths. Where those carry over as well as the heads do, the heads may know
no more than what is asked. Scores that are not fitted (log-probability, length) have one value per tested set, in every row.

Intervals: DeLong's for the tested answers, and off the diagonal the jackknife over parts of the training answers as well; on
the diagonal those of cross-validation (`probes.generalisation.transfer`, `stats.auroc_by_fold`). A detector that learnt
nothing that holds elsewhere is at 0.5 only on average: one fitted on other answers lands a little above or below, and an
interval without that part would take it for a finding in about 15 % of cases (simulated on the page "Calibration").
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, EXAMPLE, TESTED_ON, TOPIC, TRAINED_ON
from headwise.core.errors import DataError
from headwise.probes.features import KS, as_table, choice_kind, choices, default_choice, select
from headwise.probes.generalisation import OTHERS, transfer
from headwise.probes.projection import project
from headwise.stats import auroc, wilson_interval
from headwise.stats.validation import as_named
from headwise.studies.question_controls import question_controls
from headwise.studies.spectral import detection
from headwise.studies.transfer.spec import TransferOptions

__all__ = ["finalize"]

HEADS, QUESTION, SCORE = "heads", "question", "score"  # what a detector sees
MIN_ANSWERS_PER_CLASS = 20  # wrong and correct ones, for a set to be fitted or tested on
ENDS = ("auroc", "low", "high")


def finalize(answers: xr.Dataset, options: TransferOptions) -> xr.Dataset:
    """The Dataset. ``answers``: rows of the study `answers`, merged with the readings of `spectral`; the topic is the set."""
    sets = answers["topic"].values.astype(str)
    names = list(dict.fromkeys(sets.tolist()))
    judged = answers.isel({EXAMPLE: _judged(answers)})
    set_of, wrong = judged["topic"].values.astype(str), judged["label"].values == "wrong"
    _refuse_few(names, set_of, wrong)
    features = {name: (HEADS, as_named(array)) for name, array in detection.feature_sets(judged).items()}
    alone = question_controls(judged.drop_vars(["topic", "difficulty"], errors="ignore"), options.seed).features
    features |= {name: (QUESTION, as_named(table, (EXAMPLE, "feature"))) for name, table in alone.items()}
    matrices = {name: _matrix(array, name, wrong, set_of, options) for name, (_, array) in features.items()}
    scores = {
        name: _repeated(score, wrong, set_of, names) for name, score in detection.baselines(judged, judged).items()
    }
    kinds = [kind for kind, _ in features.values()] + [SCORE] * len(scores)
    whole = xr.concat([*matrices.values(), *scores.values()], dim=DETECTOR)
    whole = whole.sel({TRAINED_ON: [*names, OTHERS], TESTED_ON: names}).assign_coords(
        {DETECTOR: np.array([*matrices, *scores], dtype=object), "kind": (DETECTOR, np.array(kinds, dtype=object))}
    )
    found: dict[str, Any] = {
        f"auroc{'' if end == 'auroc' else f'_{end}'}": (
            (DETECTOR, TRAINED_ON, TESTED_ON),
            whole[end].values.astype(np.float32),
        )
        for end in ENDS
    }
    found |= _accuracy(answers, sets, names)
    texts = {"set_of": sets, **{name: answers[name].values for name in ("question", "answer", "gold", "label")}}
    found |= {name: (EXAMPLE, values.astype(object)) for name, values in texts.items()}
    coords = {name: whole[name].variable for name in (DETECTOR, "kind", TRAINED_ON, TESTED_ON)}
    counts = {
        key: np.array([((set_of == name) & (wrong == truth)).sum() for name in names], dtype=np.int64)
        for key, truth in (("n_wrong", True), ("n_right", False))
    }
    return xr.Dataset(
        found,
        coords=coords
        | {EXAMPLE: answers[EXAMPLE].values.astype(object)}
        | {key: (TESTED_ON, values) for key, values in counts.items()},
        attrs={
            "title": "Detectors of wrong answers on other question sets",
            "record": json.dumps([]),
            "k": options.k,
            "refits": options.refits,
        },
    )


def _judged(answers: xr.Dataset) -> NDArray[np.int64]:
    """The non-empty answers that are correct or wrong."""
    return np.flatnonzero(
        np.isin(answers["label"].values, ("correct", "wrong")) & (answers["answer_tokens"].values > 0)
    )


def _refuse_few(names: list[str], set_of: NDArray[np.str_], wrong: NDArray[np.bool_]) -> None:
    counts = {name: (int(wrong[set_of == name].sum()), int((~wrong[set_of == name]).sum())) for name in names}
    usable = [name for name, both in counts.items() if min(both) >= MIN_ANSWERS_PER_CLASS]
    if len(usable) < 2:
        listed = "; ".join(f"{name}: {bad} wrong, {good} correct" for name, (bad, good) in counts.items())
        raise DataError(
            f"transfer needs two question sets with at least {MIN_ANSWERS_PER_CLASS} wrong and as many correct answers, and "
            f"{len(usable)} has them ({listed}); give more questions (--set transfer.limit=...), or other sets"
        )


def _matrix(
    array: xr.DataArray, name: str, wrong: NDArray[np.bool_], set_of: NDArray[np.str_], options: TransferOptions
) -> xr.Dataset:
    """``auroc``, ``low``, ``high`` over (trained_on, tested_on) of one feature set, at the choice fixed beforehand."""
    kind = choice_kind(array)
    chosen = select(array, kind, default_choice(kind, choices(array, name, (*KS, options.k))))
    points = project(as_table(chosen, name)).points
    found = transfer(
        points, wrong, set_of, seed=options.seed, min_per_class=MIN_ANSWERS_PER_CLASS, refits=options.refits
    )
    return found[list(ENDS)].rename({TOPIC: TESTED_ON})


def _repeated(score: NDArray[Any], wrong: NDArray[np.bool_], set_of: NDArray[np.str_], names: list[str]) -> xr.Dataset:
    """The same of a score that is not fitted: one value per tested set, whatever the detectors were fitted on."""
    found = np.full((3, len(names)), np.nan)
    for column, name in enumerate(names):
        own = set_of == name
        if min(wrong[own].sum(), (~wrong[own]).sum()) >= MIN_ANSWERS_PER_CLASS:
            area = auroc(score[own], wrong[own])
            found[:, column] = area.value, area.low, area.high
    rows = np.repeat(found[:, None], len(names) + 1, axis=1)
    return xr.Dataset(
        {end: ((TRAINED_ON, TESTED_ON), rows[index]) for index, end in enumerate(ENDS)},
        coords={TRAINED_ON: [*names, OTHERS], TESTED_ON: names},
    )


def _accuracy(answers: xr.Dataset, sets: NDArray[np.str_], names: list[str]) -> dict[str, Any]:
    right = answers["label"].values == "correct"
    share = np.array([right[sets == name].mean() for name in names])
    low, high = wilson_interval(share, np.array([(sets == name).sum() for name in names]))
    ends = {"accuracy": share, "accuracy_low": low, "accuracy_high": high}
    return {name: (TESTED_ON, values.astype(np.float32)) for name, values in ends.items()}
