"""Streamed reductions of attention weights: one contract, several ways to compute it.

`reference` builds the T x T map and is what the others are tested against. `blocked` streams over blocks of rows in
plain torch, on any device.
"""

from headwise.kernels.attention import Attention
from headwise.kernels.blocked import reduce
from headwise.kernels.contract import Pairs, Reductions, Wanted
from headwise.kernels.visibility import Visibility

__all__ = ["Attention", "Pairs", "Reductions", "Visibility", "Wanted", "reduce"]
