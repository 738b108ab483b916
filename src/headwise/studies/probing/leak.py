"""What does it gain to find the exact answer with the label in hand? Published spans against label-blind ones.

At each of the four exact-answer tokens, averaged over layers: the AUROC with published spans minus that with label-blind
ones, on the same answers and folds, with DeLong's paired interval of the difference at the layer that is best with the
label-blind spans (a mean over layers has no simple interval). A difference above 0 is what the leak is worth, or what
better spans are worth: the two cannot be told apart here, which is why label-blind spans are the default.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.stats import auroc_by_fold, delong_test
from headwise.studies.probing.maps import Probed
from headwise.studies.probing.positions import EXACT, POSITIONS

__all__ = ["leak_of"]


def leak_of(probed: Probed, wrong: NDArray[np.bool_], fold_of: NDArray[np.int64]) -> dict[str, Any]:
    """By exact-answer token: both means over layers, their difference, and the paired one at the best layer."""
    cells = next(iter(probed.sites.values()))
    width, tokens = len(EXACT), len(POSITIONS)
    layers = cells.value.size // tokens
    found: dict[str, Any] = {}
    for place, name in enumerate(EXACT):
        blind = cells.value.reshape(layers, tokens)[:, POSITIONS.index(name)]
        published = probed.published.value.reshape(layers, width)[:, place]
        if not np.isfinite(blind).any():
            continue
        best = int(np.nanargmax(blind))
        scores = (
            probed.published.score.reshape(layers, width, -1)[best, place],
            cells.score.reshape(layers, tokens, -1)[best, POSITIONS.index(name)],
        )
        one, other = (auroc_by_fold(score, wrong, fold_of)[0] for score in scores)
        apart = delong_test(one, other)
        found[name] = {
            "blind": float(np.nanmean(blind)),
            "published": float(np.nanmean(published)),
            "difference": float(np.nanmean(published - blind)),
            "layer": best,
            "at_layer": apart.value,
            "low": apart.low,
            "high": apart.high,
            "p": apart.p,
        }
    return found
