"""All scores on the same answers and folds: how well each finds wrong answers, and what it adds to cheaper knowledge.

Scores that are not fitted are taken as they are, in the direction of their papers; an AUROC below 0.5 means that the other
direction would have been right here. Fitted ones are cross-validated by `probes.table.detector_table`, choices inside the
training folds; probes (fitted to something else than labels, such as semantic entropy) likewise, on the same folds: their
target is cut in two where the squared error is least, which needs no label. "Headwise" is the study `detection`'s combination.

| variable | a score's AUROC against |
|----------|-------------------------|
| gain | the strongest row that sees the question alone (`studies.question_controls`) |
| gain_logprob | the smallest log-probability of a token, which costs nothing |
| added | not its own: question and score, stacked, against the strongest question-only row |

Each with DeLong's paired interval and test, inflated for shared training rows, and q-values over the scores. A score can add
to the question without being better than it, and be better than the log-probability by knowing the question.

AUPRC, PRR, AURC and the risk-coverage curve compare fitted scores by their rank within the fold (`stats.selective`).
Probabilities are Platt-scaled: of fitted rows on inner folds, of others on the other folds; their ECE stands next to what
perfect ones would show with so few answers.

A score that is not a number for some answer is left out; its name and the reason are in the attribute ``left_out``. A pure
function of readings and labels. Cost: that of the detector table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import COST_CLASS, COVERAGE, DETECTOR, DRAW, EXAMPLE, FOLD
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.stacking import fit_platt
from headwise.probes.table import TableOptions, compare_rows, detector_table
from headwise.scores.score import COSTS, UncertaintyScore, scores_of
from headwise.scores.token_probabilities import LENGTH, LOGPROB_MIN
from headwise.stats import benjamini_hochberg, reliability
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.power import minimum_detectable_gain
from headwise.stats.selective import auprc, risk_coverage
from headwise.studies.question_controls import question_controls
from headwise.studies.spectral.detection import ALL_QUESTION, COMBINED
from headwise.studies.uncertainty.spec import COVERAGES, UncertaintyOptions

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WITH = "Question + "  # rows that stack the question and a score: compared, and dropped from the table
OWN = "ours"  # in place of a paper
NUMBERS = ("score", "unlabelled")  # kinds of scores that are a number per answer, and not features


def finalize(readings: xr.Dataset, answers: xr.Dataset, options: UncertaintyOptions) -> xr.Dataset:
    """The Dataset, from the readings of all shards and the answers that were read."""
    wrong = np.asarray(answers["label"].values == "wrong")
    controls = question_controls(answers, options.seed)
    values, targets, left_out = computed(readings, assign_folds(wrong, folds=options.folds, seed=options.seed))
    known = scores_of(readings)
    plain = {name: value for name, value in values.items() if known[name].kind in NUMBERS}
    fitted = {name: value for name, value in values.items() if name not in plain}
    combined = {name: members for name, members in COMBINED.items() if set(members) <= set(values)}
    names = tuple(controls.features)
    stacked = {f"{WITH}{name}": (*names, *combined.get(name, (name,))) for name in (*values, *combined)}
    table = detector_table(
        fitted,
        wrong,
        plain,
        combine=({ALL_QUESTION: names} if len(names) > 1 else {}) | combined | stacked,
        questions=controls.features,
        strata=controls.strata,
        targets=targets,
        unlabelled=[name for name in plain if known[name].kind != "score"],
        options=TableOptions(folds=options.folds, seed=options.seed, details=()),
    )
    rows = [str(name) for name in table[DETECTOR].values if not str(name).startswith(WITH)]
    return xr.Dataset(
        {
            **_areas(table, rows),
            **_gains(table, rows),
            **_metrics(table, rows, wrong),
            "fold_auroc": ((DETECTOR, FOLD), table["fold_auroc"].sel({DETECTOR: rows}).values),
            "score": ((DETECTOR, EXAMPLE), table["score"].sel({DETECTOR: rows}).values),
            "stratum": (EXAMPLE, controls.strata),
            "answer_tokens": (EXAMPLE, answers["answer_tokens"].values.astype(np.int64)),
            "seconds": (COST_CLASS, _seconds(readings)),
            **{name: ((EXAMPLE, DRAW), readings[name].transpose(EXAMPLE, DRAW).values)
               for name in ("sample", "group") if name in readings},
        },
        coords={
            DETECTOR: np.array(rows, dtype=object),
            "kind": (DETECTOR, np.array([str(table["kind"].sel({DETECTOR: name}).item()) for name in rows], dtype=object)),
            **_origins(rows, known, combined),
            FOLD: table[FOLD].values,
            COVERAGE: np.array(COVERAGES),
            COST_CLASS: np.array(COSTS, dtype=object),
            EXAMPLE: answers[EXAMPLE].values.astype(object),
            "wrong": (EXAMPLE, wrong),
            "fold_of": (EXAMPLE, table["fold_of"].values),
        },
        attrs={
            "title": "Which score of an answer finds wrong answers best",
            "record": json.dumps([]),
            "reference": str(table.attrs["reference"]),
            "strata": controls.description,
            "left_out": json.dumps(left_out),
            "samples": options.samples if DRAW in readings.dims else 0,
            "n_wrong": int(wrong.sum()),
            "n_right": int((~wrong).sum()),
            "folds": options.folds,
        },
    )  # fmt: skip


def computed(
    readings: xr.Dataset, fold_of: NDArray[np.int64]
) -> tuple[dict[str, Any], dict[str, Flags], dict[str, str]]:
    """Scores and features by name; what probes are fitted to; and what was left out, with the reason."""
    values: dict[str, Any] = {}
    targets: dict[str, Flags] = {}
    left_out: dict[str, str] = {}
    for name, score in scores_of(readings).items():
        value = _out_of_fold(score, readings, fold_of) if score.kind == "unlabelled" else score(readings)
        if score.kind in NUMBERS and not np.isfinite(value).all():
            left_out[name] = f"not a number for {int((~np.isfinite(value)).sum())} of {len(value)} answers"
            continue
        if score.target is not None:
            flags = upper_group(np.asarray(score.target(readings), dtype=np.float64))
            if min(flags.sum(), (~flags).sum()) < MIN_PER_GROUP:
                left_out[name] = f"its target does not vary enough: {int(flags.sum())} of {len(flags)} answers are high"
                continue
            targets[name] = flags
        values[name] = value
    return values, targets, left_out


def _out_of_fold(score: UncertaintyScore, readings: xr.Dataset, fold_of: NDArray[np.int64]) -> Floats:
    """(example,): of every answer, with what was learnt from the answers of the other folds."""
    found = np.empty(len(fold_of))
    for fold in np.unique(fold_of):
        test = fold_of == fold
        found[test] = score(*(readings.isel({EXAMPLE: np.flatnonzero(rows)}) for rows in (test, ~test)))
    return found


MIN_PER_GROUP = 20  # answers with a high, and with a low target, that a probe is fitted to


def upper_group(values: Floats) -> Flags:
    """(example,): which belong to the upper of two groups, cut where the squared distances from their means are least.

    >>> upper_group(np.array([0.0, 0.2, 0.1, 1.5, 1.4, 0.3]))
    array([False, False, False,  True,  True, False])
    """
    ordered = np.sort(values)
    cuts = np.flatnonzero(np.diff(ordered) > 0) + 1  # equal values stay together
    if not len(cuts):
        return np.zeros(len(values), dtype=bool)
    sums, count = np.cumsum(ordered), len(ordered)
    lower = sums[cuts - 1]
    between = lower**2 / cuts + (sums[-1] - lower) ** 2 / (count - cuts)  # the larger, the smaller the distances
    return np.asarray(values >= ordered[cuts[int(np.argmax(between))]])


def _areas(table: xr.Dataset, rows: list[str]) -> dict[str, Any]:
    """AUROCs, of all answers and within strata."""
    ends = ("", "_low", "_high")
    names = [f"{name}{end}" for name in ("auroc", "auroc_within") for end in ends]
    return {name: (DETECTOR, table[name].sel({DETECTOR: rows}).values) for name in names}


def _gains(table: xr.Dataset, rows: list[str]) -> dict[str, Any]:
    """Paired differences with interval, p and q; and the gain that would be found."""
    reference = str(table.attrs["reference"])
    pairs = {
        "gain": [(name, reference) for name in rows],
        "gain_logprob": [(name, LOGPROB_MIN) for name in rows],
        "added": [(f"{WITH}{name}", reference) for name in rows],
    }
    every = {str(name) for name in table[DETECTOR].values}
    asks_the_model = np.array(["question" not in str(table["kind"].sel({DETECTOR: name}).item()) for name in rows])
    found: dict[str, Any] = {}
    for what, compared in pairs.items():
        numbers = np.full((4, len(rows)), np.nan)
        for row, (first, second) in enumerate(compared):
            if first != second and {first, second} <= every:
                numbers[:, row] = compare_rows(table, first, second)
        for end, column in zip(("", "_low", "_high", "_p"), numbers, strict=True):
            found[f"{what}{end}"] = (DETECTOR, column)
        found[f"{what}_q"] = (DETECTOR, _q_values(numbers[3], asks_the_model & (np.array(rows) != LENGTH)))
    width = (found["gain_logprob_high"][1] - found["gain_logprob_low"][1]) / (2 * HALF_WIDTH)
    found["detectable"] = (DETECTOR, np.array([minimum_detectable_gain(one) if one > 0 else np.nan for one in width]))
    return found


def _q_values(p: Floats, tested: Flags) -> Floats:
    q, tested = np.full(len(p), np.nan), tested & np.isfinite(p)
    q[tested] = benjamini_hochberg(p[tested])
    return q


def _metrics(table: xr.Dataset, rows: list[str], wrong: Flags) -> dict[str, Any]:
    """What a user of the score sees: alarms, answers withheld, and probabilities."""
    fold_of = table["fold_of"].values
    names = [f"{name}{end}" for name in ("auprc", "prr", "aurc", "ece", "brier") for end in ("", "_low", "_high")]
    columns = {name: np.full(len(rows), np.nan) for name in (*names, "ece_null")}
    risk = {end: np.full((len(rows), len(COVERAGES)), np.nan) for end in ("", "_low", "_high")}
    probability = np.full((len(rows), len(wrong)), np.nan)
    places = np.maximum(np.round(np.array(COVERAGES) * len(wrong)).astype(int), 1) - 1
    for row, name in enumerate(rows):
        one = table.sel({DETECTOR: name})
        score, learnt = one["score"].values, one["kind"].item() != "score"
        selective = risk_coverage(score, wrong, fold_of=fold_of if learnt else None)
        estimates = {"prr": selective.prr, "aurc": selective.aurc}
        estimates["auprc"] = auprc(score, wrong, fold_of=fold_of if learnt else None)
        for what, estimate in estimates.items():
            for end, value in zip(("", "_low", "_high"), estimate, strict=False):
                columns[f"{what}{end}"][row] = value
        for end in risk:
            risk[end][row] = getattr(selective, f"risk{end}")[places]
        known = one["probability"].values
        probability[row] = known if np.isfinite(known).all() else _platt_out_of_fold(score, wrong, fold_of)
        how = reliability(probability[row], wrong)
        for what in ("ece", "ece_low", "ece_high", "ece_null", "brier", "brier_low", "brier_high"):
            columns[what][row] = getattr(how, what)
    found: dict[str, Any] = {name: (DETECTOR, values) for name, values in columns.items()}
    found |= {f"risk{end}": ((DETECTOR, COVERAGE), values) for end, values in risk.items()}
    return found | {"probability": ((DETECTOR, EXAMPLE), probability)}


def _platt_out_of_fold(score: Floats, wrong: Flags, fold_of: NDArray[np.int64]) -> Floats:
    """Probabilities from a calibration on the other folds."""
    found = np.empty(len(wrong))
    for fold in np.unique(fold_of):
        test = fold_of == fold
        found[test] = fit_platt(score[~test], wrong[~test])(score[test])
    return found


def _seconds(readings: xr.Dataset) -> Floats:
    """(cost_class,): mean over answers; NaN where nothing was timed."""
    names = [f"seconds {name}" for name in COSTS]
    return np.array([float(readings[name].mean()) if name in readings else np.nan for name in names])


def _origins(
    rows: list[str], known: Mapping[str, UncertaintyScore], combined: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Cost, paper and address of every row."""
    columns: dict[str, list[str]] = {"cost": [], "paper": [], "link": []}
    for name in rows:
        one = known.get(name)
        if one is not None:
            cost, (paper, link) = one.cost, one.paper
        else:
            members = [known[member].cost for member in combined.get(name, ())]
            cost, paper, link = max(members, key=COSTS.index, default="question"), "", ""
        for column, value in zip(columns.values(), (cost, paper or OWN, link), strict=True):
            column.append(value)
    return {name: (DETECTOR, np.array(values, dtype=object)) for name, values in columns.items()}
