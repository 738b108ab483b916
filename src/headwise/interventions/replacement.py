"""Replace: heads say what they said elsewhere, other heads in every row of a batch (activation patching, many at once).

Where `Resample` gives one set of heads the z of other examples, this gives every row of the batch a set of its own, from
z that was kept from another pass over as many tokens. So one pass can try as many sets of heads as the batch has rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.core.errors import DataError
from headwise.seam import AttentionCall, Intervention


class Replace(Intervention):
    """Put kept z in the place of z, for other heads in every row (activation patching, many at once).

    Args:
        values: layer -> (batch, query, head, width), such as `HeadStreams` keeps.
        where: (batch, layer, head) bool.

    Examples:
        One pass, two experiments: row 0 gets L0H3 of another text, row 1 gets L0H0. (L0H1 looks at the first token, so
        that it says the same in every text.)

        >>> import torch
        >>> from headwise.instruments import HeadStreams
        >>> from headwise.interventions import Replace
        >>> other = HeadStreams()
        >>> with hw.observe(model, other):
        ...     _ = model(**model.encode(["a low door"] * 2))
        >>> where = torch.zeros(2, 3, 6, dtype=torch.bool)
        >>> where[0, 0, 3] = where[1, 0, 0] = True
        >>> now = HeadStreams()
        >>> with hw.observe(model, Replace(other.z, where), now):
        ...     _ = model(**model.encode(["the old river"] * 2))
        >>> (now.z[0] == other.z[0]).all(dim=1).all(dim=-1).int()  # (row, head) of layer 0
        tensor([[0, 1, 0, 1, 0, 0],
                [1, 1, 0, 0, 0, 0]], dtype=torch.int32)
    """

    def __init__(self, values: Mapping[int, Tensor], where: Tensor):
        self.values, self.where = values, where

    def change(self, call: AttentionCall) -> Tensor:
        """A z with the given one in place."""
        own = self.where[:, call.layer, : call.heads].to(call.z.device)
        if not bool(own.any()):
            return call.z
        given = self.values[call.layer].to(call.z.device, call.z.dtype)
        if given.shape != call.z.shape or len(own) != call.batch:
            raise DataError(
                f"layer {call.layer} puts out z of shape {tuple(call.z.shape)}, and what was given has "
                f"{tuple(given.shape)} for {len(own)} rows of heads; keep it from a pass over as many rows and tokens"
            )
        return torch.where(own[:, None, :, None], given, call.z)
