"""What shape has an attention map, and how similar are two models' maps on the same tokens?

`PatternStatistics` reads eight statistics per head and example from one streamed pass. With a_ij the weight of query i on
key j, over all tokens i of an example except the first (which can only attend to itself):

| statistic    | definition                                                                                        |
|--------------|---------------------------------------------------------------------------------------------------|
| diagonal     | sum of a_ij over |i - j| <= 1, over the sum of all a_ij                                             |
| first        | mean over i of the weight on the first token                                                      |
| peak         | mean over i of the largest weight of the row                                                      |
| off_diagonal | peaks per token: number of a_ij > `peak` with i - j >= 2 and j not the first token, over the rows  |
| entropy      | mean over rows of the entropy of the normalised row, over the log of its visible keys             |
| active       | number of a_ij > `active`, over the visible pairs                                                 |
| open         | the same for a_ij > 0: open gates; all pairs in a model without gates                             |
| mass         | mean over i of the sum of the row: 1 without gates or learned sinks                               |

The rows of a gated model may sum to less than 1, or to zero. Then `diagonal` is a share of the remaining weight (NaN if a
head has no open gate at all), `entropy` is averaged over rows with open gates, and the other statistics count a closed row
as zero. `uniform` has the same statistics for uniform attention over the visible keys. Cost: O(T) numbers per head; no
T x T map is materialised.

`MapComparison` compares, head by head. `reference` are the maps of the first model (a reading of `Patterns`); the instrument
observes the second model on the same batch. With p_i and q_i the rows of token i in the two models:

    similarity   1 - mean_i JSD(p_i, q_i),   JSD = H((p + q) / 2) - (H(p) + H(q)) / 2  in bits: 1 the same, 0 disjoint
    other        the same between the first model's head and the next head of that layer in the second: the control
    elsewhere    similarity with the weight on the first token counted as missing in both: attention besides the sink
    before, after, both     edges a_ij > `active` in the first model, in the second, and in both

Missing weight (gates) counts as one more key, so a row is always a distribution and a closed row differs from an open one,
without renormalisation. An idle dense head attends to the first token, an idle gated head closes its gates: `elsewhere`
treats both the same. Source: Lin 1991 (Jensen-Shannon divergence). Cost: a few passes over one layer's T x T maps; memory:
the first model's maps of one batch.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, KEY, LAYER, PLACE, QUERY, STATISTIC
from headwise.core.errors import SeamError
from headwise.instruments.readings import HeadReadings, uniform_head
from headwise.kernels.attention import AttentionMask
from headwise.kernels.contract import ReductionRequest, Reductions
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


COMPARED = ("similarity", "other", "elsewhere", "before", "after", "both")


class MapComparison(HeadReadings):
    """The similarity of two models' maps: all readings of the list, dims (example, layer, head).

    Args:
        reference: the maps of the first model, a reading of `Patterns`.
        active: an edge with more weight is active.

    Examples:
        The same model with L0H3 ablated: in layer 1, which reads from it, the induction head L1H4 changes most.

        >>> from headwise.instruments import MapComparison
        >>> inputs = model.encode("the old river was the old river")
        >>> with hw.observe(model, hw.Patterns()) as plain:
        ...     _ = model(**inputs)
        >>> with hw.observe(model, hw.ScaleHeads("L0H3"), MapComparison(plain["patterns"])) as seen:
        ...     _ = model(**inputs)
        >>> seen["map_comparison"].similarity.sel(layer=1).values.round(2)
        array([[1.  , 0.81, 0.85, 0.94, 0.51, 0.81]], dtype=float32)
    """

    name = "map_comparison"
    whole_sequences = True
    extra_dims = dict.fromkeys(COMPARED, ())

    def __init__(self, reference: xr.Dataset, active: float = 0.01):
        super().__init__()
        self.weights = reference["weights"].transpose(EXAMPLE, PLACE, QUERY, KEY)
        self.layer_of = reference[LAYER].values
        self.active = active

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer, (batch, head)."""
        after = call.attention.weights()
        before = self._reference(call, after)
        sees = call.attention.mask.n_visible_keys(call.batch)
        rows = (call.valid[:, None] & (sees > 1)).float()  # (batch, 1 or head, query)
        count = rows.sum(dim=-1).clamp(min=1)
        following = after.roll(-1, dims=1)  # the next head of the layer; the first one for the last
        real = call.valid
        first = (real & (real.int().cumsum(dim=1) == 1))[:, None, None]  # (batch, 1, 1, key)
        without_sink = (one.masked_fill(first, 0.0) for one in (before, after))
        similarity = {
            "similarity": _similarity(before, after),
            "other": _similarity(before, following),
            "elsewhere": _similarity(*without_sink),
        }
        if call.heads == 1:
            similarity["other"] = torch.full_like(similarity["other"], torch.nan)
        edges = {"before": before > self.active, "after": after > self.active}
        edges["both"] = edges["before"] & edges["after"]
        found = {name: (one * rows).sum(dim=-1) / count for name, one in similarity.items()}
        return found | {name: (edge.sum(dim=-1) * rows).sum(dim=-1) for name, edge in edges.items()}

    def _reference(self, call: AttentionCall, like: Tensor) -> Tensor:
        """The first model's maps of this layer, 0 for invisible keys."""
        heads = self.layer_of == call.layer
        maps = torch.from_numpy(self.weights.values[:, heads]).to(like.device).nan_to_num(0.0)
        if maps.shape != like.shape:
            raise SeamError(
                f"the maps of layer {call.layer} are {' x '.join(map(str, maps.shape))} in the first model and "
                f"{' x '.join(map(str, like.shape))} in the second; compare models of the same layers and heads on one batch"
            )
        return maps


def _similarity(p: Tensor, q: Tensor) -> Tensor:
    """1 - the Jensen-Shannon divergence in bits, of every row; (batch, head, query)."""
    divergence = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    return 1 - (divergence / math.log(2)).clamp(0, 1)


def _entropy(rows: Tensor) -> Tensor:
    """In nats, with the weight missing to 1 as one more entry."""
    missing = (1 - rows.sum(dim=-1)).clamp(min=0)
    return torch.special.entr(rows).sum(dim=-1) + torch.special.entr(missing)
