"""The Schemas of the studies Headwise knows, one file a study. A study that is not here is held only to what holds for all.

This folder does not know how any study is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from headwise.atlas.schema import Schema
from headwise.atlas.schemas.answers import ANSWERS
from headwise.atlas.schemas.circuits import CIRCUITS
from headwise.atlas.schemas.detection import DETECTION
from headwise.atlas.schemas.function_masking import FUNCTION_MASKING
from headwise.atlas.schemas.functions import FUNCTIONS
from headwise.atlas.schemas.patterns import PATTERNS
from headwise.atlas.schemas.probing import PROBING
from headwise.atlas.schemas.profile import PROFILE
from headwise.atlas.schemas.relation_validation import RELATION_VALIDATION
from headwise.atlas.schemas.relations import RELATIONS, SALIENCE
from headwise.atlas.schemas.samples import SAMPLES
from headwise.atlas.schemas.sparsity import SPARSITY
from headwise.atlas.schemas.spectral import SPECTRAL
from headwise.core.provenance import Provenance

__all__ = ["SCHEMAS", "schema_of"]

SCHEMAS: Mapping[str, Schema] = {
    schema.study: schema
    for schema in (
        PROFILE,
        ANSWERS,
        SPECTRAL,
        DETECTION,
        PROBING,
        RELATIONS,
        SALIENCE,
        RELATION_VALIDATION,
        SAMPLES,
        FUNCTIONS,
        FUNCTION_MASKING,
        PATTERNS,
        CIRCUITS,
        SPARSITY,
    )
}


def schema_of(study: str, dataset: xr.Dataset) -> Schema:
    """The Schema to hold a Dataset to: the study's own, or for a study not listed here one without demands."""
    known = SCHEMAS.get(study)
    return known or Schema(study, version=Provenance.from_attrs(dataset.attrs).study_version, variables={})
