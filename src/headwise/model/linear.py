"""The float32 linear layers of a model, with the fastest product of this processor (`kernels.linear`)."""

from __future__ import annotations

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
    """Let the float32 linear layers of a model on a CPU use oneDNN where it is faster; adds and copies no weights."""
    if not prefers_onednn():
        return
    for module in hf.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and module.weight.dtype == torch.float32:
            module.__class__ = FastLinear
