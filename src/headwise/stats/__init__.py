"""Statistics of the whole package, each implemented once: effect sizes, intervals, tests, nulls.

Pure functions on arrays: numpy and scipy, and xarray where a function is about maps with named dims; importable by the
measuring and by the reading half. In reading order:

- ``validation``: labels, groups and named arrays; ``auroc``: the effect size, DeLong's interval and paired test;
- ``intervals``: Student's t, Satterthwaite, Wilson; ``paired_shares``: the change of a share on the same questions;
- ``correlation``: Pearson with a bootstrap interval, Spearman;
- ``multiple_testing``: Benjamini-Hochberg, combined p-values; ``rank_tests``: Mann-Whitney and Wilcoxon, all heads at once;
- ``stratified``: the same within strata, such as topics (van Elteren); ``power``: what difference could have been seen;
- ``conformal``: thresholds with a guarantee; ``reliability``: do probabilities mean what they say; ``drift``: are new answers
  still like those of the calibration;
- ``selective``: the risk of the answers that a score keeps (risk-coverage, PRR), AUPRC; ``ranking``: methods over data sets;
- ``permutation``: shuffled labels; ``blas``: one thread for small matrices.
"""

from headwise.stats.auroc import Auroc, AurocDifference, auroc, auroc_by_fold, auroc_rows, delong_test
from headwise.stats.conformal import Threshold, false_alarm_threshold, risk_threshold
from headwise.stats.correlation import Correlation, correlation, correlation_table, rank_vectors, spearman
from headwise.stats.drift import Drift, Shift, drift_test
from headwise.stats.intervals import (
    grouped_share_interval,
    mean_interval,
    mean_of_intervals,
    sum_of_means_half_width,
    t_half_width,
    wilson_interval,
)
from headwise.stats.multiple_testing import benjamini_hochberg, combine_ranks
from headwise.stats.paired_shares import ShareChange, share_change
from headwise.stats.permutation import ShuffleTest, permutation_null, rank_p, shuffle_test
from headwise.stats.power import minimum_detectable_auroc, minimum_detectable_gain, minimum_detectable_share
from headwise.stats.rank_tests import mann_whitney_maps, paired_changes
from headwise.stats.ranking import Ranking, friedman_nemenyi
from headwise.stats.reliability import Reliability, reliability
from headwise.stats.selective import MetricInterval, RiskCoverage, auprc, risk_coverage
from headwise.stats.stratified import auroc_within, van_elteren_maps

__all__ = [
    "Auroc", "AurocDifference", "Correlation", "Drift", "MetricInterval", "Ranking", "Reliability", "RiskCoverage",
    "ShareChange", "Shift", "ShuffleTest", "Threshold", "auprc", "auroc", "auroc_by_fold", "auroc_rows",
    "auroc_within", "benjamini_hochberg", "combine_ranks", "correlation", "correlation_table", "delong_test",
    "drift_test", "false_alarm_threshold", "friedman_nemenyi", "grouped_share_interval", "mann_whitney_maps",
    "mean_interval", "mean_of_intervals", "minimum_detectable_auroc", "minimum_detectable_gain",
    "minimum_detectable_share", "paired_changes", "permutation_null", "rank_p", "rank_vectors", "reliability",
    "risk_coverage", "risk_threshold", "share_change", "shuffle_test", "spearman", "sum_of_means_half_width",
    "t_half_width", "van_elteren_maps", "wilson_interval",
]  # fmt: skip
