"""What a check of a model says: one line a check, and the layers that have no heads to read.

This module does not know how anything is checked (`verify` does).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from headwise.core.markup import card, table

__all__ = ["Check", "Verdict"]


@dataclass(frozen=True)
class Check:
    """One line of a `Verdict`.

    Examples:
        >>> layers, *others = hw.check(model).checks
        >>> layers.name, layers.passed, layers.says
        ('layers', True, '3 of 3 layers have heads, and each was seen once a pass')
    """

    name: str  # layers, logits, reductions, heads, causality or padding
    passed: bool  # whether the error is below the limit
    says: str  # what was compared, and on how much
    error: float | None = None  # the largest difference that was found
    limit: float | None = None  # the largest that is let pass


@dataclass
class Verdict:
    """All checks of a model, and the layers that have no heads to read. Made by `headwise.check`.

    Examples:
        >>> verdict = hw.check(model)
        >>> verdict.passed, [one.name for one in verdict.checks]
        (True, ['layers', 'logits', 'reductions', 'heads', 'causality', 'padding'])
    """

    model: str  # its id
    checks: list[Check] = field(default_factory=list)  # in the order in which they are made
    refused: dict[int, str] = field(default_factory=dict)  # layer -> why it has no heads

    @property
    def passed(self) -> bool:
        """Whether this model can be measured."""
        return all(check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "passed": self.passed}

    def __repr__(self) -> str:
        wrong = [check.name for check in self.checks if not check.passed]
        return f"<Verdict {self.model}: {'ok' if self.passed else 'NOT ok: ' + ', '.join(wrong)}>"

    def _repr_html_(self) -> str:
        rows = [("✓" if one.passed else "✗ not ok", one.name, one.says, *_errors(one)) for one in self.checks]
        rows += [("–", f"layer {layer}", reason, "", "") for layer, reason in self.refused.items()]
        heading = "can be measured" if self.passed else "can NOT be measured right"
        return card(f"{self.model} {heading}", table(rows, header=("", "check", "what was seen", "error", "limit")))


def _errors(one: Check) -> tuple[str, str]:
    return ("" if one.error is None else f"{one.error:.1e}", "" if one.limit is None else f"{one.limit:.0e}")
