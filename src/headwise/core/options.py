"""Fields of options: the default, the help text and the allowed values, in one place for Python, ``--set`` and ``--help``."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
    cli: str = "",
    quick: Any = None,
) -> Any:
    """A field of a dataclass of options.

    Args:
        default: where the user gives none.
        help: one phrase, shown by ``headwise studies STUDY`` and in the reference.
        minimum: the smallest allowed value.
        choices: all allowed values.
        cli: the command-line options that set it, where ``--set`` cannot because it is an object.
        quick: the value in a quick build, where it differs from the default.
    """
    known = {"help": help, "minimum": minimum, "choices": choices, "cli": cli, "quick": quick}
    return field(default=default, metadata=known)


def batch_tokens_option(on_cpu: int) -> Any:
    """The option for the size of batches in tokens; by default so many on a CPU, and what fits on a GPU."""
    help = f"tokens per batch, padding included; None: {on_cpu:,} on a CPU, on a GPU 16,384 or as many as fit"
    return option(None, help, minimum=1)


def shard_option(on_cpu: int) -> Any:
    """How many examples are measured between two saves; by default so many on a CPU."""
    what = "number of examples between saves; a killed build loses at most these"
    return option(None, f"{what}; None: {on_cpu} on a CPU, on a GPU up to 512", minimum=1)
