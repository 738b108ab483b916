"""The spectrum of each attention map: how much of a sequence's attention circulates, and where it stays.

    d_i = sum_{u >= i} a_ui / (queries that can see i)      attention received by token i, its own included
    λ_i = d_i - a_ii                                         eigenvalues of L = D - A

A is lower triangular, so the eigenvalues of L and of A are their diagonals: nothing is decomposed, only column sums
and the diagonal are needed (Binkowski et al., arXiv 2502.17598).

Reads: `laplacian` and `attention`, the k largest λ_i and a_ii in descending order; `log_determinant`, the mean of
log a_ii, taken from the logits, so that it does not underflow.

Cost: one streamed pass, about 1.1x a plain forward at 1,024 tokens on a CPU. Assumes whole sequences: a pass on top of
a cache is refused, because its column sums would miss the earlier rows. Examples with fewer than k tokens are filled
with NaN at the end, never silently shortened.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dims import RANK
from headwise.errors import DataError, SeamError
from headwise.instruments.readings import HeadReadings
from headwise.kernels import Wanted
from headwise.seam import Frame, Shot


class Spectrum(HeadReadings):
    """The k largest Laplacian and attention eigenvalues of every head, and the mean log-diagonal."""

    name = "spectrum"
    tails = {"laplacian": (RANK,), "attention": (RANK,), "log_determinant": ()}

    def __init__(self, k: int = 10):
        super().__init__()
        if k < 1:
            raise DataError(f"k = {k} eigenvalues were asked for; ask for at least 1")
        self.k = k

    def wants(self, shot: Shot) -> Wanted:
        """Column sums and the diagonal."""
        return Wanted(column_sums=True, log_diagonal=True)

    def measure(self, frame: Frame) -> dict[str, Tensor]:
        """Sort one layer's eigenvalues."""
        if frame.position != 0:
            raise SeamError(
                "Spectrum needs whole sequences, and this pass stands on a cache of "
                f"{frame.position} tokens; run prompt and answer together in one forward pass (use_cache=False)"
            )
        sums, log_diagonal = frame.reductions.column_sums, frame.reductions.log_diagonal
        assert sums is not None and log_diagonal is not None
        valid = frame.valid[:, None, :]  # (batch, 1, token)
        received = sums / frame.attention.visibility.seen_by(frame.batch).clamp(min=1)
        diagonal = log_diagonal.exp()
        return {
            "laplacian": self._largest(received - diagonal, valid),
            "attention": self._largest(diagonal, valid),
            "log_determinant": log_diagonal.nanmean(dim=-1),
        }

    def _largest(self, values: Tensor, valid: Tensor) -> Tensor:
        """(batch, head, k): the k largest over real tokens, descending; NaN where there are fewer."""
        values = values.masked_fill(~valid, -torch.inf)
        largest = values.topk(min(self.k, values.shape[-1]), dim=-1).values
        largest = torch.nn.functional.pad(largest, (0, self.k - largest.shape[-1]), value=-torch.inf)
        return largest.masked_fill(largest == -torch.inf, torch.nan)
