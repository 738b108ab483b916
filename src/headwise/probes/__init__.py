"""Statistics and classifiers on what was measured: does it tell wrong answers from right ones, and how sure is that?

Pure functions on arrays; numpy, scipy, scikit-learn, xarray. No model is known here, and `import headwise.probes` loads no
torch: what needs it (the last line) is imported by its own name. In reading order:

- ``labels``, ``features``: what comes in; ``auroc``: the one effect size, with its interval;
- tests: ``multiplicity``, ``differences`` (all heads at once), ``permutation`` (if labels meant nothing), ``matching``
  (pairs of like length), ``paired`` (the same examples twice), ``proportions`` (the interval of a share),
  ``summed_means`` (that of a value made of several means),
  ``correlation`` (of two maps of the heads);
- the detector: ``threads``, ``components``, ``logistic``, ``classifier``, ``crossvalidation``, ``calibration``,
  ``stacking``, ``block``, ``detector_file``, ``detector``;
- the table: ``published`` (the paper's way), ``curves``, ``transfer``, ``rows``, ``table``;
- maps of probes: ``topic_groups``; with torch ``together`` (many probes at once), ``one_step`` (their null), ``cell_maps``.
"""

from headwise.probes.auroc import Auroc, Difference, auroc
from headwise.probes.correlation import Correlation, correlation, correlation_table
from headwise.probes.detector import Detector
from headwise.probes.differences import differences
from headwise.probes.features import KS, with_noise
from headwise.probes.matching import Matched, match_lengths
from headwise.probes.multiplicity import benjamini_hochberg, combine_ranks
from headwise.probes.paired import interval_of_mean, paired_changes
from headwise.probes.permutation import permutation_null
from headwise.probes.proportions import wilson
from headwise.probes.summed_means import half_width
from headwise.probes.table import TableOptions, compare_rows, detector_table

__all__ = [
    "KS", "Auroc", "Correlation", "Detector", "Difference", "Matched", "TableOptions", "auroc", "benjamini_hochberg",
    "combine_ranks", "compare_rows", "correlation", "correlation_table", "detector_table", "differences", "half_width",
    "interval_of_mean", "match_lengths", "paired_changes", "permutation_null", "wilson", "with_noise",
]  # fmt: skip
