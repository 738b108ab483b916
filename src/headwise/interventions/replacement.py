"""Replace: heads say what they said elsewhere, other heads in every row of a batch (activation patching, many at once).

Where `Resample` gives one set of heads the z of other examples, this gives every row of the batch a set of its own, from
z that was kept from another pass over as many tokens. So one pass can try as many sets of heads as the batch has rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.errors import DataError
from headwise.seam import Frame, Intervention


class Replace(Intervention):
    """z -> given z, for the heads that `where` names in each row.

    `values`: layer -> (batch, query, head, width), such as `HeadStreams` keeps. `where`: (batch, layer, head) bool.
    """

    def __init__(self, values: Mapping[int, Tensor], where: Tensor):
        self.values, self.where = values, where

    def change(self, frame: Frame) -> Tensor:
        """A z with the given one in place."""
        own = self.where[:, frame.layer, : frame.heads].to(frame.z.device)
        if not bool(own.any()):
            return frame.z
        given = self.values[frame.layer].to(frame.z.device, frame.z.dtype)
        if given.shape != frame.z.shape or len(own) != frame.batch:
            raise DataError(
                f"layer {frame.layer} puts out z of shape {tuple(frame.z.shape)}, and what was given has "
                f"{tuple(given.shape)} for {len(own)} rows of heads; keep it from a pass over as many rows and tokens"
            )
        return torch.where(own[:, None, :, None], given, frame.z)
