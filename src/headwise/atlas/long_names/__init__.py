"""What is each variable of an atlas, in one phrase? Attributes ``long_name`` and ``units``, for who opens it without Headwise.

A table a study, in three files: ``weights`` (relations, salience), ``answers`` (profile, patterns and what tells wrong from
right answers), ``tasks`` (functions, circuits, what is lost without heads). A phrase may end in its unit: ``"loss [nats]"``.
Ends of intervals need no phrase of their own: ``x_low`` and ``x_high`` follow from ``x``. Dims mean the same in all studies.

This module does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from headwise.atlas.long_names.answers import ANSWERS, DETECTION, PATTERNS, PROBING, PROFILE, SAMPLES, SPECTRAL
from headwise.atlas.long_names.coordinates import COORDINATES
from headwise.atlas.long_names.tasks import CIRCUITS, FUNCTION_MASKING, FUNCTIONS, SPARSITY
from headwise.atlas.long_names.weights import RELATION_VALIDATION, RELATIONS, SALIENCE

__all__ = ["LONG_NAMES", "explained_in", "with_long_names"]

LONG_NAMES: Mapping[str, Mapping[str, str]] = {
    "profile": PROFILE,
    "patterns": PATTERNS,
    "answers": ANSWERS,
    "spectral": SPECTRAL,
    "detection": DETECTION,
    "probing": PROBING,
    "samples": SAMPLES,
    "relations": RELATIONS,
    "salience": SALIENCE,
    "relation_validation": RELATION_VALIDATION,
    "functions": FUNCTIONS,
    "function_masking": FUNCTION_MASKING,
    "circuits": CIRCUITS,
    "sparsity": SPARSITY,
}
_ENDS = {"_low": "lower", "_high": "upper"}


def explained_in(study: str, variable: str) -> dict[str, str]:
    """``long_name``, and ``units`` where it has some, of a variable or coordinate; empty where nothing is known of it.

    >>> explained_in("answers", "logprob_min")
    {'long_name': "smallest log-probability of the answer's tokens", 'units': 'nats'}
    >>> explained_in("detection", "auroc_low")["long_name"]
    'lower end of the 95 % interval of: AUROC of wrong against correct answers, mean over folds'
    """
    table = LONG_NAMES.get(study, {})
    phrase = table.get(variable) or COORDINATES.get(variable, "")
    for end, word in _ENDS.items():
        base = variable.removesuffix(end)
        if not phrase and base != variable and base in table:
            phrase = f"{word} end of the 95 % interval of: {table[base]}"
    text, bracket, unit = phrase.partition(" [")
    found = {"long_name": text} if text else {}
    return found | ({"units": unit.removesuffix("]")} if bracket else {})


def with_long_names(study: str, dataset: xr.Dataset) -> xr.Dataset:
    """The same Dataset, every variable and coordinate that is known with what it is; numbers and the given object untouched."""
    named = dataset.copy(deep=False)
    for name, variable in named.variables.items():
        variable.attrs.update(explained_in(study, str(name)))
    return named
