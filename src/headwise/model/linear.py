"""Linear layers in float32 on an AMD processor: through oneDNN, because MKL uses half of such a processor.

torch multiplies float32 matrices on a CPU with Intel's MKL, which chooses its instructions by the maker of the processor and
leaves out the 512-bit ones of AMD's. oneDNN, which comes with torch, too, asks what the processor can do. Measured on one
core of an AMD EPYC (Zen 5), 256 rows through the weights of the default model: 90 billion operations per second with MKL, 190
with oneDNN; a pass over the default model takes half of the time. With fewer than `MIN_ROWS` rows the two are equal, or MKL is
faster.

The results are those of float32 products in another order of summation: equal up to rounding. Where a gradient is
recorded, or the layer was moved or cast, it is computed as before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.cpu import is_amd

MIN_ROWS = 16


class OneDnnLinear(nn.Linear):
    """A linear layer that multiplies many rows with oneDNN, and is otherwise what it was."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        if (
            torch.is_grad_enabled()
            or input.dtype != torch.float32
            or input.device.type != "cpu"
            or self.weight.dtype != torch.float32
            or input.numel() < MIN_ROWS * input.shape[-1]
        ):
            return super().forward(input)
        found: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], "")
        return found


def use_fastest_linear(hf: Any) -> None:
    """Let the float32 linear layers of a model use oneDNN where MKL is the slower one; adds and copies no weights."""
    if not (is_amd() and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # torch's own compiler uses it; it is no public function
        return
    for module in hf.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and module.weight.dtype == torch.float32:
            module.__class__ = OneDnnLinear
