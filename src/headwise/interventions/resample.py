"""Resample: heads say what they said on another example (resample ablation, activation patching).

Either from the same batch, by a permutation (each example gets the z of another), or from a reading of `HeadOutputs`
taken on other texts, matched by example and token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xarray as xr
from torch import Tensor

from headwise.dims import EXAMPLE, HEAD, LAYER, TOKEN, WIDTH
from headwise.errors import DataError
from headwise.interventions.heads import Heads, OnHeads
from headwise.seam import Frame, Positions, position_index


class Resample(OnHeads):
    """z of example b -> z of another example.

    `source`: a sequence of indices (example b takes z from example source[b] of this batch, token by token), or a
    DataArray with dims (example, layer, head, token, width), one example for each of the batch, whose tokens are those
    that `positions` names.
    """

    def __init__(self, heads: Heads, source: Sequence[int] | xr.DataArray, positions: Positions = "all"):
        super().__init__(heads, positions)
        self.source = source
        if isinstance(source, xr.DataArray):
            wanted = {EXAMPLE, LAYER, HEAD, TOKEN, WIDTH}
            if set(source.dims) != wanted:
                raise DataError(f"source has dims {tuple(source.dims)}; give the z of a HeadOutputs reading")
            if isinstance(positions, str) and positions not in ("first", "last"):
                raise DataError("a source from HeadOutputs holds single tokens; name them in positions too")

    def new(self, frame: Frame, heads: list[int], z: Tensor) -> Tensor:
        """The other example's z."""
        if not isinstance(self.source, xr.DataArray):
            order = torch.tensor(list(self.source), device=z.device)
            if len(order) != frame.batch or int(order.max()) >= frame.batch:
                raise DataError(f"source names {len(order)} examples and the batch has {frame.batch}; give one index each")
            return z[order]
        given = self.source.sel({LAYER: frame.layer, HEAD: heads}).transpose(EXAMPLE, TOKEN, HEAD, WIDTH).values
        values = torch.from_numpy(given.copy()).to(z.device, z.dtype)  # (batch, token, heads, width)
        if len(values) != frame.batch:
            raise DataError(f"source has {len(values)} examples and the batch has {frame.batch}; give one for each")
        index = position_index(self.positions, frame.valid, frame.position)  # (batch, token)
        place = index.clamp(min=0)[:, :, None, None].expand_as(values)
        here = (index >= 0)[:, :, None, None]
        return z.scatter(1, place, torch.where(here, values, z.gather(1, place)))
