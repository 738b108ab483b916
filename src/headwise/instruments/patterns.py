"""Whole attention maps of chosen heads and layers.

The only instrument that keeps T x T numbers: 4 bytes x examples x heads x T x T (30 layers x 9 heads at 1,024 tokens:
1.1 GB an example). So it asks before it fills the memory: `limit` bytes, 2 GiB unless said otherwise.

What a query may not see is NaN, not zero: a mask is not a small weight. All passes must have the same length.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import numpy as np
import torch
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, KEY, LAYER, PLACE, QUERY, head_name, parse_heads
from headwise.core.errors import DataError, SeamError
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure


class Patterns(Instrument):
    """Attention maps, dims (example, place, query, key); a place is a head, named L{l}H{h}.

    Args:
        heads: which heads, such as ``"L3H7, L4H0"``, names, or (layer, head) pairs; None: all of them.
        limit: bytes that the maps may take.

    Examples:
        >>> with hw.observe(model, hw.Patterns("L0H3")) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> seen["patterns"].weights.sel(place="L0H3").isel(example=0).values.round(1)  # (query, key)
        array([[ 1., nan, nan, nan],
               [ 1.,  0., nan, nan],
               [ 0.,  1.,  0., nan],
               [ 0.,  0.,  1.,  0.]], dtype=float32)
    """

    name = "patterns"

    def __init__(self, heads: str | Iterable[str | tuple[int, int]] | None = None, *, limit: int = 2 << 30):
        self.chosen = None if heads is None else parse_heads(heads)
        self.limit = limit
        self._bytes = 0
        self._now: dict[tuple[int, int], np.ndarray] = {}
        self._passes: list[dict[tuple[int, int], np.ndarray]] = []

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Refuse heads that the model does not have, before it runs."""
        structure.require_heads(self.chosen or [])

    def on_forward_start(self, context: ForwardContext) -> None:
        """Forget what a pass that failed has left."""
        self._bytes -= sum(maps.nbytes for maps in self._now.values())
        self._now = {}

    def on_layer(self, call: AttentionCall) -> None:
        """Materialise the chosen heads of one layer."""
        heads = self._heads_of(call)
        if not heads:
            return
        queries, keys = call.attention.q.shape[2], call.attention.k.shape[2]
        needed = 4 * call.batch * len(heads) * queries * keys
        if self._bytes + needed > self.limit:
            raise DataError(
                f"the attention maps would take more than {self.limit / 2**30:.1f} GiB; choose fewer heads "
                '(Patterns(heads="L3H7, L4H0")), fewer or shorter texts, or raise Patterns(limit=...)'
            )
        maps = call.attention.weights(heads)
        seen = call.attention.mask.matrix()
        seen = seen[:, heads] if seen.shape[1] > 1 else seen
        counts = call.valid[:, None, :, None]
        kept = maps.masked_fill(~(seen & counts), torch.nan).cpu().numpy()
        self._bytes += needed
        for place, head in enumerate(heads):
            self._now[call.layer, head] = kept[:, place]

    def on_forward_end(self, context: ForwardContext) -> None:
        """One pass is complete."""
        self._passes.append(self._now)
        self._now = {}

    def result(self) -> xr.Dataset:
        """`weights` over (example, place, query, key), with `layer` and `head` along `place`."""
        if not self._passes:
            raise SeamError("Patterns has seen nothing yet; run the model inside the `with observe(...)`")
        shapes = {maps.shape[1:] for one in self._passes for maps in one.values()}
        if len(shapes) > 1:
            raise DataError(
                f"the passes have different lengths {sorted(shapes)}; maps of one length can be kept together: "
                "use texts of equal length, or one Patterns instrument each"
            )
        places = sorted(self._passes[0])
        stacked = np.stack([np.concatenate([one[place] for one in self._passes]) for place in places], axis=1)
        layers, heads = (np.array(part) for part in zip(*places, strict=True))
        return xr.Dataset(
            {"weights": ((EXAMPLE, PLACE, QUERY, KEY), stacked)},
            coords={PLACE: [head_name(*p) for p in places], LAYER: (PLACE, layers), HEAD: (PLACE, heads)},
        )

    def _heads_of(self, call: AttentionCall) -> list[int]:
        if self.chosen is None:
            return list(range(call.heads))
        return [head for layer, head in dict.fromkeys(self.chosen) if layer == call.layer]
