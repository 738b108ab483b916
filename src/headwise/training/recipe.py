"""What a run of sparse post-training does, as data: two runs of one recipe on one set of texts give one result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from headwise.core.errors import StudyError

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """All settings. The loss is held within `slack` of the dense model's on the same text, and edges are pressed down.

    Examples:
        The gates' bias falls to 0 over the first third of the run.

        >>> recipe = Recipe(steps=300)
        >>> [round(recipe.bias_at(step), 1) for step in (0, 50, 100, 200)]
        [8.0, 4.2, 0.4, 0.0]
    """

    steps: int = 1000  # of the optimiser
    batch: int = 16  # rows a step
    length: int = 512  # tokens a row
    micro: int = 0  # rows run at a time; 0: all of a step's
    rate: float = 1e-3  # of learning
    warmup: int = 50  # steps in which the rate rises; it falls to a tenth over the last fifth
    slack: float = 0.03  # nats a token that may be lost on held-out text
    bias: float = 8.0  # of the gates at the start: nearly all open
    anneal: float = 0.35  # share of the steps over which the bias falls to 0
    pressure: float = 0.05  # weight of the share of open edges at the start
    most_pressure: float = 1e4  # what that weight may rise to
    speed: float = 0.02  # how quickly the pressure follows: its log moves by this much a step at most
    least: float = 0.0  # share of edges below which nothing is pressed any more
    hold: str = "loss"  # what may not get worse by more: this, or the "distance" to the dense model's distribution
    distil: float = 1.0  # share of the fit that follows the dense model's distribution rather than the text itself
    rank: int = 16  # of the adapter; 0: all weights are trained
    rank_attention: int = 0  # of the adapter on queries and keys; 0: as the others
    gated: bool = True  # False: the dense control, the same training without gates
    evaluate: int = 100  # steps between looks at held-out text
    rows: int = 8  # held-out rows of each kind, a look
    checkpoint: int = 200  # steps between checkpoints
    seed: int = 0  # of rows and gates

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "length", "evaluate", "rows", "checkpoint"):
            if getattr(self, name) < 1:
                raise StudyError(f"{name} is {getattr(self, name)}; give at least 1.")
        for name in ("anneal", "distil", "least"):
            if not 0 <= getattr(self, name) <= 1:
                raise StudyError(f"{name} is {getattr(self, name)}; give a share from 0 to 1.")
        if self.hold not in ("loss", "distance"):
            raise StudyError(f"hold is {self.hold!r}; give loss or distance.")
        for name in ("rate", "slack", "pressure", "speed"):
            if getattr(self, name) <= 0:
                raise StudyError(f"{name} is {getattr(self, name)}; give a number above 0.")

    def excess(self, loss: float, dense: float, distance: float) -> float:
        """How much worse than the dense model the student is, by what is held."""
        return distance if self.hold == "distance" else loss - dense

    def bias_at(self, step: int) -> float:
        """The gates' bias: from `bias` to 0, evenly, then 0."""
        reach = self.anneal * self.steps
        return self.bias * max(0.0, 1 - step / reach) if reach else 0.0

    def rate_at(self, step: int) -> float:
        """The rate of learning: up, level, down."""
        up = min(1.0, (step + 1) / max(1, self.warmup))
        left = (self.steps - step) / max(1.0, 0.2 * self.steps)
        return self.rate * up * min(1.0, max(0.1, left))

    def digest(self) -> str:
        """What a checkpoint is known by. How often one looks or saves changes nothing in the run."""
        kept = {name: value for name, value in asdict(self).items() if name not in ("checkpoint", "micro")}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]
