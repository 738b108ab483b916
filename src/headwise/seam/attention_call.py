"""What an instrument sees of one forward pass (a context), and of one layer in it (a call)."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from headwise.kernels import Attention, Reductions


@dataclass(frozen=True)
class ForwardContext:
    """One forward pass over one batch: what is known before the first layer runs.

    Examples:
        >>> import torch
        >>> context = ForwardContext(0, torch.tensor([[1, 5, 7]]), torch.tensor([[True, True, True]]), 0, torch.tensor([0]))
        >>> context.cached  # whole sequences: nothing stands in the cache
        0
    """

    index: int  # passes since the observation began; a decode step is a pass
    input_ids: Tensor | None  # (batch, query); None where the model was given embeddings
    valid: Tensor  # (batch, query) bool: the queries that are real tokens
    cached: int  # tokens in the cache before this pass, padding included; 0: whole sequences
    before: Tensor  # (batch,) long: real tokens in the cache before this pass


@dataclass
class AttentionCall:
    """One layer's attention, caught between its softmax and its output projection.

    `z` is what the model goes on with, interventions included; it is not to be changed by who looks at it.

    Examples:
        What an instrument is given, here by one that keeps it.

        >>> from headwise.seam import Instrument
        >>> class Keep(Instrument):
        ...     name = "keep"
        ...     def on_layer(self, call):
        ...         self.call = call
        ...     def result(self):
        ...         return None
        >>> keep = Keep()
        >>> with hw.observe(model, keep):
        ...     _ = model(**model.encode("the old river"))
        >>> call = keep.call  # of the last layer
        >>> call.layer, tuple(call.z.shape), tuple(call.attention.weights().shape)
        (2, (1, 4, 6, 64), (1, 6, 4, 4))
    """

    context: ForwardContext  # the pass it belongs to
    layer: int  # counted from 0
    module: nn.Module  # the attention module
    attention: Attention  # q, k, sight, scale; `attention.weights()` materialises the map
    raw_mask: Tensor | None  # as transformers handed it to the layer; what it means is in `attention.mask`
    v: Tensor  # (batch, kv_head, key, value width)
    z: Tensor  # (batch, query, head, value width): the input of the output projection, one slice a head
    reductions: Reductions = field(default_factory=Reductions)  # what instruments asked for

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
