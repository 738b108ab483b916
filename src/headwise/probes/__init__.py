"""Classifiers on what was measured: do they separate wrong answers from right ones, on answers they were not fitted on?

Pure functions and estimators on arrays; no model is known here. In reading order:

- ``batched_logistic``: the logistic solver, for many probes at once; ``linear``: PCA and logistic regression as one function;
- ``features``, ``crossvalidation``, ``stacking``, ``estimator``, ``detector``, ``detector_file``: the detector;
- ``generalisation``, ``table_rows``, ``table``: the table of detectors;
- ``one_step``, ``cell_maps``: maps of probes and their null, also within strata; ``joint``: one classifier over all heads.
"""

from headwise.probes.batched_logistic import LogisticProbe
from headwise.probes.detector import Detector
from headwise.probes.features import KS, with_noise
from headwise.probes.table import TableOptions, compare_rows, detector_table

__all__ = ["KS", "Detector", "LogisticProbe", "TableOptions", "compare_rows", "detector_table", "with_noise"]
