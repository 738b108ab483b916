"""Does the model itself hold its answer for true? p(True), asked in the next turn.

    score = 1 - P(True) / (P(True) + P(False))

Kadavath et al. (arXiv 2207.05221) ask in a new prompt, with several sampled answers to compare with; here the question follows
the answer in the next turn, without samples (`studies.probing.reading.SelfJudgement`), which one more pass can read. Small
models often answer True to everything: the order of the answers counts, not the number.

Readings: ``p_true`` (example,).
"""

from __future__ import annotations

import xarray as xr

from headwise.scores.score import Publication, score


@score(
    "p(True)",
    needs=("p_true",),
    cost="p(True)",
    paper=Publication(
        "Kadavath et al. 2022, Language Models (Mostly) Know What They Know", "https://arxiv.org/abs/2207.05221"
    ),
)
def p_true(readings: xr.Dataset) -> xr.DataArray:
    """One minus the probability of True.

    >>> p_true(xr.Dataset({"p_true": ("example", [0.75, 0.5])}))
    array([0.25, 0.5 ])
    """
    return 1 - readings["p_true"]
