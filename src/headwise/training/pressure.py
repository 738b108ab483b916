"""How hard the edges are pressed: a weight that rises while the loss is under its limit, and falls when it is over (GECO).

    excess   = moving average of (loss of the sparse model - loss of the dense one on the same rows), training rows,
               shifted by what held-out rows with hard gates last cost more than that; or of the distance between the
               two models' distributions (the recipe's `hold`)
    pressure = pressure * exp(speed * clip((slack - excess) / slack, -FALL, 1))      after every step

It falls quicker than it rises, because a gate that was shut too far has next to no gradient to open again. Pressing on the
log of the share instead, so that one weight would do from all edges to one in a thousand, was tried: the force on an edge
then grows as others close, and the model collapses before the pressure can follow.

The limit is held on held-out text because a model that adapts to its training text hides the damage there.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

__all__ = ["Pressure"]

MEMORY = 0.9  # of the moving average
FALL = 4.0  # how much quicker the pressure falls than rises


@dataclass
class Pressure:
    """The state; `to_dict` and `Pressure(**kept)` carry it over a checkpoint."""

    weight: float
    slack: float
    speed: float
    most: float
    excess: float | None = None  # on training rows
    gap: float = 0.0  # held-out rows with hard gates, over training rows

    @property
    def held(self) -> float:
        """What is compared with the slack."""
        return (0.0 if self.excess is None else self.excess) + self.gap

    def see(self, excess: float) -> None:
        """One step's excess on its training rows."""
        self.excess = excess if self.excess is None else MEMORY * self.excess + (1 - MEMORY) * excess
        push = max(-FALL, min(1.0, (self.slack - self.held) / self.slack))
        self.weight = min(self.most, max(1e-5, self.weight * math.exp(self.speed * push)))

    def see_held_out(self, excess: float) -> None:
        """A look at held-out rows."""
        self.gap = excess - (self.excess or 0.0)

    def to_dict(self) -> dict[str, float | None]:
        """For a checkpoint."""
        return asdict(self)
