"""Scale what heads put out: 0 switches them off, 1 changes nothing, 2 doubles them."""

from __future__ import annotations

from torch import Tensor

from headwise.interventions.heads import Heads, OnHeads
from headwise.seam import Frame, Positions


class Scale(OnHeads):
    """z -> factor * z."""

    def __init__(self, heads: Heads, factor: float = 0.0, positions: Positions = "all"):
        super().__init__(heads, positions)
        self.factor = factor

    def new(self, frame: Frame, heads: list[int], z: Tensor) -> Tensor:
        """Scaled."""
        return z * self.factor
