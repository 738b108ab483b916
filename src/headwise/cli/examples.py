"""Examples under a verb's help: a command a line, and under it, where that is not plain, what it does.

They are written so that neither wraps at 80 columns. This module does not know any verb.
"""

from __future__ import annotations

from rich.markup import escape

__all__ = ["examples"]


def examples(*shown: str | tuple[str, str]) -> str:
    """The commands as they stand under the help; with a second text, what the command does.

    >>> print(examples("headwise plan", ("headwise check", "the default model")))
    [b]Examples[/b]
    <BLANKLINE>
    headwise plan
    <BLANKLINE>
    headwise check
      [dim]the default model[/dim]
    """
    lines = [(one, "") if isinstance(one, str) else one for one in shown]
    told = [f"{escape(command)}\n  [dim]{escape(does)}[/dim]" if does else escape(command) for command, does in lines]
    return "\n\n".join(["[b]Examples[/b]", *told])
