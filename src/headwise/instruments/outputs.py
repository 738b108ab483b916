"""What each head puts out, z, at chosen tokens: the slice of the output projection's *input* that belongs to it.

Cost: nothing beyond the pass; memory examples x layers x tokens x heads x width, for the chosen tokens only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.dims import TOKEN, WIDTH
from headwise.instruments.readings import PickedReadings
from headwise.seam import AttentionCall


class HeadOutputs(PickedReadings):
    """z of every head at the given positions; NaN where an example has no such token.

    Args:
        positions: which tokens (see `headwise.seam.positions`).

    Examples:
        >>> with hw.observe(model, hw.HeadOutputs(positions=[1, -1])) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> dict(seen["outputs"].z.sizes)
        {'example': 1, 'layer': 3, 'head': 6, 'token': 2, 'width': 64}
    """

    name = "outputs"
    extra_dims = {"z": (TOKEN, WIDTH)}

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Pick the tokens of one layer."""
        index = self._index.to(call.z.device)
        z = call.z.gather(1, index.clamp(min=0)[:, :, None, None].expand(-1, -1, *call.z.shape[2:]))
        z = z.float().masked_fill((index < 0)[:, :, None, None], torch.nan)
        return {"z": z.transpose(1, 2)}  # (batch, head, token, width)
