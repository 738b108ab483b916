"""Which studies there are: how each is prepared, which options it takes, which maps it is made from.

A new study is three lines here (and its schema, figure and words). The order is the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import xarray as xr

from headwise.core.errors import StudyError, did_you_mean
from headwise.studies import (
    answers,
    circuits,
    function_masking,
    functions,
    patterns,
    probing,
    profile,
    samples,
    sparsity,
    spectral,
)
from headwise.studies import relations as relating
from headwise.studies.relations import validation
from headwise.studies.sources import Sources
from headwise.studies.work import Work

__all__ = [
    "FROM_WEIGHTS",
    "NEEDS",
    "ON_REQUEST",
    "OPTIONS",
    "STUDIES",
    "check_studies",
    "default_studies",
    "with_needed",
]

Prepare = Callable[[Any, Sources, Mapping[str, xr.Dataset], Any], Work]  # model, what it is shown, maps needed, options

STUDIES: dict[str, Prepare] = {
    profile.NAME: lambda model, sources, needed, options: profile.prepare(model, sources.passages, options),
    patterns.NAME: lambda model, sources, needed, options: patterns.prepare(
        model, sources.passages, options, sources.against
    ),
    circuits.NAME: lambda model, sources, needed, options: circuits.prepare(model, options, sources.against),
    sparsity.NAME: lambda model, sources, needed, options: sparsity.prepare(model, sources.passages, options),
    answers.NAME: lambda model, sources, needed, options: answers.prepare(model, sources.questions, options),
    spectral.NAME: lambda model, sources, needed, options: spectral.prepare(model, needed[answers.NAME], options),
    probing.NAME: lambda model, sources, needed, options: probing.prepare(model, needed[answers.NAME], options),
    samples.NAME: lambda model, sources, needed, options: samples.prepare(
        model, needed[answers.NAME], needed[probing.NAME], sources.questions, options
    ),
    relating.NAME: lambda model, sources, needed, options: relating.prepare(model, sources.relations, options),
    validation.NAME: lambda model, sources, needed, options: validation.prepare(
        model, sources.relations, needed[relating.NAME], options
    ),
    functions.NAME: lambda model, sources, needed, options: functions.prepare(model, sources.steps, options),
    function_masking.NAME: lambda model, sources, needed, options: function_masking.prepare(
        model, sources.steps, needed[functions.NAME], options
    ),
}
OPTIONS: dict[str, type] = {  # study -> the dataclass of its options
    profile.NAME: profile.ProfileOptions,
    patterns.NAME: patterns.PatternsOptions,
    circuits.NAME: circuits.CircuitsOptions,
    sparsity.NAME: sparsity.SparsityOptions,
    answers.NAME: answers.AnsweringOptions,
    spectral.NAME: spectral.SpectralOptions,
    probing.NAME: probing.ProbingOptions,
    samples.NAME: samples.SamplingOptions,
    relating.NAME: relating.RelationsOptions,
    validation.NAME: validation.RelationValidationOptions,
    functions.NAME: functions.FunctionsOptions,
    function_masking.NAME: function_masking.FunctionMaskingOptions,
}
NEEDS = {  # study -> studies whose maps it is made from
    spectral.NAME: (answers.NAME,),
    probing.NAME: (answers.NAME,),
    samples.NAME: (answers.NAME, probing.NAME),
    validation.NAME: (relating.NAME,),
    function_masking.NAME: (functions.NAME,),
}
ON_REQUEST = (samples.NAME, circuits.NAME, sparsity.NAME)  # studies that take long: made only when named
FROM_WEIGHTS = (relating.NAME,)  # studies that run no model: it can stay on disk
SPREADING = ("device_map", "offload_folder", "max_memory")  # of a model that runs; one that stays on disk needs none


def default_studies() -> list[str]:
    """All that are made when none is named."""
    return [name for name in STUDIES if name not in ON_REQUEST]


def check_studies(names: Collection[str]) -> list[str]:
    """The names, without repeats; an unknown one is refused."""
    for name in names:
        if name not in STUDIES:
            raise StudyError(f"There is no study {name!r}. {did_you_mean(name, STUDIES)}")
    return list(dict.fromkeys(names))


def with_needed(names: Sequence[str]) -> list[str]:
    """The names, each after the studies it is made from.

    >>> with_needed(["spectral"])
    ['answers', 'spectral']
    """
    return list(dict.fromkeys(one for name in names for one in (*NEEDS.get(name, ()), name)))
