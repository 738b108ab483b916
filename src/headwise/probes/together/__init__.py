"""Many probes at once: the same regularised logistic regression at hundreds of cells (layer x token), all folds together.

    fits = fit_cells(features, wrong, folds)       # features (cell, row, feature): one map
    fits.auroc.mean(axis=-1)                       # (cell,): the map
    null = fit_cells(features, permuted_labels(wrong, folds, sets=20), folds).auroc.mean(axis=-1)    # (set, cell)

This folder needs torch, and `import headwise.probes` does not load it: import what you need from here. In reading order:

- ``points``: the features of some cells, shifted and scaled; ``sketch``: the directions in which they vary most;
- ``shares``: the list of problems, and products that the problems of a cell make together; ``line``: the lowest point on a
  line; ``descent``: the solver;
- ``workers``: blocks side by side; ``cells``: all cells, in blocks that fit into memory; ``probe``: one probe, to keep and
  to apply.
"""

from headwise.probes.together.cells import CellFits, fit_cells
from headwise.probes.together.probe import Probe

__all__ = ["CellFits", "Probe", "fit_cells"]
