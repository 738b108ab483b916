"""Which of several named maps a figure shows: those asked for, in that order, each known and none twice."""

from __future__ import annotations

from collections.abc import Iterable

import xarray as xr

from headwise.core.errors import StudyError, did_you_mean


def chosen_keys(dataset: xr.Dataset, dim: str, wanted: Iterable[str] | str | None, owner: str) -> list[str]:
    """The keys along `dim` that are wanted (None: all); `owner` is who has them, such as "The profile"."""
    known = [str(key) for key in dataset[dim].values]
    if wanted is None:
        return known
    keys = [wanted] if isinstance(wanted, str) else list(wanted)
    for key in keys:
        if key not in known:
            raise StudyError(f"{owner} has no {dim} {key!r}. {did_you_mean(key, known)}")
    if not keys:
        raise StudyError(f"No {dim} was chosen for the figure. {did_you_mean('', known)}")
    return list(dict.fromkeys(keys))
