"""Which detector of wrong answers is better, and by how much? Probes, scores that need none, and the question alone.

| row                               | what it is                                                                 |
|-----------------------------------|----------------------------------------------------------------------------|
| Probe, best cell                  | layer and token chosen on other folds than it is evaluated on              |
| Probe, exact answer               | the last token of the exact answer, the layer chosen so                    |
| Probe, best head                  | a head's output at the exact answer, the head chosen so                    |
| Probe, last token; end of question | the same at the last token of the answer, and of the prompt               |
| Log-probability (mean, min, max)  | of the answer's tokens, negated; over all of them and over the exact answer |
| p(True)                           | the model asked whether its answer is true; 1 - p                          |
| Length                            | of the answer, in tokens: a confounder, so always there                    |
| Question: topic; ...; words       | the same probe on what the question alone says, nothing of the model       |

Columns:

- `table_auroc`: of all answers. Probes are fitted, so theirs is a mean over folds; scores are not, so theirs is over all.
- `table_exact`: the same scores, only of answers in which an exact answer was found. The others are read at their last
  token and are nearly all wrong, which a probe at the exact answer may see by itself.
- `table_gain`: mean over folds minus that of the strongest question-only row (DeLong's paired test, inflated for the
  training rows that folds share); `table_over_logprob`: minus that of the strongest log-probability. The strongest is
  chosen on the same answers, which favours it.
- `table_within`: AUROC over pairs of a wrong and a correct answer of the same stratum (`question_controls`), such as topic
  x difficulty. What is fitted is fitted without the stratum's answers (`probes.cell_maps`); probes are one-step probes here.

A pure function of scores and labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, STATISTIC
from headwise.probes.batched_logistic.cells import fit_cells
from headwise.probes.cell_maps import CellMap, Strata, nested
from headwise.stats import Auroc, AurocDifference, auroc, auroc_by_fold, delong_test
from headwise.stats.stratified import auroc_within
from headwise.studies.probing.positions import LAST, POSITIONS
from headwise.studies.probing.reading import LOGPROBS

BEST_CELL, BEST_HEAD = "Probe, best cell", "Probe, best head"
PROBES_AT = {"Probe, exact answer": LAST, "Probe, last token": "-1", "Probe, end of question": "last_q"}
LOGPROB_NAMES = {name: f"Log-probability, {name.replace('_exact', ' of exact answer')}" for name in LOGPROBS}
PROBE, SCORE, QUESTION = "supervised", "score", "question"  # kinds of rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Labels = NDArray[np.bool_]
NAN = np.array(np.nan)
NONE = Auroc(NAN, NAN, NAN, np.empty(0))


class Judged(NamedTuple):
    """The answers that are probed."""

    wrong: Labels
    fold_of: Ints
    has_exact: Labels
    """False where no exact answer was found, and the last token was read"""
    strata: Strata | None
    """of questions that are alike; None where they cannot be compared within"""


class _Row(NamedTuple):
    kind: str
    score: Floats
    """(answer,): larger is more likely wrong; out of fold where it was fitted"""
    without_stratum: Floats | None
    """(answer,): where it was fitted, the score by a fit without the answer's stratum"""

    def area(self, judged: Judged, rows: Labels | None = None) -> Auroc:
        """The AUROC that is reported, of some answers or all; NaN where a fold has one class."""
        rows = np.ones(len(self.score), dtype=bool) if rows is None else rows
        wrong, fold_of = judged.wrong[rows], judged.fold_of[rows]
        if self.kind == SCORE:
            return auroc(self.score[rows], wrong) if wrong.any() and not wrong.all() else NONE
        both = all(len(set(wrong[fold_of == fold].tolist())) == 2 for fold in np.unique(judged.fold_of))
        return auroc_by_fold(self.score[rows], wrong, fold_of)[0] if both else NONE

    def by_fold(self, judged: Judged) -> Auroc:
        """The mean over folds, whatever the kind: so two rows have the same estimand."""
        return auroc_by_fold(self.score, judged.wrong, judged.fold_of, learnt=self.kind != SCORE)[0]

    def within(self, judged: Judged) -> Auroc:
        """The AUROC within strata; NaN where there are none."""
        if judged.strata is None:
            return NONE
        score, inflation = (self.score, 1.0) if self.kind == SCORE else (self.without_stratum, judged.strata.inflation)
        return NONE if score is None else auroc_within(score, judged.wrong, judged.strata.of, inflation=inflation)


