"""The joint probe's network: every head through one shared map, all of them side by side, one hidden layer, the classes.

    z_h     = P x_h + p                        x_h (feature,) -> z_h (64,), the same P for every head
    hidden  = relu(W [z_1 ... z_H] + w)        512
    logits  = V dropout(hidden) + v            dropout 0.3, in training alone

After Ma et al. (arXiv 2512.10978). Parameters start as in torch's `nn.Linear`, from a generator of their own, so that a
seed gives the same probe whatever ran before.

Cost: nearly all in W, 512 x 64 x heads. This module does not know what a head is, nor how the network is trained.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["DROPOUT", "Network"]

PROJECTED, HIDDEN, DROPOUT = 64, 512, 0.3


class Network(NamedTuple):
    """The parameters."""

    shared: Tensor
    """P, (64, feature)"""
    shared_bias: Tensor
    mixed: Tensor
    """W, (512, head x 64)"""
    mixed_bias: Tensor
    named: Tensor
    """V, (class, 512)"""
    named_bias: Tensor

    @classmethod
    def start(cls, heads: int, width: int, classes: int, generator: torch.Generator) -> Network:
        """A network that has learnt nothing."""
        return cls(
            *_linear(PROJECTED, width, generator),
            *_linear(HIDDEN, heads * PROJECTED, generator),
            *_linear(classes, HIDDEN, generator),
        )

    def project(self, x: Tensor) -> Tensor:
        """z: (row, head, feature) -> (row, head, 64)."""
        return functional.linear(x, self.shared, self.shared_bias)

    def logits(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """(row, head, feature) -> (row, class). `keep`, (row, 512): what dropout leaves, 0 or 1 / 0.7."""
        hidden = functional.linear(self.project(x).flatten(1), self.mixed, self.mixed_bias).relu()
        return functional.linear(hidden if keep is None else hidden * keep, self.named, self.named_bias)


def _linear(out: int, into: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weights and biases, even between -1/sqrt(into) and 1/sqrt(into)."""
    bound = into**-0.5
    weight = torch.empty(out, into).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(out).uniform_(-bound, bound, generator=generator)
