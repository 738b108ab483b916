"""Do studies agree? ``headsets`` (which heads each names), ``evidence`` (the test), ``agreement``, ``figure``, ``words``."""

from headwise.joins.agreement.agreement import agreement, agreement_of
from headwise.joins.agreement.figure import agreement_figure
from headwise.joins.agreement.page import AGREEMENT, agreement_drawn
from headwise.joins.agreement.result import Agreement, Pair, SetFact
from headwise.joins.agreement.words import agreement_words

__all__ = [
    "AGREEMENT",
    "Agreement",
    "Pair",
    "SetFact",
    "agreement",
    "agreement_drawn",
    "agreement_figure",
    "agreement_of",
    "agreement_words",
]
