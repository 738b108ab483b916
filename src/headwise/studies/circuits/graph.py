"""The graph that a circuit is cut from: who writes to the residual stream, who reads from it, and in which order.

    senders     the input (embedded tokens), then layer by layer its heads and its MLP
    receivers   layer by layer its heads and its MLP, then the logits

An edge is a sender and a later receiver: everything that the receiver reads from what this sender wrote (a head by
queries, keys and values together). A head does not read from its own layer; the MLP of a layer reads from its heads.
With L layers of H heads that is about L^2 (H + 1)^2 / 2 edges, 44,371 for 30 x 9.

This module knows no weights and no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.core.dims import head_name

__all__ = ["Graph"]


@dataclass(frozen=True)
class Graph:
    """`heads`: how many each layer has."""

    heads: tuple[int, ...]

    @classmethod
    def of(cls, heads: Sequence[int]) -> Graph:
        """The graph of a decoder with so many heads in each layer."""
        return cls(tuple(heads))

    @property
    def nodes(self) -> int:
        """Senders; and as many receivers."""
        return 1 + sum(self.heads) + len(self.heads)

    def sent_before(self, layer: int) -> int:
        """Senders whose writing is in the residual stream when a layer begins."""
        return 1 + sum(self.heads[:layer]) + layer

    def head_receivers(self, layer: int) -> slice:
        """The places of a layer's heads among the receivers."""
        start = self.sent_before(layer) - 1
        return slice(start, start + self.heads[layer])

    def mlp_receiver(self, layer: int) -> int:
        """The place of a layer's MLP among the receivers."""
        return self.head_receivers(layer).stop

    def senders_of(self, receiver: int) -> int:
        """A receiver reads from the first so many senders."""
        for layer, heads in enumerate(self.heads):
            place = self.head_receivers(layer)
            if receiver < place.stop:
                return self.sent_before(layer)
            if receiver == place.stop:
                return self.sent_before(layer) + heads
        return self.nodes

    def edges(self) -> NDArray[np.bool_]:
        """(receiver, sender): where there is an edge."""
        reads = np.array([self.senders_of(receiver) for receiver in range(self.nodes)])
        return np.arange(self.nodes)[None, :] < reads[:, None]

    def senders(self) -> list[str]:
        """Their names in order: input, L0H0, ..., M0, L1H0, ..."""
        return ["input", *self._inner()]

    def receivers(self) -> list[str]:
        """Their names in order: L0H0, ..., M0, L1H0, ..., logits."""
        return [*self._inner(), "logits"]

    def _inner(self) -> list[str]:
        return [
            name
            for layer, heads in enumerate(self.heads)
            for name in (*(head_name(layer, head) for head in range(heads)), f"M{layer}")
        ]
