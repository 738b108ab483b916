"""Maps in words: what a careful reader would see, every number computed from the data.

    words = describe("profile", dataset)
    print(words.text())          # or .markdown(), .sections(), .short() for an alt text
    words.numbers                # each number of the text, with its value and what it is

`maps` holds what every study can ask of a layer x head map. A study gets its words by one line in ``_STUDIES``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xarray as xr

from headwise.core.errors import StudyError, did_you_mean
from headwise.describe import (
    circuits,
    detection,
    function_masking,
    functions,
    maps,
    patterns,
    probing,
    profile,
    relations,
    samples,
    sparsity,
    spectral,
)
from headwise.describe.relations import validation
from headwise.describe.words import Number, Words, Writer

__all__ = ["Number", "Words", "Writer", "describe", "maps"]

_STUDIES: dict[str, Callable[..., Words]] = {
    "profile": profile.describe,
    "patterns": patterns.describe,
    "circuits": circuits.describe,
    "sparsity": sparsity.describe,
    "spectral": spectral.describe,
    "detection": detection.describe,
    "probing": probing.describe,
    "samples": samples.describe,
    "relations": relations.describe,
    "relation_validation": validation.describe,
    "functions": functions.describe,
    "function_masking": function_masking.describe,
}


def describe(study: str, dataset: xr.Dataset, **options: Any) -> Words:
    """A study's Dataset in words.

    Args:
        study: its name.
        dataset: its maps, as an atlas gives them.
        **options: the study's own.

    Returns:
        Sections of sentences, with the origin of every number in them.

    Examples:
        >>> words = describe("profile", atlas["profile"])
        >>> list(words.sections())
        ['Overview', 'Axes and scale', 'Detail', 'Key observations', 'Caveats']
        >>> words.numbers[0]
        Number(text='11', value=11.0, of='statistics')
    """
    if study not in _STUDIES:
        raise StudyError(f"There are no words for the study {study!r}. {did_you_mean(study, _STUDIES)}")
    return _STUDIES[study](dataset, **options)
