"""Many logistic regressions at once: the same probe at hundreds of cells (layer x token), all folds together.

    fits = fit_cells(features, wrong, folds)       # features (cell, row, feature): one map
    fits.auroc.mean(axis=-1)                       # (cell,): the map
    null = fit_cells(features, permuted_labels(wrong, folds, sets=20), folds).auroc.mean(axis=-1)    # (set, cell)

In reading order:

- ``problems``: features shifted and scaled, the problems of all folds, and the products that they share;
- ``solver``: conjugate gradients, preconditioned by the directions in which the loss is most curved;
- ``parallel_map``: one block per core; ``cells``: all cells, in blocks that fit into memory; ``probe``: one probe, as a
  scikit-learn estimator.
"""

from headwise.probes.batched_logistic.cells import CellFits, fit_cells
from headwise.probes.batched_logistic.probe import LogisticProbe

__all__ = ["CellFits", "LogisticProbe", "fit_cells"]
