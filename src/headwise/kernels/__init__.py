"""Streamed reductions of attention weights: one contract, several ways to compute it.

`reference` builds the T x T map and is what the others are tested against. `blocked` streams over blocks of rows in
plain torch, on any device; `fused` does the same with Triton (kernels in `tiles`, `column_tiles`, `row_tiles`), and `choice`
takes it on a GPU. `dropping` makes z anew with weights left out; `norms` tells how long what a head writes is. Beside them, two
reductions of weights: `ranks` (is a target among the k tokens that a head maps a source to?) and `salience` (which tokens
does a head act on most?).
"""

from headwise.kernels.attention import Attention
from headwise.kernels.choice import reduce
from headwise.kernels.contract import Match, ReductionRequest, Reductions
from headwise.kernels.dropping import Dropping, dropped_output, row_blocks
from headwise.kernels.mask import AttentionMask
from headwise.kernels.norms import Gram
from headwise.kernels.ranks import Asked, Hits, hits, written
from headwise.kernels.salience import salience, top_targets

__all__ = [
    "Asked",
    "Attention",
    "AttentionMask",
    "Dropping",
    "Gram",
    "Hits",
    "Match",
    "ReductionRequest",
    "Reductions",
    "dropped_output",
    "hits",
    "reduce",
    "row_blocks",
    "salience",
    "top_targets",
    "written",
]  # fmt: skip
