"""Which answers are wrong? One array of True (wrong, hallucinated) and False (right), checked once for everybody.

The positive class is the wrong answer, as in the literature on hallucination: an AUROC above 0.5 means "larger where
the model errs". Refused and unlabelled answers have no place here; whoever labels leaves them out and counts them.

This module does not know how an answer was labelled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.core.errors import DataError

__all__ = ["LEAST", "Labels", "as_groups", "as_labels"]

Labels = NDArray[np.bool_]

LEAST = 20  # rows of each class below which Headwise does not compare two classes


def as_labels(labels: Any, *, rows: int | None = None, least: int = LEAST) -> Labels:
    """Labels as a bool array (True = wrong), of the right length and with enough of both classes, or a DataError.

    >>> as_labels([0, 1, 1], least=1)
    array([False,  True,  True])
    """
    found = np.asarray(labels)
    if found.ndim != 1:
        raise DataError(f"Labels must be one per answer, but have the shape {found.shape}; give a list of true/false.")
    if rows is not None and len(found) != rows:
        raise DataError(f"There are {rows} answers but {len(found)} labels; give one label per answer.")
    if found.dtype != bool:
        if found.dtype.kind not in "iuf" or not np.isin(found, (0, 1)).all():
            raise DataError("Labels must be true (wrong) or false (right); leave out refused and unlabelled answers.")
        found = found.astype(bool)
    wrong, right = int(found.sum()), int((~found).sum())
    if min(wrong, right) == 0:
        which = "right" if wrong == 0 else "wrong"
        raise DataError(
            f"All {len(found)} answers are {which}, so there is nothing to tell apart; use questions of which the "
            "model gets some right and some wrong."
        )
    if min(wrong, right) < least:
        raise DataError(
            f"There are {wrong} wrong and {right} right answers, and at least {least} of each are needed; use more "
            "questions, or ones of another difficulty."
        )
    return found


def as_groups(groups: Any, rows: int) -> NDArray[np.int64] | None:
    """Groups (such as the question an answer belongs to) as whole numbers, or None where there are none."""
    if groups is None:
        return None
    found = np.asarray(groups)
    if found.shape != (rows,):
        raise DataError(f"There are {rows} answers but groups of the shape {found.shape}; give one group per answer.")
    return np.unique(found, return_inverse=True)[1]
