"""What would each head lose by dropping weights? Asked of every head as it is, with everything before it untouched.

For each rule (see `kernels.dropping`) and head, over the counting queries of a text:

    kept       share of visible edges whose weight stays above nought
    mass       share of the attention weight that the rule drops, before any scaling
    change     ||z' - z|| / ||z||, both norms over all tokens of the text
    needed     mean over queries of the least number of keys that hold 99 % of a row's weight (one number a head, no rule)

For entmax, which moves weight rather than drops it, `mass` is what p had on keys that p' has not.

Cost: a QK^T product, and what the rules cost, block by block; no pass beyond the plain one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.core.dims import RULE
from headwise.instruments.readings import HeadReadings
from headwise.kernels import Dropping, dropped_output, row_blocks
from headwise.seam import AttentionCall

ENOUGH = 0.99  # of a row's weight


class Dropped(HeadReadings):
    """What rules would do to each head alone.

    Args:
        rules: ways to drop weights; several are tried in one pass.

    Examples:
        >>> from headwise.instruments import Dropped
        >>> from headwise.kernels import Dropping
        >>> with hw.observe(model, Dropped([Dropping("top", 1)])) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["dropped"].mass.sel(layer=0).isel(example=0, rule=0).values.round(2)  # L0H3 looks at one token only
        array([0.34, 0.  , 0.25, 0.  , 0.36, 0.23], dtype=float32)
    """

    name = "dropped"
    extra_dims = {"kept": (RULE,), "mass": (RULE,), "change": (RULE,), "needed": ()}

    def __init__(self, rules: Sequence[Dropping]):
        super().__init__()
        self.rules = tuple(rules)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer, all rules."""
        sums = torch.zeros(4, call.batch, call.heads, len(self.rules), device=call.z.device)  # kept mass moved norm
        needed = torch.zeros(call.batch, call.heads, device=call.z.device)
        edges, rows_counted = torch.zeros_like(needed), torch.zeros_like(needed)
        for rows in row_blocks(call.attention):
            counts = call.valid[:, rows.start : rows.stop]  # (batch, query)
            count = counts[:, None, :, None]
            p = rows.weights * count
            edges += (rows.seen & count).expand_as(p).sum(dim=(2, 3))
            rows_counted += counts.sum(1)[:, None]
            needed += _needed(p)
            plain = dropped_output(rows, p, call.v)
            for place, rule in enumerate(self.rules):
                new = rule.apply(rows) * count
                sums[0, :, :, place] += (new > 0).sum(dim=(2, 3))
                sums[1, :, :, place] += p.masked_fill(new > 0, 0.0).sum(dim=(2, 3))
                moved = dropped_output(rows, new, call.v) - plain
                sums[2, :, :, place] += moved.square().sum(dim=(1, 3))
                sums[3, :, :, place] += plain.square().sum(dim=(1, 3))
        total = rows_counted.clamp(min=1)
        return {
            "kept": sums[0] / edges.clamp(min=1)[..., None],
            "mass": sums[1] / total[..., None],
            "change": (sums[2] / sums[3].clamp(min=1e-30)).sqrt(),
            "needed": needed / total,
        }


def _needed(p: Tensor) -> Tensor:
    """(batch, head): sum over rows of the keys needed for enough of the row's weight; nothing for empty rows."""
    ordered = p.sort(dim=-1, descending=True).values.cumsum(dim=-1)
    total = ordered[..., -1:]
    short = (ordered < ENOUGH * total).sum(dim=-1) + 1
    return torch.where(total[..., 0] > 0, short, 0).sum(dim=-1).float()
