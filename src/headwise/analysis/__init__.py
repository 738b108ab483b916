"""Cross-study analysis: one head in all studies, heads against heads, studies against studies, atlas against atlas.

In reading order: ``columns`` (what each study says of a head as a number), ``neighbours``, ``head_facts`` and
``report_builder`` (everything known of one head), ``permutation`` and ``agreement`` (do studies agree?), ``comparison`` (what
changed between two atlases?). Pure functions from an atlas to dataclasses, figures and descriptions, without torch.
"""

from headwise.analysis.agreement import AGREEMENT, Agreement, agreement
from headwise.analysis.agreement_display import agreement_figure, describe_agreement
from headwise.analysis.columns import Column, Columns, columns_of, default_columns, percentiles, with_percentiles
from headwise.analysis.comparison import Comparison, compare
from headwise.analysis.comparison_panels import comparison_figure
from headwise.analysis.comparison_words import describe_comparison
from headwise.analysis.head_facts import HeadReport
from headwise.analysis.head_text import describe_head
from headwise.analysis.neighbours import Neighbour, Neighbourhood
from headwise.analysis.report_builder import HeadReports, head_report, head_reports

__all__ = [
    "AGREEMENT", "Agreement", "Column", "Columns", "Comparison", "HeadReport", "HeadReports", "Neighbour", "Neighbourhood",
    "agreement", "agreement_figure", "columns_of", "compare", "comparison_figure", "default_columns", "describe_agreement",
    "describe_comparison", "describe_head", "head_report", "head_reports", "percentiles", "with_percentiles",
]  # fmt: skip
