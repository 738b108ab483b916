"""What would the paper have reported? Its own protocol, for comparison only.

One stratified split, 80 % to fit and 20 % to test; every candidate (k, or the layer of a hidden state) is fitted, and
**the one that is best on the test set is reported**. That is optimistic: the maximum over candidates of a number with a
standard error of .03-.06. On pure noise (500 answers, five k, 60 draws) it gives .534 on average, where
``crossvalidation`` gives .50.

Source: Binkowski et al., arXiv 2502.17598. Cost: one fit a candidate. This module does not know what the candidates
mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from headwise.probes.classifier import fit
from headwise.stats import Auroc, auroc
from headwise.stats.validation import Labels

__all__ = ["Published", "paper"]


class Published(NamedTuple):
    """The result of the paper's protocol. Optimistic: the choice was made on the test set."""

    auroc: float
    low: float
    high: float
    """ends of the 95 % interval, which does not know of the choice"""
    choice: int
    """the candidate that was best on the test set"""
    per_candidate: dict[int, float]
    """candidate -> test AUROC"""


def paper(candidates: Iterable[tuple[int, NDArray[np.float64]]], labels: Labels, *, seed: int = 0) -> Published:
    """One 80/20 split, the candidate (a name and its points) chosen on the test set, as published."""
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    found: dict[int, Auroc] = {}
    for name, points in candidates:
        linear = fit(points[train], labels[train])
        found[name] = auroc(linear(points[test]), labels[test])
    best = max(found, key=lambda name: float(found[name].value))
    chosen = found[best]
    per_candidate = {name: float(area.value) for name, area in found.items()}
    return Published(float(chosen.value), float(chosen.low), float(chosen.high), best, per_candidate)
