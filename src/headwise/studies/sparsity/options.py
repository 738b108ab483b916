"""What can be chosen about sparsity without training: the rules, and what they are tried on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwise.core.errors import StudyError
from headwise.kernels import Dropping

__all__ = ["SparsityOptions"]

LEAST = {"prompts": 4, "tokens": 8, "batch_tokens": 1, "shard": 1}
DEFAULT = (
    "top 2", "top 6", "top 16",
    "over 0.1", "over 0.02", "over 0.005",
    "window 4 + 1", "window 12 + 1", "window 28 + 1",
    "entmax 2", "entmax 1.5", "entmax 1.25",
    "random 6", "random 16",
)  # fmt: skip
_RULE = re.compile(r"(\w+) ([\d.]+)(?: \+ (\d+))?")


@dataclass(frozen=True)
class SparsityOptions:
    """What can be chosen about the study `sparsity`: what does a model lose when weights are dropped, without training?

    Examples:
        >>> [rule.name for rule in SparsityOptions(rules=("top 4", "window 16 + 4")).droppings]
        ['top 4', 'window 16 + 4']
        >>> SparsityOptions(rules=("half",))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: 'half' is no rule to drop attention weights by; ...
    """

    rules: tuple[str, ...] = DEFAULT  # such as "top 8", "over 0.01", "window 16 + 4", "entmax 1.5", "random 8"
    renormalise: bool = True  # scale what stays so that a row keeps its sum
    prompts: int = 30  # texts
    tokens: int = 64  # of a prompt
    batch_tokens: int = 512  # tokens in a batch, padding included
    shard: int = 10  # prompts between two commits
    seed: int = 0  # of the rule random

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise StudyError(
                    f"sparsity was asked for with {name}={getattr(self, name)}, and needs at least {least}"
                )
        if not self.rules or len({rule.name for rule in self.droppings}) < len(self.rules):
            raise StudyError(f"sparsity was asked for with rules={self.rules}; give at least one, each once")

    @property
    def droppings(self) -> tuple[Dropping, ...]:
        """The rules."""
        found = []
        for text in self.rules:
            match = _RULE.fullmatch(text.strip())
            if match is None:
                raise StudyError(
                    f"{text!r} is no rule to drop attention weights by; write it as 'top 8', 'over 0.01', "
                    "'window 16 + 4', 'entmax 1.5' or 'random 8'"
                )
            found.append(Dropping(match[1], float(match[2]), int(match[3] or 0), self.renormalise, self.seed))
        return tuple(found)
