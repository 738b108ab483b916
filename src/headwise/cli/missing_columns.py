"""Slips in asking for columns of heads: a study that is not in the atlas, and a condition that the shell took apart.

This module does not know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from headwise.atlas import Atlas
from headwise.core.errors import DataError
from headwise.studies.registry import dataset_spec

__all__ = ["refuse_missing_studies", "refuse_unquoted"]


def refuse_missing_studies(names: Sequence[str], frame: pd.DataFrame, atlas: Atlas) -> None:
    """Name the study to build, where a column is of one that is not there."""
    studies = {str(column).partition(".")[0] for column in frame.columns}
    for name in names:
        study = name.partition(".")[0]
        if "." not in name or dataset_spec(study) is None or study in studies:
            continue
        if study in atlas.studies:
            raise DataError(
                f"there is no column {name!r}: the study {study} says nothing of single heads; "
                f"read it with headwise describe {atlas.location} {study}."
            )
        raise DataError(
            f"there is no column {name!r}: the study {study} is not in the atlas; "
            f"add it with headwise build --studies {study} -o {atlas.location}."
        )


def refuse_unquoted(rest: Sequence[str], where: str | None) -> None:
    """Words that are left over, which most often are the rest of a condition."""
    if not rest:
        return
    if where is not None:
        whole = " ".join([where, *rest])
        raise DataError(
            f"--where took only {where!r}, and {' '.join(rest)!r} was left over; put the whole condition in quotes: "
            f'--where "{whole}".'
        )
    raise DataError(f"heads takes one atlas, and {' '.join(rest)!r} was left over; write: headwise heads ATLAS.")
