"""The settings and schedules of sparse post-training: two runs of one recipe on one set of texts give one result.

`GecoController` adapts the weight of the sparsity penalty (GECO): it rises while the loss is under its limit and falls
while it is over.

    excess   = moving average of (sparse loss - dense loss on the same training rows), shifted by the excess of held-out
               rows with hard gates over that; or of the distance between the two distributions (the recipe's `hold`)
    weight   = weight * exp(speed * clip((slack - excess) / slack, -FALL, 1))      after every step

It falls faster than it rises, because a gate that is far closed has almost no gradient to open again. Penalising the log
of the open share, so that one weight would serve from all edges to one in a thousand, was tried: the gradient on an edge
then grows as others close, and the model collapses before the controller can follow. The limit applies to held-out text,
because a model that adapts to its training text hides the damage there.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass

from headwise.core.errors import StudyError
from headwise.core.options import option


@dataclass(frozen=True)
class SparsityRecipe:
    """All settings. The loss stays within `slack` of the dense model's on the same text; open edges are penalised.

    Examples:
        The gates' bias falls to 0 over the first third of the run.

        >>> recipe = SparsityRecipe(steps=300)
        >>> [round(recipe.bias_at(step), 1) for step in (0, 50, 100, 200)]
        [8.0, 4.2, 0.4, 0.0]
    """

    steps: int = option(1000, "number of training steps")
    batch: int = option(16, "rows per step")
    length: int = option(512, "tokens per row")
    micro_batch: int = option(0, "rows per forward pass; 0: all rows of a step")
    learning_rate: float = option(1e-3, "learning rate after the warmup")
    warmup: int = option(50, "steps of rising learning rate; over the last fifth of the run it falls to a tenth")
    slack: float = option(0.03, "nats per token by which the held-out loss may exceed that of the dense model")
    bias: float = option(8.0, "bias of the gates at the start, when nearly all are open")
    anneal: float = option(0.35, "fraction of the steps over which the bias falls to 0")
    pressure: float = option(0.05, "initial weight of the sparsity penalty, which is the share of open edges")
    max_pressure: float = option(1e4, "upper bound of that weight")
    speed: float = option(0.02, "largest change of the logarithm of that weight per step")
    min_share: float = option(0.0, "share of open edges below which there is no penalty")
    hold: str = option("loss", "constrained quantity: loss, or distance (to the dense model's next-token distribution)")
    distil: float = option(1.0, "weight of distillation, from 0 to 1; the rest is the cross-entropy of the text")
    rank: int = option(16, "rank of the adapter; 0 trains all weights")
    rank_attention: int = option(0, "rank of the adapter on queries and keys; 0: the same rank")
    gated: bool = option(True, "no: train the same way without gates, as a dense control")
    evaluate: int = option(100, "steps between evaluations on held-out text")
    rows: int = option(8, "held-out rows per kind of text and evaluation")
    checkpoint: int = option(200, "steps between checkpoints")
    seed: int = option(0, "random seed of the rows and gates")

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "length", "evaluate", "rows", "checkpoint"):
            if getattr(self, name) < 1:
                raise StudyError(f"{name} is {getattr(self, name)}; give at least 1.")
        for name in ("anneal", "distil", "min_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise StudyError(f"{name} is {getattr(self, name)}; give a share from 0 to 1.")
        if self.hold not in ("loss", "distance"):
            raise StudyError(f"hold is {self.hold!r}; give loss or distance.")
        for name in ("learning_rate", "slack", "pressure", "speed"):
            if getattr(self, name) <= 0:
                raise StudyError(f"{name} is {getattr(self, name)}; give a number above 0.")

    def excess(self, loss: float, dense: float, distance: float) -> float:
        """The constrained quantity: how much worse the student is than the dense model."""
        return distance if self.hold == "distance" else loss - dense

    def bias_at(self, step: int) -> float:
        """The gates' bias: linear from `bias` to 0, then 0."""
        reach = self.anneal * self.steps
        return self.bias * max(0.0, 1 - step / reach) if reach else 0.0

    def rate_at(self, step: int) -> float:
        """The learning rate: linear warmup, constant, linear decay."""
        warmup = min(1.0, (step + 1) / max(1, self.warmup))
        decay = (self.steps - step) / max(1.0, 0.2 * self.steps)
        return self.learning_rate * warmup * min(1.0, max(0.1, decay))

    def digest(self) -> str:
        """Identifies the run of a checkpoint; settings that do not change the result are left out."""
        settings = {name: value for name, value in asdict(self).items() if name not in ("checkpoint", "micro_batch")}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


DECAY = 0.9  # of the moving average
FALL = 4.0  # how much faster the weight falls than rises


@dataclass
class GecoController:
    """The weight of the sparsity penalty; ``asdict`` and ``GecoController(**state)`` store it in a checkpoint."""

    weight: float
    slack: float
    speed: float
    max_weight: float
    excess: float | None = None  # moving average on training rows
    gap: float = 0.0  # excess of held-out rows with hard gates, minus that of training rows

    @property
    def estimated_excess(self) -> float:
        """The estimate of the held-out excess, which is compared with the slack."""
        return (0.0 if self.excess is None else self.excess) + self.gap

    def update(self, excess: float) -> None:
        """Adapt the weight to one step's excess on its training rows."""
        self.excess = excess if self.excess is None else DECAY * self.excess + (1 - DECAY) * excess
        push = max(-FALL, min(1.0, (self.slack - self.estimated_excess) / self.slack))
        self.weight = min(self.max_weight, max(1e-5, self.weight * math.exp(self.speed * push)))

    def update_held_out(self, excess: float) -> None:
        """Adapt the gap to the excess on held-out rows."""
        self.gap = excess - (self.excess or 0.0)
