"""Statistics and classifiers on what was measured: does it tell wrong answers from right ones, and how sure is that?

Pure functions on arrays; numpy, scipy, scikit-learn, xarray. Neither torch nor a model is known here. In reading order:

- ``labels``, ``features``: what comes in; ``auroc``: the one effect size, with its interval;
- tests: ``multiplicity``, ``differences`` (all heads at once), ``permutation`` (if labels meant nothing), ``matching``
  (pairs of like length);
- the detector: ``threads``, ``components``, ``logistic``, ``classifier``, ``crossvalidation``, ``calibration``,
  ``stacking``, ``block``, ``detector_file``, ``detector``;
- the table: ``published`` (the paper's way), ``curves``, ``transfer``, ``rows``, ``table``.
"""

from headwise.probes.auroc import Auroc, Difference, auroc
from headwise.probes.detector import Detector
from headwise.probes.differences import differences
from headwise.probes.features import KS, with_noise
from headwise.probes.matching import Matched, match_lengths
from headwise.probes.multiplicity import benjamini_hochberg, combine_ranks
from headwise.probes.permutation import permutation_null
from headwise.probes.table import TableOptions, compare_rows, detector_table

__all__ = [
    "KS", "Auroc", "Detector", "Difference", "Matched", "TableOptions", "auroc", "benjamini_hochberg", "combine_ranks",
    "compare_rows", "detector_table", "differences", "match_lengths", "permutation_null", "with_noise",
]  # fmt: skip
