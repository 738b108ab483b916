"""Resample: heads say what they said on another example (resample ablation, activation patching).

Either from the same batch, by a permutation (each example gets the z of another), or from a reading of `HeadOutputs`
taken on other texts, matched by example and token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER, TOKEN, WIDTH
from headwise.core.errors import DataError
from headwise.interventions.heads import Heads, OnHeads
from headwise.seam import AttentionCall, Positions, position_index, position_mask

WHOLE = ("all", "decode", "prompt")  # positions that name no single tokens


class Resample(OnHeads):
    """Let heads say what they say on another example (resample ablation): z of example b -> z of another.

    Within a batch, tokens that `positions` names one by one ("last", 3, [0, -1]) take z from the token of that name;
    otherwise from the token at the same place, which must not be padding.

    Args:
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        source: a sequence of indices (example b takes z from example source[b] of this batch), or a DataArray with dims
            (example, layer, head, token, width), one example for each of the batch, whose tokens are those that
            `positions` names.
        positions: which tokens (see `headwise.seam.positions`).

    Examples:
        Two texts of equal length exchange what L0H3 puts out.

        >>> inputs = model.encode(["the old river", "a low door"])
        >>> with hw.observe(model, hw.HeadOutputs()) as plain:
        ...     _ = model(**inputs)
        >>> with hw.observe(model, hw.Resample("L0H3", [1, 0]), hw.HeadOutputs()) as mixed:
        ...     _ = model(**inputs)
        >>> z, other = (seen["outputs"].z.sel(layer=0, head=3) for seen in (plain, mixed))
        >>> bool((z.isel(example=0) == other.isel(example=1)).all())
        True
    """

    def __init__(self, heads: Heads, source: Sequence[int] | xr.DataArray, positions: Positions = "all"):
        super().__init__(heads, positions)
        self.source = source
        if isinstance(source, xr.DataArray):
            wanted = {EXAMPLE, LAYER, HEAD, TOKEN, WIDTH}
            if set(source.dims) != wanted:
                raise DataError(f"source has dims {tuple(source.dims)}; give the z of a HeadOutputs reading")
            if isinstance(positions, str) and positions in WHOLE:
                raise DataError("a source from HeadOutputs holds single tokens; name them in positions too")

    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """The other example's z."""
        if isinstance(self.source, xr.DataArray):
            return _put(z, self._index(call, z), self._given(call, heads, self.source, z))
        order = torch.tensor(list(self.source), device=z.device)
        if len(order) != call.batch or bool(((order < 0) | (order >= call.batch)).any()):
            raise DataError(
                f"source is {list(self.source)} and the batch has {call.batch} examples; give the index of one for "
                "each of them"
            )
        if not (isinstance(self.positions, str) and self.positions in WHOLE):
            index = self._index(call, z)
            values = z[order].gather(1, index[order].clamp(min=0)[:, :, None, None].expand(-1, -1, *z.shape[2:]))
            return _put(z, index.masked_fill(index[order] < 0, -1), values)
        padding = position_mask(self.positions, call.context).to(z.device) & ~call.valid[order]
        if bool(padding.any()):
            example, token = padding.nonzero()[0].tolist()
            raise DataError(
                f"token {token} of example {example} would take z from padding of example {int(order[example])}; "
                'resample between texts of equal length, or name single tokens, such as positions="last"'
            )
        return z[order]

    def _index(self, call: AttentionCall, z: Tensor) -> Tensor:
        return position_index(self.positions, call.context).to(z.device)  # (batch, token)

    def _given(self, call: AttentionCall, heads: list[int], source: xr.DataArray, z: Tensor) -> Tensor:
        """(batch, token, heads, width) of a reading."""
        try:
            chosen = source.sel({LAYER: call.layer, HEAD: heads})
        except (KeyError, IndexError):
            raise DataError(
                f"source has nothing for heads {heads} of layer {call.layer}; read it from this model"
            ) from None
        values = torch.from_numpy(chosen.transpose(EXAMPLE, TOKEN, HEAD, WIDTH).values.copy()).to(z.device, z.dtype)
        index = self._index(call, z)
        expected = (*index.shape, *z.shape[2:])
        if tuple(values.shape) != expected:
            names = ("examples", "tokens", "heads", "entries a head")
            differ = next(i for i in range(4) if values.shape[i] != expected[i])
            raise DataError(
                f"source has {values.shape[differ]} {names[differ]} and this pass has {expected[differ]}; "
                "read it with the same positions, on this model, from as many texts"
            )
        if not bool(values[index >= 0].isfinite().all()):
            raise DataError("source is not finite where this batch has a token; some example there had no such token")
        return values


def _put(z: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """A z with `values` (batch, token, head, width) at the tokens of `index` (batch, token); -1: nowhere."""
    place = torch.where(index < 0, z.shape[1], index)[:, :, None, None].expand_as(values)
    room = torch.cat([z, z[:, :1]], dim=1)  # one more token, for what goes nowhere
    return room.scatter(1, place, values)[:, :-1]
