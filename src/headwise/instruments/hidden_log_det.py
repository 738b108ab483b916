"""How many directions do the hidden states of an answer span? The log-determinant of their covariance, at one layer.

    Σ = Zᵀ J Z + α I          reading = 1/n log det Σ,          α = 0.001

with the residual stream after the layer at the answer's n tokens as the columns of Z (width, n), each less the mean of its
entries (J = I - 11ᵀ/width). LLM-Check's hidden score (Sriramanan et al., NeurIPS 2024); `headwise.scores.hidden_states` has the
same formula for arrays. Computed in float64 on the device, so that only one number per text is copied.

Cost: an n x n determinant per text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.dims import EXAMPLE
from headwise.core.errors import SeamError
from headwise.instruments.readings import HostCopy, joined
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure

RIDGE = 1e-3  # α


class HiddenLogDet(Instrument):
    """1/n log det of the covariance of an answer's hidden states, per text.

    Args:
        prompts: (example,), the number of prompt tokens of each example.
        layer: after which the residual stream is read.

    Examples:
        >>> import torch
        >>> from headwise.instruments import HiddenLogDet
        >>> asked = torch.tensor([len(model.ids("where was the river ?"))])
        >>> with hw.observe(model, HiddenLogDet(asked, layer=1)) as seen:
        ...     _ = model(**model.encode("where was the river ? under the old house"))
        >>> seen["hidden_log_det"].hidden_log_det.dims
        ('example',)
    """

    name = "hidden_log_det"

    def __init__(self, prompts: Tensor, layer: int):
        self.prompts, self.layer = prompts, layer
        self._answer: Tensor | None = None  # (batch, token) bool, during a pass
        self._found: Tensor | None = None
        self._passes: list[Callable[[], Tensor]] = []
        self._copy = HostCopy()

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Register the hook."""
        stack.callback(structure.layers[self.layer].register_forward_hook(self._hook).remove)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Locate the answer's tokens."""
        if context.cached:
            raise SeamError(
                "HiddenLogDet needs prompt and answer in one forward pass; run them together with use_cache=False"
            )
        position = context.valid.cumsum(dim=1) - 1
        self._answer = context.valid & (position >= self.prompts.to(position.device)[:, None])

    def on_layer(self, call: AttentionCall) -> None:
        """Nothing: the hook reads the residual stream."""

    def on_forward_end(self, context: ForwardContext) -> None:
        """Start the copy to the CPU."""
        assert self._found is not None
        self._passes.append(self._copy.start(self._found))
        self._answer = self._found = None

    def result(self) -> xr.Dataset:
        """All passes so far."""
        if not self._passes:
            raise SeamError("HiddenLogDet has no readings yet; run the model inside `with observe(...)`")
        self._copy.wait()
        return xr.Dataset({"hidden_log_det": (EXAMPLE, joined(self._passes).numpy())})

    def _hook(self, _: nn.Module, args: Any, output: Any) -> None:
        if self._answer is None:
            return  # outside of an observed pass
        hidden = (output[0] if isinstance(output, tuple) else output).detach()
        answer = self._answer.to(hidden.device)
        self._found = mean_log_eigenvalue(hidden.reshape(*answer.shape, -1), answer)


def mean_log_eigenvalue(hidden: Tensor, chosen: Tensor) -> Tensor:
    """(batch,): 1/n log det of the covariance of the chosen tokens (batch, token) of hidden states (batch, token, width)."""
    count = chosen.sum(dim=1)
    order = torch.argsort(~chosen, dim=1, stable=True)[:, : max(1, int(count.max()))]  # the chosen ones first
    taken = hidden.gather(1, order[:, :, None].expand(-1, -1, hidden.shape[-1])).double()
    taken = (taken - taken.mean(dim=-1, keepdim=True)).masked_fill(~chosen.gather(1, order)[:, :, None], 0.0)
    alpha = RIDGE * torch.eye(taken.shape[1], dtype=taken.dtype, device=taken.device)
    total = torch.linalg.slogdet(taken @ taken.mT + alpha).logabsdet
    padding = taken.shape[1] - count  # each adds log α
    return (total - padding * torch.log(torch.tensor(RIDGE, dtype=taken.dtype))) / count
