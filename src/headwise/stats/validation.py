"""Checks of what a statistic is given: class labels, groups of examples, and arrays whose dims have names.

The positive class is the wrong answer, as in the literature on hallucination: an AUROC above 0.5 means "larger where the
model errs". Refused and unlabelled answers are left out, and counted, by the caller.

A plain array has examples first; its other dims are guessed from their number::

    (example,)                      one score
    (example, feature)              a vector
    (example, layer, head)          one number per head
    (example, layer, head, rank)    a sorted list per head, such as the Laplacian eigenvalues, largest first
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DIMS, EXAMPLE, FEATURE, HEAD, LAYER, RANK
from headwise.core.errors import DataError, did_you_mean

Labels = NDArray[np.bool_]

MIN_PER_CLASS = 20  # examples of each class below which Headwise does not compare two classes
_GUESSED = {1: (), 2: (FEATURE,), 3: (LAYER, HEAD), 4: (LAYER, HEAD, RANK)}


def as_labels(labels: Any, *, rows: int | None = None, min_per_class: int = MIN_PER_CLASS) -> Labels:
    """Labels as a bool array (True = wrong), of the right length and with enough of both classes, or a DataError.

    >>> as_labels([0, 1, 1], min_per_class=1)
    array([False,  True,  True])
    """
    found = as_flags(labels, rows=rows)
    wrong, right = int(found.sum()), int((~found).sum())
    if min(wrong, right) == 0:
        which = "right" if wrong == 0 else "wrong"
        raise DataError(
            f"All {len(found)} answers are {which}, so there is nothing to tell apart; use questions of which the "
            "model gets some right and some wrong."
        )
    if min(wrong, right) < min_per_class:
        raise DataError(
            f"There are {wrong} wrong and {right} right answers, and at least {min_per_class} of each are needed; use "
            "more questions, or ones of another difficulty."
        )
    return found


def as_flags(labels: Any, *, rows: int | None = None) -> Labels:
    """The same, but the answers may all be of one class.

    >>> as_flags([0, 0])
    array([False, False])
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
    return found


def as_groups(groups: Any, rows: int) -> NDArray[np.int64] | None:
    """Groups (such as the question an answer belongs to) as whole numbers from 0, or None where there are none."""
    if groups is None:
        return None
    found = np.asarray(groups)
    if found.shape != (rows,):
        raise DataError(f"There are {rows} answers but groups of the shape {found.shape}; give one group per answer.")
    return np.unique(found, return_inverse=True)[1]


def as_named(values: Any, dims: Sequence[str] | None = None) -> xr.DataArray:
    """Values as a DataArray with the example first and layers and heads numbered.

    >>> as_named(np.zeros((7, 2, 3))).dims
    ('example', 'layer', 'head')
    """
    if not isinstance(values, xr.DataArray):
        array = np.asarray(values)
        if dims is None and array.ndim not in _GUESSED:
            raise DataError(f"An array of {array.ndim} dims needs their names: give dims=, or an xarray.DataArray.")
        values = xr.DataArray(array, dims=dims or (EXAMPLE, *_GUESSED[array.ndim]))
    for dim in values.dims:
        if dim not in DIMS:
            raise DataError(f"{dim!r} is not the name of a dim. {did_you_mean(str(dim), DIMS)}")
    if EXAMPLE not in values.dims:
        raise DataError(f"The values have the dims {', '.join(map(str, values.dims))} but none is {EXAMPLE!r}.")
    values = values.transpose(EXAMPLE, ...)
    numbers = {dim: np.arange(values.sizes[dim]) for dim in (LAYER, HEAD) if dim in values.dims}
    return values.assign_coords({dim: number for dim, number in numbers.items() if dim not in values.coords})
