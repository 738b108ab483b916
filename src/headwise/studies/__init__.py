"""The studies: each a recipe and a pure function from readings to a map."""

from headwise.studies.building import STUDIES, build
from headwise.studies.profile import ProfileOptions
from headwise.studies.spectral.scoring import AnswerScorer
from headwise.studies.work import Work

__all__ = ["STUDIES", "AnswerScorer", "ProfileOptions", "Work", "build"]
