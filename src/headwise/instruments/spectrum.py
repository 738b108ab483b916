"""The spectrum of each attention map: how much of a sequence's attention circulates, and where it stays.

    d_i = sum_{u >= i} a_ui / (queries that can see i)      attention received by token i, its own included
    λ_i = d_i - a_ii                                         eigenvalues of L = D - A

A is lower triangular, so the eigenvalues of L and of A are their diagonals: nothing is decomposed, only column sums
and the diagonal are needed (Binkowski et al., arXiv 2502.17598).

Reads: `laplacian` and `attention`, the k largest λ_i and a_ii in descending order; `log_determinant`, the mean of
log a_ii, taken from the logits, so that it does not underflow; where a sparse model's gate cuts a_ii, its log counts as
`FLOOR`, or a single cut would make the mean infinite.

Cost: one streamed pass, about 1.1x a plain forward at 1,024 tokens on a CPU. Assumes whole sequences: a pass on top of
a cache is refused, because its column sums would miss the earlier rows. Examples with fewer than k tokens are filled
with NaN at the end, never silently shortened.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.dims import RANK
from headwise.core.errors import DataError
from headwise.instruments.readings import HeadReadings
from headwise.kernels import ReductionRequest
from headwise.kernels.logweights import FLOOR
from headwise.seam import AttentionCall, ForwardContext


class Spectrum(HeadReadings):
    """The k largest Laplacian and attention eigenvalues of every head, and the mean log-diagonal.

    Args:
        k: how many eigenvalues are kept, the largest first.

    Examples:
        >>> with hw.observe(model, hw.Spectrum(k=3)) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["spectrum"].laplacian.sel(layer=0, head=3).values.round(2)  # (example, rank)
        array([[0.5 , 0.33, 0.25]], dtype=float32)
    """

    name = "spectrum"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"laplacian": (RANK,), "attention": (RANK,), "log_determinant": ()}

    def __init__(self, k: int = 10):
        super().__init__()
        if k < 1:
            raise DataError(f"k = {k} eigenvalues were asked for; ask for at least 1")
        self.k = k

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Column sums and the diagonal."""
        return ReductionRequest(column_sums=True, log_diagonal=True)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Sort one layer's eigenvalues."""
        sums, log_diagonal = call.reductions.column_sums, call.reductions.log_diagonal
        assert sums is not None and log_diagonal is not None
        received = sums / call.attention.mask.n_visible_queries(call.batch).clamp(min=1)
        diagonal = log_diagonal.exp()
        if call.attention.gate is not None:
            log_diagonal = log_diagonal.clamp(min=FLOOR)
        laplacian, attention = largest(torch.stack([received - diagonal, diagonal]), call.valid, self.k)
        return {
            "laplacian": laplacian,
            "attention": attention,
            "log_determinant": log_diagonal.nanmean(dim=-1),
        }


def largest(values: Tensor, valid: Tensor, k: int) -> Tensor:
    """(..., batch, head, k): the k largest over the tokens of `valid` (batch, token), descending; NaN after the last."""
    values = values.masked_fill(~valid[:, None], -torch.inf)
    found = values.topk(min(k, values.shape[-1]), dim=-1).values
    found = torch.nn.functional.pad(found, (0, k - found.shape[-1]), value=-torch.inf)
    return found.masked_fill(found == -torch.inf, torch.nan)
