"""What can be chosen about circuits, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.core.errors import StudyError, did_you_mean
from headwise.corpora import CIRCUIT_TASKS

__all__ = ["CircuitsOptions"]

LEAST = {"ranking": 2, "measuring": 4, "steps": 1, "checked": 4, "batch_tokens": 1}


@dataclass(frozen=True)
class CircuitsOptions:
    """What can be chosen about the study `circuits`: which heads and edges does a task need, and how few?

    Examples:
        >>> from headwise.corpora import CIRCUIT_TASKS
        >>> list(CIRCUIT_TASKS)
        ['induction', 'indirect_object', 'greater_than', 'successor', 'agreement']
        >>> CircuitsOptions(tasks=("greater_than",), edges=False).chosen
        ('greater_than',)
    """

    tasks: tuple[str, ...] | None = None  # None: all
    ranking: int = 8  # pairs of prompts by which heads and edges are ranked
    measuring: int = 12  # other pairs, on which circuits are measured
    steps: int = 3  # between clean and corrupt prompt, of the gradients
    checked: int = 12  # heads that are patched exactly as well
    edges: bool = True  # heads alone take half the time
    goal: float = 0.9  # of the clean-corrupt difference that a circuit has to explain
    batch_tokens: int = 2048  # tokens in a batch, padding included
    seed: int = 0  # of the pairs that are drawn

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise StudyError(
                    f"circuits was asked for with {name}={getattr(self, name)}, and needs at least {least}"
                )
        if not 0 < self.goal <= 1:
            raise StudyError(
                f"circuits was asked for with goal={self.goal}; give a share over 0, at most 1, such as 0.9"
            )
        for name in self.tasks or ():
            if name not in CIRCUIT_TASKS:
                raise StudyError(f"there is no circuit task {name!r}. {did_you_mean(name, CIRCUIT_TASKS)}")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The tasks by name, in their own order."""
        return tuple(name for name in CIRCUIT_TASKS if self.tasks is None or name in self.tasks)
