"""Another change for every row of a batch: many sets of heads tried in one pass.

    z of row b  ->  factor[b, layer, head] · z  +  shift[b, layer, head]

One batch can then hold the same prompt many times, each time with other heads switched off. Rows leave a batch when their
answer is done, so who runs it tells, at each pass, which of the rows the lines of the batch are.

Cost: one product a layer in which something changes. This module does not know why a head is changed.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from headwise.core.errors import DataError
from headwise.seam import AttentionCall, Intervention

__all__ = ["ByRow"]


class ByRow(Intervention):
    """Scale, and shift, the heads of each row in its own way, at every token of every pass.

    Args:
        factor: (row, layer, head), what z is multiplied by.
        shift: None, or (row, layer, head, width), what is added.
        lines: gives, at each pass, the row of every line of the batch, (batch,); None: line b is row b.

    Examples:
        Every head of layer 0 is switched off, each in a row of its own: which one does the induction head need?

        >>> import torch
        >>> from headwise.interventions import ByRow
        >>> off = torch.ones(6, 3, 6)
        >>> off[range(6), 0, range(6)] = 0.0  # row r is without L0Hr
        >>> with hw.observe(model, ByRow(off), hw.Profile()) as seen:
        ...     _ = model(**model.encode(["the old river was the old river"] * 6))
        >>> seen["profile"].value.sel(layer=1, head=4, statistic="induction").values.round(2)
        array([1.  , 1.  , 1.  , 0.14, 1.  , 1.  ], dtype=float32)
    """

    def __init__(self, factor: Tensor, shift: Tensor | None = None, lines: Callable[[], Tensor] | None = None):
        if factor.ndim != 3 or (shift is not None and shift.shape[:3] != factor.shape):
            raise DataError(
                f"factor has the shape {tuple(factor.shape)}"
                + ("" if shift is None else f" and shift {tuple(shift.shape)}")
                + "; give (row, layer, head), and (row, layer, head, width) for the shift"
            )
        self.factor, self.shift, self.lines = factor, shift, lines
        scaled = (factor != 1).any(dim=2).any(dim=0)  # (layer,)
        shifted = (shift != 0).any(dim=3).any(dim=2).any(dim=0) if shift is not None else scaled & False
        self._scaled, self._shifted = scaled.tolist(), shifted.tolist()
        self._there: dict[tuple[str, int], Tensor] = {}  # a layer's part, where that layer is

    def change(self, call: AttentionCall) -> Tensor:
        """A z with every row's own change."""
        z, layer, heads = call.z, call.layer, call.heads
        if not self._scaled[layer] and not self._shifted[layer]:
            return z
        lines = slice(None) if self.lines is None else self.lines().to(z.device)
        if self._scaled[layer]:
            factor = self._part("factor", self.factor, call)[lines, :heads]  # (batch, head)
            _check(len(factor), len(z))
            z = z * factor[:, None, :, None]
        if self._shifted[layer] and self.shift is not None:
            shift = self._part("shift", self.shift, call)[lines, :heads, : z.shape[-1]]  # (batch, head, width)
            _check(len(shift), len(z))
            z = z + shift[:, None]
        return z

    def _part(self, name: str, whole: Tensor, call: AttentionCall) -> Tensor:
        """One layer of all rows' changes, as z is."""
        key = (name, call.layer)
        if key not in self._there:
            self._there[key] = whole[:, call.layer].to(call.z.device, call.z.dtype)
        return self._there[key]


def _check(given: int, batch: int) -> None:
    if given != batch:
        raise DataError(f"changes were given for {given} rows and the batch has {batch}; give one for every row")
