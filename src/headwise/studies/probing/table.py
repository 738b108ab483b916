"""Probes beside what needs no probe: one table of ways to tell wrong answers from correct ones.

| row                               | what it is                                                                 |
|-----------------------------------|----------------------------------------------------------------------------|
| Probe, best cell                  | layer and token chosen on other folds than it is judged on                 |
| Probe, exact answer               | the last token of the exact answer, the layer chosen so                    |
| Probe, best head                  | a head's output at the exact answer, the head chosen so                    |
| Probe, last token; end of question | the same at the last token of the answer, and of the prompt               |
| Log-probability (mean, min, max)  | of the answer's tokens, negated; over all of them and over the exact answer |
| p(True)                           | the model asked whether its answer is true; 1 - p                          |
| Length                            | of the answer, in tokens: a confounder, so always there                    |

Probes are learnt, so their AUROC is a mean over folds; scores are not, so theirs is over all answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, STATISTIC
from headwise.probes.cell_maps import CellMap, nested
from headwise.stats import auroc
from headwise.studies.probing.positions import LAST, POSITIONS
from headwise.studies.probing.reading import LOGPROBS

__all__ = ["BEST", "scores_of", "table"]

BEST, BEST_HEAD = "Probe, best cell", "Probe, best head"
AT = {"Probe, exact answer": LAST, "Probe, last token": "-1", "Probe, end of question": "last_q"}
_NAMES = {name: f"Log-probability, {name.replace('_exact', ' of exact answer')}" for name in LOGPROBS}


class Row(NamedTuple):
    """One way to tell wrong answers from correct ones."""

    name: str
    kind: str  # "supervised" or "score", as in the table of detectors
    value: float
    low: float
    high: float


def scores_of(readings: xr.Dataset, answer_tokens: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """What needs no probe: one number an answer, larger is more likely wrong."""
    found = {_NAMES[name]: -readings["logprob"].sel({STATISTIC: name}).values.astype(np.float64) for name in LOGPROBS}
    found["p(True)"] = 1 - readings["p_true"].values.astype(np.float64)
    found["Length"] = answer_tokens.astype(np.float64)
    return found


def table(
    cells: CellMap,
    heads: CellMap,
    scores: dict[str, NDArray[np.float64]],
    wrong: NDArray[np.bool_],
    fold_of: NDArray[np.int64],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and coordinates of the Dataset."""
    rows = [_probe(BEST, cells, wrong, fold_of, None), _probe(BEST_HEAD, heads, wrong, fold_of, None)]
    rows += [_probe(name, cells, wrong, fold_of, _column(cells, position)) for name, position in AT.items()]
    for name, score in scores.items():
        there = np.isfinite(score)
        if there.all():
            one = auroc(score, wrong)
            rows.append(Row(name, "score", float(one.value), float(one.low), float(one.high)))
    sides = {"table_auroc": "value", "table_low": "low", "table_high": "high"}
    variables = {
        name: ((DETECTOR,), np.array([getattr(row, side) for row in rows], dtype=np.float32))
        for name, side in sides.items()
    }
    names, kinds = (np.array([getattr(row, side) for row in rows], dtype=object) for side in ("name", "kind"))
    return variables, {DETECTOR: names, "kind": ((DETECTOR,), kinds)}


def _column(cells: CellMap, position: str) -> NDArray[np.bool_]:
    return np.arange(cells.value.size) % len(POSITIONS) == POSITIONS.index(position)


def _probe(
    name: str,
    cells: CellMap,
    wrong: NDArray[np.bool_],
    fold_of: NDArray[np.int64],
    allowed: NDArray[np.bool_] | None,
) -> Row:
    one, _, _ = nested(cells, wrong, fold_of, allowed)
    return Row(name, "supervised", float(one.value), float(one.low), float(one.high))
