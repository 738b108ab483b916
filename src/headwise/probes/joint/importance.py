"""What does each head add to a class's logit? Gradient times activation, at the shared map's output.

    I_h^c = mean over the rows of class c of (1/64) Σ_d (∂ logit_c / ∂ z_hd) z_hd

(Ma et al., arXiv 2512.10978.) The network is linear but for one relu, so that the gradient is a sum over the hidden units
that are on, and needs no autograd:

    ∂ logit_c / ∂ z  =  (V_c · [hidden > 0]) W

It is signed: below 0 a head speaks against the class. Summed over heads and multiplied by 64 it is the class's logit, but
for the biases. Cost: one product with W a class. This module does not know which rows may be used.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from headwise.probes.joint.network import Network

__all__ = ["importance"]


@torch.no_grad()
def importance(network: Network, x: Tensor, labels: Tensor) -> Tensor:
    """(class, head), from rows x (row, head, feature) and their classes (row,); NaN for a class without rows."""
    z = network.project(x)  # (row, head, 64)
    on = functional.linear(z.flatten(1), network.mixed, network.mixed_bias) > 0  # (row, 512)
    classes = len(network.named)
    found = torch.full((classes, x.shape[1]), torch.nan, dtype=z.dtype, device=z.device)
    for name in range(classes):
        own = labels == name
        if bool(own.any()):
            gradient = ((on[own] * network.named[name]) @ network.mixed).view_as(z[own])
            found[name] = (gradient * z[own]).mean(dim=2).mean(dim=0)
    return found
