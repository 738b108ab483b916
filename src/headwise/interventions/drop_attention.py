"""Attention sparsification without training: heads attend without the weights that a rule drops (`kernels.sparsify`).

z is recomputed from q, k and v of the call, block by block, for all heads or for chosen ones. On decode steps the rule
applies to the row of the new token, over all keys in the KV cache.

Cost: that of `kernels.sparsify` per layer; the z of the fused kernel is discarded.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

import torch
from torch import Tensor

from headwise.core.dims import parse_heads
from headwise.interventions.heads import Heads
from headwise.kernels import SparsityRule, row_blocks, sparse_output
from headwise.seam import AttentionCall, Intervention, Structure


class DropAttention(Intervention):
    """Drop attention weights by a rule, and recompute z from the others.

    Args:
        rule: which weights to drop.
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs; None: all heads.

    Examples:
        >>> from headwise.interventions import DropAttention
        >>> from headwise.kernels import SparsityRule
        >>> inputs = model.encode("the old river was the old river")
        >>> with hw.observe(model, DropAttention(SparsityRule("top", 2), heads="L1H4")):
        ...     few = model(**inputs).logits
        >>> bool((few - model(**inputs).logits).abs().max() < 1e-3)  # two weights suffice for this head
        True
    """

    def __init__(self, rule: SparsityRule, heads: Heads | None = None):
        self.rule = rule
        self.heads = None if heads is None else parse_heads(heads)
        self._of_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in dict.fromkeys(self.heads or ()):
            self._of_layer[layer].append(head)

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Refuse heads that the model does not have."""
        structure.require_heads(self.heads or ())

    def change(self, call: AttentionCall) -> Tensor:
        """The new z."""
        if self.heads is not None and call.layer not in self._of_layer:
            return call.z
        blocks = [sparse_output(rows, self.rule.apply(rows), call.v) for rows in row_blocks(call.attention)]
        sparse = torch.cat(blocks, dim=1).to(call.z.dtype)
        if self.heads is None:
            return sparse
        z = call.z.clone()
        chosen = self._of_layer[call.layer]
        z[:, :, chosen] = sparse[:, :, chosen]
        return z