def baseline_scores(readings: xr.Dataset, answer_tokens: Ints) -> dict[str, Floats]:
    """Detectors without a probe: one number per answer, larger is more likely wrong."""
    found = {
        title: -readings["logprob"].sel({STATISTIC: name}).values.astype(np.float64)
        for name, title in LOGPROB_NAMES.items()
    }
    found["p(True)"] = 1 - readings["p_true"].values.astype(np.float64)
    found["Length"] = answer_tokens.astype(np.float64)
    return {name: score for name, score in found.items() if np.isfinite(score).all()}


def detector_table(
    cells: CellMap, heads: CellMap, scores: Mapping[str, Floats], questions: Mapping[str, Floats], judged: Judged
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Variables, coordinates and attributes.

    `cells`, `heads`: probes of one site's cells and of heads; `scores`: (answer,) by name; `questions`: (answer, feature)
    by name, what the question alone says.
    """
    token = np.arange(cells.value.size) % len(POSITIONS)
    chosen = {BEST_CELL: (cells, None), BEST_HEAD: (heads, None)}
    chosen |= {name: (cells, token == POSITIONS.index(position)) for name, position in PROBES_AT.items()}
    rows = {name: _probe_row(found, allowed, judged) for name, (found, allowed) in chosen.items()}
    rows |= {name: _Row(SCORE, score, None) for name, score in scores.items()}
    rows |= {name: _question_row(features, judged) for name, features in questions.items()}
    areas = _column("table_auroc", [row.area(judged) for row in rows.values()])
    variables = {name.replace("auroc_low", "low").replace("auroc_high", "high"): value for name, value in areas.items()}
    variables |= _column("table_exact", [row.area(judged, judged.has_exact) for row in rows.values()])
    variables |= _column("table_within", [row.within(judged) for row in rows.values()])
    references = {"logprob_reference": _strongest(rows, judged, LOGPROB_NAMES.values())}
    variables |= _gains("table_over_logprob", rows, judged, references["logprob_reference"])
    if questions:
        references["question_reference"] = _strongest(rows, judged, questions)
        variables |= _gains("table_gain", rows, judged, references["question_reference"])
    coords = {
        DETECTOR: np.array(list(rows), dtype=object),
        "kind": ((DETECTOR,), np.array([row.kind for row in rows.values()], dtype=object)),
    }
    return variables, coords, references


def _probe_row(cells: CellMap, allowed: Labels | None, judged: Judged) -> _Row:
    score, strata = nested(cells, judged.wrong, judged.fold_of, allowed)[1], judged.strata
    if cells.within is None or strata is None:
        return _Row(PROBE, score, None)
    return _Row(PROBE, score, nested(cells.within, judged.wrong, strata.fold_of, allowed, strata=strata)[1])


def _question_row(features: Floats, judged: Judged) -> _Row:
    def fitted(fold_of: Ints) -> Floats:
        scores = fit_cells(features[None].astype(np.float32), judged.wrong, fold_of).scores[0]
        return np.round(
            scores, 4
        )  # without the rounding of float32, so that answers with equal features have equal scores

    strata = judged.strata
    return _Row(QUESTION, fitted(judged.fold_of), None if strata is None else fitted(strata.fold_of))


def _strongest(rows: Mapping[str, _Row], judged: Judged, names: Iterable[str]) -> str:
    """The row of these names with the highest mean AUROC over folds."""
    return max((name for name in names if name in rows), key=lambda name: float(rows[name].by_fold(judged).value))


def _gains(name: str, rows: Mapping[str, _Row], judged: Judged, reference: str) -> dict[str, Any]:
    """Every row minus the reference, paired by answer, with interval and p."""
    base = rows[reference].by_fold(judged)
    gains = [delong_test(row.by_fold(judged), base) for row in rows.values()]
    return _column(name, gains) | {f"{name}_p": ((DETECTOR,), np.array([gain.p for gain in gains], dtype=np.float32))}


def _column(name: str, values: Sequence[Auroc | AurocDifference]) -> dict[str, Any]:
    return {
        f"{name}{ending}": ((DETECTOR,), np.array([float(getattr(one, side)) for one in values], dtype=np.float32))
        for ending, side in (("", "value"), ("_low", "low"), ("_high", "high"))
    }
