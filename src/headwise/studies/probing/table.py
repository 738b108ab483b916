"""Which detector of wrong answers is better, and by how much? Probes against scores that need none, in one table.

| row                               | what it is                                                                 |
|-----------------------------------|----------------------------------------------------------------------------|
| Probe, best cell                  | layer and token chosen on other folds than it is evaluated on              |
| Probe, exact answer               | the last token of the exact answer, the layer chosen so                    |
| Probe, best head                  | a head's output at the exact answer, the head chosen so                    |
| Probe, last token; end of question | the same at the last token of the answer, and of the prompt               |
| Log-probability (mean, min, max)  | of the answer's tokens, negated; over all of them and over the exact answer |
| p(True)                           | the model asked whether its answer is true; 1 - p                          |
| Length                            | of the answer, in tokens: a confounder, so always there                    |

Columns:

- `table_auroc`: of all answers. Probes are fitted, so theirs is a mean over folds; scores are not, so theirs is over all.
- `table_exact`: the same scores, only of answers in which an exact answer was found. The others are read at their last
  token and are nearly all wrong, which a probe at the exact answer may see by itself.
- `table_over_logprob`: mean over folds minus that of the strongest log-probability (DeLong's paired test, inflated for the
  training rows that folds share). The strongest is chosen on the same answers, which favours log-probability.

A pure function of scores and labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, STATISTIC
from headwise.probes.cell_maps import CellMap, nested
from headwise.stats import Auroc, AurocDifference, auroc, auroc_by_fold, delong_test
from headwise.studies.probing.positions import LAST, POSITIONS
from headwise.studies.probing.reading import LOGPROBS

__all__ = ["LOGPROB_NAMES", "Judged", "baseline_scores", "detector_table"]

BEST_CELL, BEST_HEAD = "Probe, best cell", "Probe, best head"
PROBES_AT = {"Probe, exact answer": LAST, "Probe, last token": "-1", "Probe, end of question": "last_q"}
LOGPROB_NAMES = {name: f"Log-probability, {name.replace('_exact', ' of exact answer')}" for name in LOGPROBS}
PROBE, SCORE = "supervised", "score"  # kinds of rows

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


class _Row(NamedTuple):
    kind: str
    score: Floats
    """(answer,): larger is more likely wrong; out of fold where it was fitted"""

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
    cells: CellMap, heads: CellMap, scores: Mapping[str, Floats], judged: Judged
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Variables, coordinates and attributes: probes of one site's cells and of heads, and scores."""
    token = np.arange(cells.value.size) % len(POSITIONS)
    chosen = {BEST_CELL: (cells, None), BEST_HEAD: (heads, None)}
    chosen |= {name: (cells, token == POSITIONS.index(position)) for name, position in PROBES_AT.items()}
    rows = {
        name: _Row(PROBE, nested(found, judged.wrong, judged.fold_of, allowed)[1])
        for name, (found, allowed) in chosen.items()
    }
    rows |= {name: _Row(SCORE, score) for name, score in scores.items()}
    variables = _column("table", [row.area(judged) for row in rows.values()])
    variables["table_auroc"] = variables.pop("table")
    variables |= _column("table_exact", [row.area(judged, judged.has_exact) for row in rows.values()])
    reference = _strongest(rows, judged, LOGPROB_NAMES.values())
    variables |= _gains("table_over_logprob", rows, judged, reference)
    coords = {
        DETECTOR: np.array(list(rows), dtype=object),
        "kind": ((DETECTOR,), np.array([row.kind for row in rows.values()], dtype=object)),
    }
    return variables, coords, {"logprob_reference": reference}


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
