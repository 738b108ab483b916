"""Progress on the terminal: one bar a study, with the time left; where no terminal is, plain lines (`lines`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import typer
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from headwise.cli.lines import Lines

__all__ = ["Progressing", "progress_bars"]


class Progressing(Protocol):
    """What a verb tells about its progress, be it drawn or written."""

    def say(self, what: str) -> None:
        """A step without a count."""

    def below(self, lines: Sequence[str]) -> None:
        """What each worker does now."""

    def update(self, study: str, done: int, total: int, note: str = "") -> None:
        """Examples done of a study. The first call may already hold some, from an earlier run."""

    def ended(self, study: str) -> None:
        """A study is measured and kept."""


class _Progress(Progress):
    """Bars, with lines of text below them."""

    lines: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, then the lines."""
        yield self.make_tasks_table(self.tasks)
        if self.lines:
            yield Text("\n".join(self.lines), style="dim", no_wrap=True, overflow="ellipsis")


class Bars:
    """Progress, drawn."""

    def __init__(self, progress: _Progress):
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def say(self, what: str) -> None:
        """A step without a count."""
        self._progress.console.print(f"[dim]{what}[/dim]")

    def below(self, lines: Sequence[str]) -> None:
        """What stands under the bars until something else does."""
        self._progress.lines = lines

    def update(self, study: str, done: int, total: int, note: str = "") -> None:
        """Examples done of a study. The first call may already hold some, from an earlier run."""
        if study not in self._tasks:
            self._tasks[study] = self._progress.add_task(study, total=total)
        self._progress.update(self._tasks[study], completed=done, description=f"{study}{note and ': '}{note}")

    def ended(self, study: str) -> None:
        """A study is measured and kept: its bar says so already."""


@contextmanager
def progress_bars(quiet: bool = False, of: str = "examples") -> Iterator[Progressing]:
    """Bars on standard error, so that standard output stays for results; lines where that is no terminal."""
    console = Console(stderr=True, quiet=quiet)
    if quiet or console.is_dumb_terminal or not console.file.isatty():
        lines = Lines((lambda line: None) if quiet else partial(typer.echo, err=True), of)
        yield lines
        lines.close()
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(f"{of},"),
        TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    with _Progress(*columns, console=console) as progress:
        yield Bars(progress)
