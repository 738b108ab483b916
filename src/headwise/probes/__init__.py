"""Classifiers on what was measured: does it separate wrong answers from right ones, judged on answers not seen in fitting?"""

from headwise.probes.detector import Detector
from headwise.probes.features import KS, with_noise
from headwise.probes.table import TableOptions, compare_rows, detector_table

__all__ = ["KS", "Detector", "TableOptions", "compare_rows", "detector_table", "with_noise"]
