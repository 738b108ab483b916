"""Instrument and Intervention: the two roles at the seam, and what both are given.

An instrument observes, an intervention changes; no class does both. A forward pass is described by a `ForwardContext`, and
the attention of one layer in it by an `AttentionCall`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor, nn

from headwise.kernels import Attention, ReductionRequest, Reductions

if TYPE_CHECKING:
    import xarray as xr

    from headwise.seam.structure import Structure


@dataclass(frozen=True)
class ForwardContext:
    """Metadata of one forward pass over one batch: what is known before the first layer runs.

    Examples:
        >>> import torch
        >>> context = ForwardContext(0, torch.tensor([[1, 5, 7]]), torch.ones(1, 3, dtype=torch.bool), 0, torch.tensor([0]))
        >>> context.cached  # whole sequences: the KV cache is empty
        0
    """

    index: int  # passes since the observation began; a decode step is a pass
    input_ids: Tensor | None  # (batch, query); None where the model was given embeddings
    valid: Tensor  # (batch, query) bool: the queries that are real tokens
    cached: int  # tokens in the KV cache before this pass, padding included; 0: whole sequences
    before: Tensor  # (batch,) long: real tokens in the KV cache before this pass


@dataclass
class AttentionCall:
    """The attention of one layer, between its softmax and its output projection.

    `z` is what the model continues with, interventions included. Instruments must not write into it.

    Examples:
        >>> from headwise.seam import Instrument
        >>> class Last(Instrument):
        ...     name = "last"
        ...     def on_layer(self, call):
        ...         self.call = call
        ...     def result(self):
        ...         return None
        >>> last = Last()
        >>> with hw.observe(model, last):
        ...     _ = model(**model.encode("the old river"))
        >>> call = last.call  # of the last layer
        >>> call.layer, tuple(call.z.shape), tuple(call.attention.weights().shape)
        (2, (1, 4, 6, 64), (1, 6, 4, 4))
    """

    context: ForwardContext  # the forward pass it belongs to
    layer: int  # counted from 0
    module: nn.Module  # the attention module
    attention: Attention  # q, k, mask, scale; `attention.weights()` materialises the map
    raw_mask: Tensor | None  # as transformers passed it to the layer; parsed: `attention.mask`
    v: Tensor  # (batch, kv_head, key, value width)
    z: Tensor  # (batch, query, head, value width): the input of the output projection, split by head
    reductions: Reductions = field(default_factory=Reductions)  # the requested ones

    @property
    def batch(self) -> int:
        """Examples in the batch."""
        return self.z.shape[0]

    @property
    def heads(self) -> int:
        """Query heads of this layer."""
        return self.z.shape[2]

    @property
    def valid(self) -> Tensor:
        """(batch, query) bool: the queries that are real tokens."""
        return self.context.valid.to(self.z.device)


class Instrument(ABC):
    """Observes layers. Requests the reductions it needs in advance, so that all instruments share one pass.

    Order of calls in a forward pass: `on_forward_start`, `requested`, `on_layer` for every layer, `on_forward_end`. A pass
    that fails has no `on_forward_end`; the next `on_forward_start` must discard its remains. All callbacks run without
    gradients; hooks that an instrument registers itself do not.

    Examples:
        The mean of the largest weight of each row:

        >>> from headwise.kernels import ReductionRequest
        >>> class Sharpness(Instrument):
        ...     name = "sharpness"
        ...     def on_forward_start(self, context):
        ...         self.found = {}
        ...     def requested(self, context):
        ...         return ReductionRequest(row_max=True)
        ...     def on_layer(self, call):
        ...         self.found[call.layer] = call.reductions.row_max.mean(dim=(0, 2))  # (head,)
        ...     def result(self):
        ...         import xarray as xr
        ...         return xr.Dataset({"row_max": (("layer", "head"), list(self.found.values()))})
        >>> with hw.observe(model, Sharpness()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["sharpness"].row_max.sel(layer=0).values.round(2)
        array([0.66, 1.  , 0.75, 1.  , 0.64, 0.77], dtype=float32)
    """

    name: str  # the key of its result in an observation
    stream_safe = (
        False  # `on_layer` may run on a side CUDA stream: it reads only the call and tensors held until the end
    )

    def setup(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027  (most need nothing more)
        """Called once when an observation begins. Hooks on the model's modules are removed by callbacks on `stack`."""

    def on_forward_start(self, context: ForwardContext) -> None:  # noqa: B027
        """Called before the first layer of a forward pass."""

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """The reductions that this instrument needs from every layer of this pass."""
        return ReductionRequest()

    @abstractmethod
    def on_layer(self, call: AttentionCall) -> None:
        """Called for each attention layer of a pass."""

    def on_forward_end(self, context: ForwardContext) -> None:  # noqa: B027
        """Called after the last layer of a pass that succeeded."""

    @abstractmethod
    def result(self) -> xr.Dataset:
        """The measurements, with named dims."""


class Intervention(ABC):
    """Changes heads: receives the z of a layer and returns the z that the model continues with.

    Examples:
        Zero ablation of all heads of layer 1:

        >>> class Off(Intervention):
        ...     def change(self, call):
        ...         return call.z * 0 if call.layer == 1 else call.z
        >>> with hw.observe(model, Off(), hw.HeadOutputs()) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> abs(seen["outputs"].z).sum(["example", "head", "token", "width"]).values > 0
        array([ True, False,  True])
    """

    def setup(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027
        """Called once when an observation begins: the moment to refuse heads that the model does not have."""

    @abstractmethod
    def change(self, call: AttentionCall) -> Tensor:
        """The new z, (batch, query, head, value width). Must not write into `call.z`."""
