"""Scale what heads put out: 0 switches them off, 1 changes nothing, 2 doubles them."""

from __future__ import annotations

from torch import Tensor

from headwise.interventions.heads import Heads, OnHeads
from headwise.seam import AttentionCall, Positions


class Scale(OnHeads):
    """Weaken, strengthen or switch off heads: z -> factor * z.

    Args:
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        factor: 0 switches off, 1 changes nothing, 2 doubles.
        positions: which tokens (see `headwise.seam.positions`).

    Examples:
        Without the head that looks at the previous token, the induction head finds nothing to copy from.

        >>> inputs = model.encode("the old river was the old river")
        >>> def induction(*changes):
        ...     with hw.observe(model, *changes, hw.Profile()) as seen:
        ...         _ = model(**inputs)
        ...     return round(float(seen["profile"].value.sel(layer=1, head=4, statistic="induction")[0]), 2)
        >>> induction(), induction(hw.Scale("L0H3", 0.0))
        (1.0, 0.14)
    """

    def __init__(self, heads: Heads, factor: float = 0.0, positions: Positions = "all"):
        super().__init__(heads, positions)
        self.factor = factor

    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """Scaled."""
        return z * self.factor
