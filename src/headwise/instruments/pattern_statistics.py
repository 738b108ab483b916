"""What shape has an attention map? Eight statistics per head and example, from one streamed pass.

With a_ij the weight of query i on key j, over all tokens i of an example except the first (which can only attend to
itself):

| statistic    | definition                                                                                        |
|--------------|---------------------------------------------------------------------------------------------------|
| diagonal     | sum of a_ij over |i - j| <= 1, over the sum of all a_ij                                              |
| first        | mean over i of the weight on the first token                                                      |
| peak         | mean over i of the largest weight of the row                                                      |
| off_diagonal | peaks per token: number of a_ij > `peak` with i - j >= 2 and j not the first token, over the rows  |
| entropy      | mean over rows of the entropy of the normalised row, over the log of its visible keys             |
| active       | number of a_ij > `active`, over the visible pairs                                                 |
| open         | the same for a_ij > 0: open gates; all pairs in a model without gates                             |
| mass         | mean over i of the sum of the row: 1 without gates or learned sinks                               |

The rows of a gated model may sum to less than 1, or to zero. Then `diagonal` is a share of the remaining weight (NaN if a
head has no open gate at all), `entropy` is averaged over rows with open gates, and the other statistics count a closed row
as zero. `uniform` has the same statistics for uniform attention over the visible keys.

Cost: one streamed pass, O(T) numbers per head; no T x T map is materialised.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import STATISTIC
from headwise.instruments.readings import HeadReadings, uniform_head
from headwise.kernels import AttentionMask, ReductionRequest, Reductions
from headwise.seam import AttentionCall, ForwardContext

PATTERN_STATISTICS = ("diagonal", "first", "peak", "off_diagonal", "entropy", "active", "open", "mass")
OWN, PREVIOUS = (0, 1), (1, 2)  # half-open intervals of distances
FIRST, ALL = "patterns.first", "patterns.all"
MIN_MASS = 1e-30  # a row with less has all its gates closed


class PatternStatistics(HeadReadings):
    """The shape of attention maps: all statistics of the table, and their values for uniform attention.

    Args:
        active: an edge with more weight is active.
        peak: a larger weight, away from the diagonal, is a peak.

    Examples:
        >>> from headwise.instruments import PatternStatistics
        >>> with hw.observe(model, PatternStatistics()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> numbers = seen["pattern_statistics"].sel(layer=1, head=4).isel(example=0)  # an induction head
        >>> {name: round(float(numbers.value.sel(statistic=name)), 2) for name in ("off_diagonal", "peak", "mass")}
        {'off_diagonal': 0.43, 'peak': 0.86, 'mass': 1.0}
    """

    name = "pattern_statistics"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"value": (STATISTIC,), "uniform": (STATISTIC,)}

    def __init__(self, active: float = 0.01, peak: float = 0.3):
        super().__init__()
        self.active, self.peak = float(active), float(peak)
        self._uniform: dict[int, Tensor] = {}

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Row statistics, counts above thresholds, and the weight on the first token and on all tokens."""
        real = context.valid
        self._position = real.int().cumsum(dim=1) - 1  # (batch, token): counted from the first real token
        first = real & (self._position == 0)
        self._request = ReductionRequest(
            row_max=True, entropy=True, offsets=frozenset([OWN, PREVIOUS]),
            count_above=frozenset([self.active, self.peak, 0.0]),
            key_weights={FIRST: first.float(), ALL: torch.ones_like(first, dtype=torch.float32)},
        )  # fmt: skip
        self._uniform.clear()
        return self._request

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer's statistics, (batch, head, statistic)."""
        mask = call.attention.mask
        if id(mask) not in self._uniform:
            self._uniform[id(mask)] = self._statistics(uniform_head(mask, call.batch, self._request), mask, call.batch)
        uniform = self._uniform[id(mask)].expand(-1, call.heads, -1)
        return {"value": self._statistics(call.reductions, mask, call.batch), "uniform": uniform}

    def result(self) -> xr.Dataset:
        """The readings, with the statistics as a coordinate."""
        return super().result().assign_coords({STATISTIC: np.array(PATTERN_STATISTICS)})

    def _statistics(self, r: Reductions, mask: AttentionMask, batch: int) -> Tensor:
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
        open_rows = counted & r.entropy.isfinite() & (mass > MIN_MASS)
        entropy = torch.where(open_rows, r.entropy / sees.clamp(min=2).log(), 0.0).sum(dim=-1)
        found = {
            "diagonal": torch.where(sums > MIN_MASS, total(r.offsets[OWN] + r.offsets[PREVIOUS]) / sums, torch.nan),
            "first": total(first) / rows,
            "peak": total(r.row_max) / rows,
            "off_diagonal": total(self._off_diagonal(r)) / rows,
            "entropy": torch.where(open_rows.any(dim=-1), entropy / open_rows.sum(dim=-1).clamp(min=1), torch.nan),
            "active": total(r.count_above[self.active]) / pairs,
            "open": total(r.count_above[0.0]) / pairs,
            "mass": sums / rows,
        }
        return torch.stack([found[name].expand_as(sums) for name in PATTERN_STATISTICS], dim=-1)

    def _off_diagonal(self, r: Reductions) -> Tensor:
        """Peaks of each row except on itself, the previous and the first token: three distinct keys from row 2 on."""
        known = (r.offsets[OWN], r.offsets[PREVIOUS], r.key_weights[FIRST])
        elsewhere = r.count_above[self.peak] - torch.stack([(one > self.peak).float() for one in known]).sum(dim=0)
        return torch.where((self._position >= 2)[:, None].to(elsewhere.device), elsewhere, 0.0)
