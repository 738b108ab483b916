"""Streamed reductions of attention weights: one contract, several implementations.

`contract` defines the reductions. `reference` builds the T x T map and is what the others are tested against. `blocked` streams
over blocks of rows in plain torch, on any device; `fused` does the same with Triton kernels (`triton_reductions`,
`triton_rows`, `sorted_match`), and `dispatch` chooses it on a GPU. `gated` is the attention of sparse models, `sparsify` leaves
out attention weights, `norms` are the norms of head outputs, and `ov_logits` reads weights alone: which tokens a head maps a
source token to, and which it acts on most.
"""

from headwise.kernels.attention import Attention, AttentionMask
from headwise.kernels.contract import Match, ReductionRequest, Reductions
from headwise.kernels.dispatch import reduce
from headwise.kernels.norms import Gram
from headwise.kernels.ov_logits import RankQuery, TopkHits, ov_logit_blocks, salience, top_targets, topk_hits
from headwise.kernels.sparsify import SparsityRule, row_blocks, sparse_output

__all__ = [
    "Attention", "AttentionMask", "Gram", "Match", "RankQuery", "ReductionRequest", "Reductions", "SparsityRule", "TopkHits",
    "ov_logit_blocks", "reduce", "row_blocks", "salience", "sparse_output", "top_targets", "topk_hits",
]  # fmt: skip
