"""Headwise's column sums and diagonal as they are, to hold other ways against; not timed.

`Spectrum` makes its eigenvalues of these two and keeps no more. `Readings` is what every way gives, on any device.
"""

from __future__ import annotations

import torch
from peers.comparison import Readings
from torch import Tensor

import headwise as hw
from headwise.core.dims import TOKEN
from headwise.instruments.readings import HeadReadings
from headwise.kernels import ReductionRequest
from headwise.seam import AttentionCall, ForwardContext, Structure


class Columns(HeadReadings):
    """What Spectrum requested, with nothing made of it."""

    name = "columns"
    whole_sequences = True
    extra_dims = {"sums": (TOKEN,), "diagonal": (TOKEN,)}

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Column sums and the diagonal."""
        return ReductionRequest(column_sums=True, log_diagonal=True)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer's, (batch, head, token)."""
        sums, log_diagonal = call.reductions.column_sums, call.reductions.log_diagonal
        assert sums is not None and log_diagonal is not None
        return {"sums": sums, "diagonal": log_diagonal.exp()}


def ours(structure: Structure, ids: Tensor) -> Readings:
    """Each (layer, batch, head, token), on the CPU."""
    with torch.no_grad(), hw.observe(structure, Columns()) as seen:
        structure.decoder(input_ids=ids, use_cache=False)
    found = (torch.from_numpy(seen["columns"][name].values).transpose(0, 1) for name in ("sums", "diagonal"))
    return Readings(*found)
