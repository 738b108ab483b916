"""A value with its interval, as every description writes it: ``0.83 (0.79 to 0.87)``.

Who stores a variable with the ends of its 95 % interval beside it (``auroc``, ``auroc_low``, ``auroc_high``) can write it
so; each of the three numbers is kept. This module does not know any study.
"""

from __future__ import annotations

from collections.abc import Callable

from headwise.describe.words import Writer

__all__ = ["ranged"]


def ranged(writer: Writer, read: Callable[[str], float], variable: str, of: str = "") -> str:
    """The variable and its ends, each read by its name; ``of`` is said of all three behind their names."""
    value, low, high = (
        writer.fixed(read(f"{variable}{end}"), f"{variable}{end} {of}".strip()) for end in ("", "_low", "_high")
    )
    return f"{value} ({low} to {high})"
