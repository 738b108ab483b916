"""What would each head lose if attention weights were dropped? Measured per head, with all earlier layers unchanged.

For each rule (see `kernels.sparsify`) and head, over the valid queries of a text:

    kept       share of visible edges whose weight stays above zero
    mass       share of the attention weight that the rule drops, before renormalisation
    change     ||z' - z|| / ||z||, both norms over all tokens of the text
    needed     mean over queries of the smallest number of keys with 99 % of a row's weight (per head, without a rule)

For entmax, which moves weight instead of dropping it, `mass` is the weight of p on keys with zero weight in p'.

Cost: a QK^T product and the rules, block by block; no further forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.core.dims import RULE
from headwise.instruments.readings import HeadReadings
from headwise.kernels.sparsify import SparsityRule, row_blocks, sparse_output
from headwise.seam import AttentionCall

NEEDED_MASS = 0.99  # of a row's weight


class AttentionDropEffects(HeadReadings):
    """The effect of dropping rules on each head alone.

    Args:
        rules: rules that drop weights; several are applied in one pass.

    Examples:
        >>> from headwise.instruments import AttentionDropEffects
        >>> from headwise.kernels import SparsityRule
        >>> with hw.observe(model, AttentionDropEffects([SparsityRule("top", 1)])) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["drop_effects"].mass.sel(layer=0).isel(example=0, rule=0).values.round(2)  # L0H3 attends to one token
        array([0.34, 0.  , 0.25, 0.  , 0.36, 0.23], dtype=float32)
    """

    name = "drop_effects"
    extra_dims = {"kept": (RULE,), "mass": (RULE,), "change": (RULE,), "needed": ()}

    def __init__(self, rules: Sequence[SparsityRule]):
        super().__init__()
        self.rules = tuple(rules)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer, all rules."""
        sums = torch.zeros(4, call.batch, call.heads, len(self.rules), device=call.z.device)  # kept mass change norm
        needed = torch.zeros(call.batch, call.heads, device=call.z.device)
        edges, rows_counted = torch.zeros_like(needed), torch.zeros_like(needed)
        for rows in row_blocks(call.attention):
            valid = call.valid[:, rows.start : rows.stop]  # (batch, query)
            own = valid[:, None, :, None]
            p = rows.weights * own
            edges += (rows.visible & own).expand_as(p).sum(dim=(2, 3))
            rows_counted += valid.sum(1)[:, None]
            needed += _needed(p)
            plain = sparse_output(rows, p, call.v)
            for index, rule in enumerate(self.rules):
                new = rule.apply(rows) * own
                sums[0, :, :, index] += (new > 0).sum(dim=(2, 3))
                sums[1, :, :, index] += p.masked_fill(new > 0, 0.0).sum(dim=(2, 3))
                difference = sparse_output(rows, new, call.v) - plain
                sums[2, :, :, index] += difference.square().sum(dim=(1, 3))
                sums[3, :, :, index] += plain.square().sum(dim=(1, 3))
        total = rows_counted.clamp(min=1)
        return {
            "kept": sums[0] / edges.clamp(min=1)[..., None],
            "mass": sums[1] / total[..., None],
            "change": (sums[2] / sums[3].clamp(min=1e-30)).sqrt(),
            "needed": needed / total,
        }


def _needed(p: Tensor) -> Tensor:
    """(batch, head): sum over rows of the keys needed for `NEEDED_MASS` of the row's weight; 0 for empty rows."""
    ordered = p.sort(dim=-1, descending=True).values.cumsum(dim=-1)
    total = ordered[..., -1:]
    short = (ordered < NEEDED_MASS * total).sum(dim=-1) + 1
    return torch.where(total[..., 0] > 0, short, 0).sum(dim=-1).float()
