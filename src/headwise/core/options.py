"""Fields of options: the default, the help text and the allowed values, in one place for Python, ``--set`` and ``--help``."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(
    default: Any, help: str, *, minimum: float | None = None, choices: tuple[str, ...] = (), cli: str = ""
) -> Any:
    """A field of a dataclass of options.

    Args:
        default: where the user gives none.
        help: one phrase, shown by ``headwise studies STUDY`` and in the reference.
        minimum: the smallest allowed value.
        choices: all allowed values.
        cli: the command-line options that set it, where ``--set`` cannot because it is an object.
    """
    return field(default=default, metadata={"help": help, "minimum": minimum, "choices": choices, "cli": cli})
