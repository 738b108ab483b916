"""The float32 linear layers of a model, with the fastest product of this processor (`kernels.linear`)."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.kernels.linear import linear, prefers_onednn


class FastLinear(nn.Linear):
    """A linear layer that multiplies by `kernels.linear`, and is otherwise what it was."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return linear(input, self.weight, self.bias)


def use_fastest_linear(hf: Any) -> None:
    """Let the float32 linear layers of a model on a CPU use oneDNN where it is faster; adds and copies no weights.

    Layers whose weights are loaded for each pass are among them, so that numbers do not depend on where the weights are.
    """
    if not prefers_onednn():
        return
    for module in hf.modules():
        place = module.weight.device.type if type(module) is nn.Linear else ""
        if place in ("cpu", "meta") and module.weight.dtype == torch.float32:
            module.__class__ = FastLinear
            if "_old_forward" in vars(module):  # what accelerate calls once it has loaded the weights
                module._old_forward = MethodType(FastLinear.forward, module)
