"""How similar are two models' attention maps on the same tokens, head by head?

`reference` are the maps of the first model (a reading of `Patterns`); the instrument observes the second model on the same
batch. With p_i and q_i the rows of token i in the two models:

    similarity   1 - mean_i JSD(p_i, q_i),   JSD = H((p + q) / 2) - (H(p) + H(q)) / 2  in bits: 1 the same, 0 disjoint
    other        the same between the first model's head and the next head of that layer in the second: the control
    elsewhere    similarity with the weight on the first token counted as missing in both: attention besides the sink
    before, after, both     edges a_ij > `active` in the first model, in the second, and in both

The rows of a gated model may sum to less than 1, or to zero. The missing weight counts as one more key, so a row is always
a distribution and a closed row differs from an open one, without renormalisation. An idle dense head attends to the first
token, an idle gated head closes its gates: `elsewhere` treats both the same. The first token's row is excluded.

Source: Lin 1991 (Jensen-Shannon divergence). Cost: a few passes over one layer's T x T maps; memory: the first model's
maps of one batch.
"""

from __future__ import annotations

import math

import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, KEY, LAYER, PLACE, QUERY
from headwise.core.errors import SeamError
from headwise.instruments.readings import HeadReadings
from headwise.seam import AttentionCall

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
