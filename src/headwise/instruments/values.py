"""What a head would put out if it looked at one token and nowhere else: that token's value vector.

z is the weighted mean of the values of the tokens a head looks at, so with all its attention on token j it is v_j. Every
query head reads the values of its kv head, h // (heads / kv heads). Nothing is changed in the pass: the vector is only
read. (Families that scale or gate z behind the softmax, or whose weights do not sum to one because of a learned
sink, would put out a multiple of it; the order of what it writes is the same.)

Cost: nothing beyond the pass; memory examples x layers x tokens x heads x width, for the chosen tokens only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.dims import TOKEN, WIDTH
from headwise.instruments.readings import PickedReadings
from headwise.seam import AttentionCall


class HeadValues(PickedReadings):
    """v of every query head at the given positions; NaN where an example has no such token.

    Args:
        positions: which tokens (see `headwise.seam.positions`).

    Examples:
        L0H3 puts all its attention on the token before: what it puts out at the last token is that token's value.

        >>> from headwise.instruments import HeadValues
        >>> with hw.observe(model, HeadValues(-2), hw.HeadOutputs(-1)) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> v, z = (seen[name].sel(layer=0, head=3) for name in ("values", "outputs"))
        >>> bool(abs(v.v - z.z).max() < 1e-4)
        True
    """

    name = "values"
    extra_dims = {"v": (TOKEN, WIDTH)}
    whole_sequences = True

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Pick the tokens of one layer."""
        index = self._index.to(call.v.device)
        v = call.v.transpose(1, 2)  # (batch, key, kv_head, width)
        v = v.gather(1, index.clamp(min=0)[:, :, None, None].expand(-1, -1, *v.shape[2:]))
        v = v.float().masked_fill((index < 0)[:, :, None, None], torch.nan)
        group = call.z.shape[2] // call.v.shape[1]
        return {"v": v.repeat_interleave(group, dim=2).transpose(1, 2)}  # (batch, head, token, width)
