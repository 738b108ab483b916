"""What changed between two atlases? ``matching`` (may they be compared?), ``pairing`` (the noise), ``changes``, and so on."""

from headwise.joins.comparison.comparison import compare
from headwise.joins.comparison.figure import comparison_figure
from headwise.joins.comparison.result import ColumnChange, Comparison, DepthChange, StudyMatch
from headwise.joins.comparison.words import comparison_words

__all__ = [
    "ColumnChange", "Comparison", "DepthChange", "StudyMatch", "compare", "comparison_figure", "comparison_words",
]  # fmt: skip
