"""What an attention map looks like, in eight numbers a head and example, from one streamed pass.

With a_ij the weight that token i puts on token j, over all tokens i of an example but the first (which can only look at
itself):

| number       | definition                                                                                        |
|--------------|---------------------------------------------------------------------------------------------------|
| diagonal     | sum of a_ij over |i - j| <= 1, over the sum of all a_ij                                              |
| first        | mean over i of the weight on the first token                                                      |
| peak         | mean over i of the largest weight of the row                                                      |
| off_diagonal | peaks a token: how many a_ij > `row_max` with i - j >= 2 and j not the first token, over the rows       |
| entropy      | mean over rows of the entropy of the row, scaled to sum to 1, over the log of the keys it can see    |
| active       | how many a_ij > `active`, over the pairs that the mask lets see each other                        |
| open         | the same for a_ij > 0: what gates leave; all pairs in a model without gates                       |
| mass         | mean over i of the sum of the row: 1 without gates or learned sinks                               |

The rows of a gated model may sum to less than 1, or to nothing. Then `diagonal` is a share of what is left (NaN where a
head looks nowhere at all), `entropy` is taken over the rows that look anywhere, and the other numbers count such a row
as nought. `uniform` holds the same numbers for a head that looks evenly at all it can see.

Cost: one streamed pass, O(T) numbers a head; no T x T map is made.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import STATISTIC
from headwise.instruments.even import even_head
from headwise.instruments.readings import HeadReadings
from headwise.kernels import AttentionMask, ReductionRequest, Reductions
from headwise.seam import AttentionCall, ForwardContext

NUMBERS = ("diagonal", "first", "peak", "off_diagonal", "entropy", "active", "open", "mass")
OWN, PREVIOUS = (0, 1), (1, 2)  # distances, from the first up to, not including, the second
FIRST, ALL = "patterns.first", "patterns.all"
NOTHING = 1e-30  # a row that sums to less has all its gates closed


class PatternNumbers(HeadReadings):
    """What maps look like: all numbers of the table, and the same for a head that looks evenly.

    Args:
        active: an edge with more weight is active.
        peak: a weight over this, away from the diagonal, is a peak.

    Examples:
        >>> from headwise.instruments import PatternNumbers
        >>> with hw.observe(model, PatternNumbers()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> numbers = seen["pattern_numbers"].sel(layer=1, head=4).isel(example=0)  # an induction head
        >>> {name: round(float(numbers.value.sel(statistic=name)), 2) for name in ("off_diagonal", "peak", "mass")}
        {'off_diagonal': 0.43, 'peak': 0.86, 'mass': 1.0}
    """

    name = "pattern_numbers"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"value": (STATISTIC,), "uniform": (STATISTIC,)}

    def __init__(self, active: float = 0.01, peak: float = 0.3):
        super().__init__()
        self.active, self.peak = float(active), float(peak)
        self._uniform: dict[int, Tensor] = {}

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """The first token of each row is marked; all tokens are, for the sum."""
        real = context.valid
        self._place = real.int().cumsum(dim=1) - 1  # (batch, token): counted from the first real token
        first = real & (self._place == 0)
        self._wanted = ReductionRequest(
            row_max=True, entropy=True, offsets=frozenset([OWN, PREVIOUS]),
            count_above=frozenset([self.active, self.peak, 0.0]),
            key_weights={FIRST: first.float(), ALL: torch.ones_like(first, dtype=torch.float32)},
        )  # fmt: skip
        self._uniform.clear()
        return self._wanted

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer's numbers, (batch, head, statistic)."""
        mask = call.attention.mask
        if id(mask) not in self._uniform:
            self._uniform[id(mask)] = self._numbers(even_head(mask, call.batch, self._wanted), mask, call.batch)
        uniform = self._uniform[id(mask)].expand(-1, call.heads, -1)
        return {"value": self._numbers(call.reductions, mask, call.batch), "uniform": uniform}

    def result(self) -> xr.Dataset:
        """As every reading, with the numbers named."""
        return super().result().assign_coords({STATISTIC: np.array(NUMBERS)})

    def _numbers(self, r: Reductions, mask: AttentionMask, batch: int) -> Tensor:
        """(batch, head, statistic)."""
        sees = mask.n_visible_keys(batch)  # (batch, 1 or head, query)
        counted = mask.valid_queries(batch)[:, None] & (sees > 1)
        assert r.row_max is not None and r.entropy is not None
        mass, first = r.key_weights[ALL], r.key_weights[FIRST]

        def total(rows: Tensor) -> Tensor:
            return torch.where(counted, rows, 0.0).sum(dim=-1)

        rows = counted.sum(dim=-1).clamp(min=1)
        pairs = total(sees).clamp(min=1)
        sums = total(mass)
        looking = counted & r.entropy.isfinite() & (mass > NOTHING)
        spread = torch.where(looking, r.entropy / sees.clamp(min=2).log(), 0.0).sum(dim=-1)
        found = {
            "diagonal": torch.where(sums > NOTHING, total(r.offsets[OWN] + r.offsets[PREVIOUS]) / sums, torch.nan),
            "first": total(first) / rows,
            "peak": total(r.row_max) / rows,
            "off_diagonal": total(self._off_diagonal(r)) / rows,
            "entropy": torch.where(looking.any(dim=-1), spread / looking.sum(dim=-1).clamp(min=1), torch.nan),
            "active": total(r.count_above[self.active]) / pairs,
            "open": total(r.count_above[0.0]) / pairs,
            "mass": sums / rows,
        }
        return torch.stack([found[name].expand_as(sums) for name in NUMBERS], dim=-1)

    def _off_diagonal(self, r: Reductions) -> Tensor:
        """Peaks of each row away from itself, the token before and the first: three different keys from row 2 on."""
        known = (r.offsets[OWN], r.offsets[PREVIOUS], r.key_weights[FIRST])
        elsewhere = r.count_above[self.peak] - torch.stack([(one > self.peak).float() for one in known]).sum(dim=0)
        return torch.where((self._place >= 2)[:, None].to(elsewhere.device), elsewhere, 0.0)
