"""Two models' attention maps on the same tokens, head by head: how alike, and which edges are left.

`beside` are the whole maps of the first model (a reading of `Patterns`); this instrument watches the second one on the
same batch. With p_i and q_i the rows of token i in the two models:

    similarity   1 - mean_i JSD(p_i, q_i),   JSD = H((p + q) / 2) - (H(p) + H(q)) / 2  in bits: 1 the same, 0 disjoint
    other        the same between the first model's head and the next head of that layer in the second: the control
    elsewhere    similarity with the weight on the first token counted as "nowhere" in both: where they look beside the sink
    before, after, both     edges a_ij > `active` in the first model, in the second, and in both

The rows of a gated model may sum to less than 1, or to nothing. What is missing counts as one more key, "nowhere":
so a row is always a distribution, a row that looks nowhere is unlike one that looks somewhere, and nothing is scaled up.
A dense head that has nothing to say looks at the first token, a gated one closes its gates: `elsewhere` takes both alike.
The first token's row is left out: it can only look at itself.

Source: Lin 1991 (Jensen-Shannon divergence). Cost: a few passes over one layer's T x T maps; memory: the first model's
maps of one batch.
"""

from __future__ import annotations

import math

import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, KEY, LAYER, PLACE, QUERY
from headwise.core.errors import SeamError
from headwise.instruments.readings import HeadReadings
from headwise.seam import AttentionCall

COMPARED = ("similarity", "other", "elsewhere", "before", "after", "both")


class MapComparison(HeadReadings):
    """How alike the maps of two models are: all numbers of the list, dims (example, layer, head).

    Args:
        beside: the whole maps of the first model, a reading of `Patterns`.
        active: an edge with more weight is active.

    Examples:
        The same model with L0H3 switched off: in layer 1, which reads from it, the induction head L1H4 changes most.

        >>> from headwise.instruments import MapComparison
        >>> inputs = model.encode("the old river was the old river")
        >>> with hw.observe(model, hw.Patterns()) as whole:
        ...     _ = model(**inputs)
        >>> with hw.observe(model, hw.Scale("L0H3"), MapComparison(whole["patterns"])) as seen:
        ...     _ = model(**inputs)
        >>> seen["map_comparison"].similarity.sel(layer=1).values.round(2)
        array([[1.  , 0.81, 0.85, 0.94, 0.51, 0.81]], dtype=float32)
    """

    name = "map_comparison"
    whole_sequences = True
    extra_dims = dict.fromkeys(COMPARED, ())

    def __init__(self, beside: xr.Dataset, active: float = 0.01):
        super().__init__()
        self.weights = beside["weights"].transpose(EXAMPLE, PLACE, QUERY, KEY)
        self.layer_of, self.head_of = beside[LAYER].values, beside[HEAD].values
        self.active = active

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer, (batch, head)."""
        mine = call.attention.weights()
        before = self._of(call, mine)
        sees = call.attention.mask.n_visible_keys(call.batch)
        rows = (call.valid[:, None] & (sees > 1)).float()  # (batch, 1 or head, query)
        count = rows.sum(dim=-1).clamp(min=1)
        beside = mine.roll(-1, dims=1)  # the next head of the layer, the first one after the last
        real = call.valid
        first = (real & (real.int().cumsum(dim=1) == 1))[:, None, None]  # (batch, 1, 1, key)
        unsunk = (one.masked_fill(first, 0.0) for one in (before, mine))
        alike = {"similarity": _alike(before, mine), "other": _alike(before, beside), "elsewhere": _alike(*unsunk)}
        if call.heads == 1:
            alike["other"] = torch.full_like(alike["other"], torch.nan)
        edges = {"before": before > self.active, "after": mine > self.active}
        edges["both"] = edges["before"] & edges["after"]
        found = {name: (one * rows).sum(dim=-1) / count for name, one in alike.items()}
        return found | {name: (edge.sum(dim=-1) * rows).sum(dim=-1) for name, edge in edges.items()}

    def _of(self, call: AttentionCall, like: Tensor) -> Tensor:
        """The first model's maps of this layer, 0 where nothing can be seen."""
        places = self.layer_of == call.layer
        theirs = torch.from_numpy(self.weights.values[:, places]).to(like.device).nan_to_num(0.0)
        if theirs.shape != like.shape:
            raise SeamError(
                f"the maps of layer {call.layer} are {' x '.join(map(str, theirs.shape))} in the first model and "
                f"{' x '.join(map(str, like.shape))} in the second; compare models of the same layers and heads on one batch"
            )
        return theirs


def _alike(p: Tensor, q: Tensor) -> Tensor:
    """1 - the Jensen-Shannon divergence in bits, of every row; (batch, head, query)."""
    divergence = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    return 1 - (divergence / math.log(2)).clamp(0, 1)


def _entropy(rows: Tensor) -> Tensor:
    """In nats, with what a row lacks to 1 as one more entry."""
    nowhere = (1 - rows.sum(dim=-1)).clamp(min=0)
    return torch.special.entr(rows).sum(dim=-1) + torch.special.entr(nowhere)
