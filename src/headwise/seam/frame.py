"""What an instrument sees of one layer in one forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from headwise.kernels import Attention, Reductions


@dataclass
class Shot:
    """One forward pass over one batch: what is known before the first layer runs."""

    index: int  # passes since the observation began; a decode step is a pass
    input_ids: Tensor | None  # (batch, query); None where the model was given embeddings
    valid: Tensor | None  # (batch, query) bool as the caller gave it; None: the mask tells


@dataclass
class Frame:
    """One layer's attention, caught between its softmax and its output projection.

    `z` is what the model goes on with, interventions included; it is not to be changed by who looks at it.
    """

    shot: Shot
    layer: int
    module: nn.Module  # the attention module
    attention: Attention  # q, k, sight, scale; `attention.weights()` materialises the map
    v: Tensor  # (batch, kv_head, key, value width)
    z: Tensor  # (batch, query, head, value width): the input of the output projection, one slice a head
    reductions: Reductions = field(default_factory=Reductions)

    @property
    def batch(self) -> int:
        """Examples in the batch."""
        return self.z.shape[0]

    @property
    def heads(self) -> int:
        """Query heads of this layer."""
        return self.z.shape[2]

    @property
    def position(self) -> int:
        """Where the first query of this pass stands in the sequence: 0, or what the cache already holds."""
        return self.attention.visibility.offset

    @property
    def valid(self) -> Tensor:
        """(batch, query) bool: the queries that are real tokens."""
        return self.attention.visibility.counts(self.batch)
