"""The one place that prints: text from atlases, models and data files never reaches the terminal as control codes.

`echo` prints a line, `marked` is text for rich (neither markup nor codes of its own), `console` a console of the right width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from headwise.core.markup import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "echo", "marked"]

DEFAULT_WIDTH = 120  # if the output is not a terminal


def echo(text: object = "", *, err: bool = False, colour: str | None = None) -> None:
    """Print one text and a line break."""
    typer.secho(printable(str(text)), err=err, fg=colour)


def marked(text: object) -> str:
    """Text as a part of what rich prints."""
    return escape(printable(str(text)))


def console(*, width: int = DEFAULT_WIDTH, soft_wrap: bool = False) -> Console:
    """For tables: as wide as the terminal, or ``width`` if the output is a file."""
    from rich.console import Console

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=width, soft_wrap=soft_wrap)
