"""x W^T + b in float32 on an AMD processor: through oneDNN, because MKL uses half of such a processor.

torch multiplies float32 matrices on a CPU with Intel's MKL, which chooses its instructions by the maker of the processor and
leaves out the 512-bit ones of AMD's. oneDNN, which comes with torch, too, asks what the processor can do. Measured on one
core of an AMD EPYC (Zen 5), 256 rows through the weights of the default model: 90 billion operations per second with MKL, 190
with oneDNN; a pass over the default model takes half of the time. With fewer than `MIN_ROWS` rows the two are equal, or MKL is
faster.

The results are those of float32 products in another order of summation: equal up to rounding. Where a gradient is
recorded, on other devices and in other dtypes it is `torch.nn.functional.linear`.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from headwise.core.cpu import is_amd

MIN_ROWS = 16


@cache
def prefers_onednn() -> bool:
    """Whether MKL would multiply, and oneDNN can and is faster."""
    available = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return (
        available and hasattr(torch.ops.mkldnn, "_linear_pointwise") and is_amd()
    )  # the compiler's; no public function


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., in) to (..., out); `weight` is (out, in)."""
    if (
        (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
        or x.dtype != torch.float32
        or x.device.type != "cpu"
        or weight.dtype != torch.float32
        or x.numel() < MIN_ROWS * x.shape[-1]
        or not prefers_onednn()
    ):
        return functional.linear(x, weight, bias)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found
