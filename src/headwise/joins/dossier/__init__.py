"""Everything known of one head, all studies joined: ``facts`` (the data), ``dossiers`` (how they are made), ``words``."""

from headwise.joins.dossier.dossiers import Dossiers, dossier, dossiers
from headwise.joins.dossier.facts import (
    Dossier,
    FunctionFact,
    MaskingFact,
    PatternFact,
    PatternMaps,
    RelationFact,
    SalientToken,
    Value,
    View,
)
from headwise.joins.dossier.words import dossier_words

__all__ = [
    "Dossier", "Dossiers", "FunctionFact", "MaskingFact", "PatternFact", "PatternMaps", "RelationFact", "SalientToken",
    "Value", "View", "dossier", "dossier_words", "dossiers",
]  # fmt: skip
