"""The one place that prints: text from atlases, models and data files never reaches the terminal as control codes.

`echo` prints a line, `marked` is text for rich (neither markup nor codes of its own), `console` a console of the right width.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from headwise.core.markup import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["complain", "console", "echo", "marked"]

DEFAULT_WIDTH = 120  # if the output is not a terminal
LONGEST_WORD, LONGEST_SENTENCE = 300, 2000  # characters of a complaint


def complain(text: object) -> None:
    """Print one sentence about what went wrong: on one line, and with long words of other people shortened."""
    line = " ".join(str(text).split())
    line = re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: _shortened(word[0], LONGEST_WORD), line)
    echo(f"headwise: {_shortened(line, LONGEST_SENTENCE)}", err=True, colour="red")


def _shortened(text: str, length: int) -> str:
    half = length // 2 - 2
    return text if len(text) <= length else f"{text[:half]}...{text[-half:]}"


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
