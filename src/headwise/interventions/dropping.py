"""Drop: heads attend with some of their weights left out, by a rule, without training (see `kernels.dropping`).

    with observe(model, Drop(Dropping("top", 16))):
        model(**inputs)

z is made anew from q, k and v of the call, block by block. All heads, or chosen ones; a head that is not chosen keeps
its z. On decode steps the rule works on the row of the new token, over all keys in the cache.

Cost: that of `kernels.dropping`, a layer at a time; the fused kernel's z is thrown away.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

import torch
from torch import Tensor

from headwise.core.dims import parse_heads
from headwise.interventions.heads import Heads
from headwise.kernels import Dropping, dropped_output, row_blocks
from headwise.seam import AttentionCall, Intervention, Structure


class Drop(Intervention):
    """Let heads attend with some of their weights left out: z -> z of the weights that a rule leaves.

    Args:
        rule: which weights go.
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs; None: all heads.

    Examples:
        >>> from headwise.interventions import Drop
        >>> from headwise.kernels import Dropping
        >>> inputs = model.encode("the old river was the old river")
        >>> with hw.observe(model, Drop(Dropping("top", 2), heads="L1H4")):
        ...     few = model(**inputs).logits
        >>> bool((few - model(**inputs).logits).abs().max() < 1e-3)  # two weights are all this head needs
        True
    """

    def __init__(self, rule: Dropping, heads: Heads | None = None):
        self.rule = rule
        self.heads = None if heads is None else parse_heads(heads)
        self._of_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in dict.fromkeys(self.heads or ()):
            self._of_layer[layer].append(head)

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Refuse heads that the model does not have, before it runs."""
        structure.require_heads(self.heads or ())

    def change(self, call: AttentionCall) -> Tensor:
        """The new z."""
        if self.heads is not None and call.layer not in self._of_layer:
            return call.z
        blocks = [dropped_output(rows, self.rule.apply(rows), call.v) for rows in row_blocks(call.attention)]
        made = torch.cat(blocks, dim=1).to(call.z.dtype)
        if self.heads is None:
            return made
        z = call.z.clone()
        chosen = self._of_layer[call.layer]
        z[:, :, chosen] = made[:, :, chosen]
        return z
