"""The studies: each a recipe and a pure function from readings to a map."""

from headwise.studies.answers import AnsweringOptions
from headwise.studies.building import build
from headwise.studies.catalogue import STUDIES
from headwise.studies.circuits import CircuitsOptions
from headwise.studies.function_masking import FunctionMaskingOptions
from headwise.studies.functions import FunctionsOptions
from headwise.studies.patterns import PatternsOptions
from headwise.studies.probing import ProbingOptions
from headwise.studies.profile import ProfileOptions
from headwise.studies.relations import RelationsOptions
from headwise.studies.relations.validation import RelationValidationOptions
from headwise.studies.samples import SamplingOptions
from headwise.studies.sparsity import SparsityOptions
from headwise.studies.spectral import SpectralOptions
from headwise.studies.spectral.scoring import AnswerScorer, Score
from headwise.studies.work import Work

__all__ = [
    "STUDIES", "AnswerScorer", "AnsweringOptions", "CircuitsOptions", "FunctionMaskingOptions", "FunctionsOptions",
    "PatternsOptions", "ProbingOptions", "ProfileOptions", "RelationValidationOptions", "RelationsOptions", "SamplingOptions",
    "Score", "SparsityOptions", "SpectralOptions", "Work", "build",
]  # fmt: skip
