"""The outputs and values of heads: z, the slice of the output projection's *input* that belongs to a head, and v.

`HeadOutputs` reads z at chosen tokens of many passes. `RawHeadOutputs` holds z of all tokens of one pass as tensors, for
activation patching. `HeadValues` reads v at chosen tokens: z is the weighted mean of values, so with all its attention on
token j a head's output is v_j. Every query head reads the values of its kv head, h // (heads / kv heads). (In families that
scale or gate z after the softmax, or with a learned sink, z is a multiple of v_j, which leaves the order of its logits
unchanged.)

Cost: nothing beyond the pass; memory examples x layers x tokens x heads x width, for the chosen tokens only.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.dims import EXAMPLE, HEAD, LAYER, TOKEN, WIDTH
from headwise.core.errors import SeamError
from headwise.instruments.readings import PickedReadings
from headwise.seam import AttentionCall, ForwardContext, Instrument, Positions


class HeadOutputs(PickedReadings):
    """z of every head at the given positions; NaN if an example has no such token.

    Args:
        positions: which tokens (see `headwise.seam.instrument`).
        half: in half precision, which takes half of the memory.

    Examples:
        >>> with hw.observe(model, hw.HeadOutputs(positions=[1, -1])) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> dict(seen["outputs"].z.sizes)
        {'example': 1, 'layer': 3, 'head': 6, 'token': 2, 'width': 64}
    """

    name = "outputs"
    extra_dims = {"z": (TOKEN, WIDTH)}

    def __init__(self, positions: Positions = "last", *, half: bool = False):
        super().__init__(positions)
        self.half = half

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Select the tokens of one layer."""
        index = self._index.to(call.z.device)
        z = call.z.gather(1, index.clamp(min=0)[:, :, None, None].expand(-1, -1, *call.z.shape[2:]))
        z = z.float().masked_fill((index < 0)[:, :, None, None], torch.nan)
        return {"z": z.transpose(1, 2)}  # (batch, head, token, width)


class RawHeadOutputs(Instrument):
    """z of the last pass as tensors: ``z[layer]``, (batch, query, head, width); and the attention modules.

    Args:
        attached: leave z in the autograd graph of the pass.

    Examples:
        >>> from headwise.instruments import RawHeadOutputs
        >>> raw = RawHeadOutputs()
        >>> with hw.observe(model, raw):
        ...     _ = model(**model.encode("the old river"))
        >>> raw.z[0].shape
        torch.Size([1, 4, 6, 64])
    """

    name = "raw_outputs"

    def __init__(self, *, attached: bool = False) -> None:
        self.attached = attached
        self.z: dict[int, Tensor] = {}
        self.modules: dict[int, nn.Module] = {}

    def on_forward_start(self, context: ForwardContext) -> None:
        """Discard the previous pass."""
        self.z, self.modules = {}, {}

    def on_layer(self, call: AttentionCall) -> None:
        """Hold one layer."""
        self.z[call.layer] = call.z if self.attached else call.z.detach()
        self.modules[call.layer] = call.module

    def result(self) -> xr.Dataset:
        """The last pass as arrays; NaN if a layer has no such head."""
        if not self.z:
            raise SeamError("RawHeadOutputs has no readings yet; run the model inside `with observe(...)`")
        shapes = torch.tensor([z.shape for z in self.z.values()])
        batch, tokens, heads, width = shapes.amax(0).tolist()
        padded = np.full((batch, max(self.z) + 1, heads, tokens, width), np.nan, dtype=np.float32)
        for layer, z in self.z.items():
            padded[:, layer, : z.shape[2], :, : z.shape[3]] = z.detach().float().cpu().numpy().swapaxes(1, 2)
        dims = (EXAMPLE, LAYER, HEAD, TOKEN, WIDTH)
        return xr.Dataset({"z": (dims, padded)}, coords={LAYER: np.arange(padded.shape[1]), HEAD: np.arange(heads)})


class HeadValues(PickedReadings):
    """v of every query head at the given positions; NaN if an example has no such token.

    Args:
        positions: which tokens (see `headwise.seam.instrument`).

    Examples:
        L0H3 attends only to the previous token: its output at the last token is that token's value.

        >>> from headwise.instruments import HeadValues
        >>> with hw.observe(model, HeadValues(-2), hw.HeadOutputs(-1)) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> v, z = (seen[name].sel(layer=0, head=3) for name in ("values", "outputs"))
        >>> bool(abs(v.v - z.z).max() < 1e-4)
        True
    """

    name = "values"
    extra_dims = {"v": (TOKEN, WIDTH)}
    whole_sequences = True

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Select the tokens of one layer."""
        index = self._index.to(call.v.device)
        v = call.v.transpose(1, 2)  # (batch, key, kv_head, width)
        v = v.gather(1, index.clamp(min=0)[:, :, None, None].expand(-1, -1, *v.shape[2:]))
        v = v.float().masked_fill((index < 0)[:, :, None, None], torch.nan)
        group = call.z.shape[2] // call.v.shape[1]
        return {"v": v.repeat_interleave(group, dim=2).transpose(1, 2)}  # (batch, head, token, width)
