"""How much attention a token receives from the tokens after it, at chosen tokens.

    r_j = sum_{i > j} a_ij / (queries after j that can see it)

the mean weight that later tokens put on token j, itself left out: column sums less the diagonal. The last token of a text
has no later one and is NaN. A token near the end is seen by few, so its mean is over few.

Cost: the spectrum's streamed pass. Assumes whole sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.dims import TOKEN
from headwise.instruments.readings import PickedReadings
from headwise.kernels import ReductionRequest
from headwise.seam import AttentionCall, ForwardContext


class Received(PickedReadings):
    """Attention that the chosen tokens receive in every head; NaN where an example has no such token.

    Args:
        positions: which tokens (see `headwise.seam.positions`).

    Examples:
        L0H1 looks at the first token, whatever the text.

        >>> from headwise.instruments import Received
        >>> with hw.observe(model, Received([0, 2])) as seen:
        ...     _ = model(**model.encode("the old river was here"))
        >>> seen["received"].received.sel(layer=0, head=1).values.round(2)
        array([[1., 0.]], dtype=float32)
    """

    name = "received"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"received": (TOKEN,)}

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Column sums and the diagonal."""
        return ReductionRequest(column_sums=True, log_diagonal=True)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Pick the tokens of one layer."""
        sums, log_diagonal = call.reductions.column_sums, call.reductions.log_diagonal
        assert sums is not None and log_diagonal is not None
        later = call.attention.mask.n_visible_queries(call.batch) - 1  # (batch, 1, key)
        whole = (sums - log_diagonal.exp()) / later.clamp(min=1)
        whole = whole.masked_fill(later < 1, torch.nan)  # (batch, head, key)
        index = self._index.to(whole.device)
        picked = whole.gather(2, index.clamp(min=0)[:, None].expand(-1, whole.shape[1], -1))
        return {"received": picked.masked_fill((index < 0)[:, None], torch.nan)}
