"""What every head puts out at every token of one pass, as tensors: for who requested to put it into another pass.

Where `HeadOutputs` keeps chosen tokens of many passes as numbers, this keeps one pass whole, on its device.

Memory: batch x tokens x heads x width numbers a layer. Cost: nothing beyond the pass.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.dims import EXAMPLE, HEAD, LAYER, TOKEN, WIDTH
from headwise.core.errors import SeamError
from headwise.seam import AttentionCall, ForwardContext, Instrument


class HeadStreams(Instrument):
    """z of the last pass: ``z[layer]``, (batch, query, head, width); and the attention modules it came from.

    Args:
        attached: keep z in the graph of the pass, to be differentiated by.

    Examples:
        >>> from headwise.instruments import HeadStreams
        >>> streams = HeadStreams()
        >>> with hw.observe(model, streams):
        ...     _ = model(**model.encode("the old river"))
        >>> streams.z[0].shape
        torch.Size([1, 4, 6, 64])
    """

    name = "streams"

    def __init__(self, *, attached: bool = False) -> None:
        self.attached = attached  # z stays in the graph of the pass, to be differentiated by
        self.z: dict[int, Tensor] = {}
        self.modules: dict[int, nn.Module] = {}

    def on_forward_start(self, context: ForwardContext) -> None:
        """Forget the pass before."""
        self.z, self.modules = {}, {}

    def on_layer(self, call: AttentionCall) -> None:
        """Keep one layer."""
        self.z[call.layer] = call.z if self.attached else call.z.detach()
        self.modules[call.layer] = call.module

    def result(self) -> xr.Dataset:
        """The last pass as numbers; NaN where a layer has no such head."""
        if not self.z:
            raise SeamError("HeadStreams has seen nothing yet; run the model inside the `with observe(...)`")
        shapes = torch.tensor([z.shape for z in self.z.values()])
        batch, tokens, heads, width = shapes.amax(0).tolist()
        whole = np.full((batch, max(self.z) + 1, heads, tokens, width), np.nan, dtype=np.float32)
        for layer, z in self.z.items():
            whole[:, layer, : z.shape[2], :, : z.shape[3]] = z.detach().float().cpu().numpy().swapaxes(1, 2)
        dims = (EXAMPLE, LAYER, HEAD, TOKEN, WIDTH)
        return xr.Dataset({"z": (dims, whole)}, coords={LAYER: np.arange(whole.shape[1]), HEAD: np.arange(heads)})
