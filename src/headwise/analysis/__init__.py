"""Cross-study analysis: one head in all studies, heads against heads, studies against studies, atlas against atlas.

In reading order: ``columns`` (what each study says of a head as a number), ``neighbours``, ``head_facts`` and
``report_builder`` (everything known of one head), ``permutation`` and ``study_agreement`` (do studies agree?),
``known_heads`` (does it find published heads?), ``comparison`` (what changed between two atlases?), ``drift_log`` and
``drift`` (has a log of scored answers drifted?), ``training_course`` (when did heads emerge in training?),
``detection_benchmark`` and ``benchmark_display`` (which score finds wrong answers, on several question sets?). Pure functions
from an atlas, or a log, to Datasets or dataclasses, figures and descriptions, without torch. Names are loaded when first used:
a report on one head does not load the comparison of atlases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:  # for editors, type checkers and the reference; at run time `__getattr__` loads them
    from headwise.analysis.agreement_display import agreement_figure, describe_agreement
    from headwise.analysis.benchmark_display import benchmark_figures, describe_benchmark
    from headwise.analysis.columns import Column, Columns, columns_of, default_columns, percentiles, with_percentiles
    from headwise.analysis.comparison import Comparison, compare
    from headwise.analysis.comparison_display import comparison_figure, describe_comparison
    from headwise.analysis.detection_benchmark import DetectionBenchmark, pooled_benchmark
    from headwise.analysis.drift import DriftReport, describe_drift, drift_report
    from headwise.analysis.drift_log import AnswerLog, read_log, reference_of
    from headwise.analysis.head_facts import HeadReport
    from headwise.analysis.head_text import describe_head
    from headwise.analysis.neighbours import Neighbour, Neighbourhood
    from headwise.analysis.report_builder import HeadReports, head_report, head_reports
    from headwise.analysis.study_agreement import Agreement, agreement
    from headwise.analysis.training_course import Course, Emergence, HeadEmergence, Order, emergence
    from headwise.analysis.training_display import describe_emergence, emergence_figure

AGREEMENT = "agreement"  # what ``show`` and ``describe`` call it; no study has this name

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".study_agreement": "Agreement agreement",
        ".agreement_display": "agreement_figure describe_agreement",
        ".columns": "Column Columns columns_of default_columns percentiles with_percentiles",
        ".comparison": "Comparison compare",
        ".comparison_display": "comparison_figure describe_comparison",
        ".benchmark_display": "benchmark_figures describe_benchmark",
        ".detection_benchmark": "DetectionBenchmark pooled_benchmark",
        ".drift": "DriftReport describe_drift drift_report",
        ".drift_log": "AnswerLog read_log reference_of",
        ".training_course": "Course Emergence HeadEmergence Order emergence",
        ".training_display": "describe_emergence emergence_figure",
        ".head_facts": "HeadReport",
        ".head_text": "describe_head",
        ".neighbours": "Neighbour Neighbourhood",
        ".report_builder": "HeadReports head_report head_reports",
    },
)

__all__ = [
    "AGREEMENT", "Agreement", "AnswerLog", "Column", "Columns", "Comparison", "Course", "DetectionBenchmark",
    "DriftReport", "Emergence", "HeadEmergence", "HeadReport", "HeadReports", "Neighbour", "Neighbourhood", "Order",
    "agreement", "agreement_figure", "benchmark_figures", "columns_of", "compare", "comparison_figure",
    "default_columns", "describe_agreement", "describe_benchmark", "describe_comparison", "describe_drift",
    "describe_emergence", "describe_head", "drift_report", "emergence", "emergence_figure", "head_report",
    "head_reports", "percentiles", "pooled_benchmark", "read_log", "reference_of", "with_percentiles",
]  # fmt: skip
