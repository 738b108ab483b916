"""Progress of long work: one bar per study with the time left; plain lines where there is no terminal, such as in a log file.

    profile: 0 of 100 examples
    profile: 60 of 100 examples, 0:01:02 elapsed
    profile: 100 of 100 examples, done in 0:01:43
    spectral: detectors, 30 of 86 steps, about 0:00:41 left

A study gets a line when it starts and one when it ends, and one per minute in between; inside a long shard, and while its
statistics are computed, one every ten seconds. Everything goes to standard error, so that standard output stays free for
results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

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

from headwise.engines import Listener

__all__ = ["ProgressBars", "ProgressDisplay", "ProgressLines", "ProgressListener", "progress_display"]

SECONDS_BETWEEN_LINES = 60.0
SECONDS_BETWEEN_STEPS = 10.0  # lines inside a long shard, and while statistics are computed
MAX_WORKER_LINES = 8


class ProgressDisplay(Protocol):
    """Shows progress, as bars or as lines."""

    def message(self, text: str) -> None:
        """A step without a count."""

    def worker_lines(self, lines: Sequence[str]) -> None:
        """What each worker is doing."""

    def update(self, study: str, done: int, total: int, note: str = "") -> None:
        """Examples done of a study. The first call may already include some of an earlier run."""

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        """Steps inside a long shard of a study, or of its statistics."""

    def ended(self, study: str) -> None:
        """A study is measured and stored."""


class _BarsAndLines(Progress):
    """Bars, with lines of text below them."""

    lines: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, then the lines."""
        yield self.make_tasks_table(self.tasks)
        if self.lines:
            yield Text("\n".join(self.lines), style="dim", no_wrap=True, overflow="ellipsis")


class ProgressBars:
    """Progress as bars on a terminal or in a notebook."""

    def __init__(self, progress: _BarsAndLines) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def message(self, text: str) -> None:
        """A step without a count."""
        self._progress.console.print(f"[dim]{text}[/dim]")

    def worker_lines(self, lines: Sequence[str]) -> None:
        """The lines below the bars."""
        self._progress.lines = lines

    def update(self, study: str, done: int, total: int, note: str = "") -> None:
        """Examples done of a study. The first call may already include some of an earlier run."""
        if study not in self._tasks:
            self._tasks[study] = self._progress.add_task(study, total=total)
        self._progress.update(self._tasks[study], completed=done, description=f"{study}{note and ': '}{note}")

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        """A bar of its own, counted in steps."""
        name = f"{study}: {what}, steps"
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)

    def ended(self, study: str) -> None:
        """Nothing to do: the bar is full."""


class _Count:
    """The progress of one study."""

    def __init__(self, done: int, total: int, now: float) -> None:
        self.done, self.total, self.start, self.last_line, self.ended = done, total, now, now, False


class ProgressLines:
    """Progress as lines of text.

    >>> lines = ProgressLines(print, of="steps", clock=iter([0.0, 61.0, 75.0]).__next__)
    >>> for done in (0, 5):
    ...     lines.update("training", done, 8)
    training: 0 of 8 steps
    training: 5 of 8 steps, 0:01:01 elapsed
    >>> lines.ended("training")
    training: 8 of 8 steps, done in 0:01:15
    """

    def __init__(
        self, write: Callable[[str], object], of: str = "examples", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._of, self._clock = write, of, clock
        self._counts: dict[str, _Count] = {}
        self._steps: dict[str, _Count] = {}

    def message(self, text: str) -> None:
        """A step without a count."""
        self._write(text)

    def worker_lines(self, lines: Sequence[str]) -> None:
        """Not shown: what workers do changes too often for a log."""

    def update(self, study: str, done: int, total: int, note: str = "") -> None:
        """Examples done of a study; all of them at the first call: it was measured before."""
        now, suffix = self._clock(), note and f"; {note}"
        if study not in self._counts:
            self._counts[study] = _Count(done, total, now)
            if done >= total:
                self._counts[study].ended = True
                self._write(f"{study}: all {total} {self._of} were measured earlier{suffix}")
            else:
                self._write(f"{study}: {done} of {total} {self._of}{suffix}")
            return
        count = self._counts[study]
        count.done, count.total = done, total
        if now - count.last_line >= SECONDS_BETWEEN_LINES:
            count.last_line = now
            self._write(f"{study}: {done} of {total} {self._of}, {_clock_text(now - count.start)} elapsed{suffix}")

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        """A line when steps begin, and one every ten seconds."""
        now, name = self._clock(), f"{study}: {what}"
        if name not in self._steps or done < self._steps[name].done:
            self._steps[name] = _Count(done, total, now)
            self._write(f"{name}, {done} of {total} steps")
            return
        count = self._steps[name]
        count.done = done
        if now - count.last_line >= SECONDS_BETWEEN_STEPS and done < total:
            count.last_line = now
            left = f", about {_clock_text((now - count.start) * (total - done) / done)} left" if done else ""
            self._write(f"{name}, {done} of {total} steps{left}")

    def ended(self, study: str) -> None:
        """A study is measured and stored."""
        count = self._counts.get(study)
        if count is not None and not count.ended:
            count.ended = True
            took = _clock_text(self._clock() - count.start)
            self._write(f"{study}: {count.total} of {count.total} {self._of}, done in {took}")

    def close(self) -> None:
        """Report everything that was counted to its end as ended."""
        for study, count in self._counts.items():
            if count.done >= count.total:
                self.ended(study)


def _clock_text(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class ProgressListener(Listener):
    """Shows the progress of a build on a display."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display

    def progress(self, study: str, done: int, total: int) -> None:
        """Examples of a study are done."""
        self._display.update(study, done, total)

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        """A study's statistics are computed."""
        self._display.concluding(study, what, done, total)

    def ended(self, study: str) -> None:
        """A study is in the atlas."""
        self._display.ended(study)

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        """What each worker is doing; of many workers, how many do what."""
        if len(doing) <= MAX_WORKER_LINES:
            self._display.worker_lines([f"  {worker}: {what}" for worker, what in doing.items()])
            return
        kinds: dict[str, int] = {}
        for what in doing.values():
            kind = what.partition(" ")[0].rstrip(",")
            kinds[kind] = kinds.get(kind, 0) + 1
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        self._display.worker_lines([f"  {len(doing)} workers: {counts}"])

    def event(self, sentence: str) -> None:
        """Something happened that the user may want to know."""
        self._display.message(sentence)


@contextmanager
def progress_display(
    quiet: bool = False, of: str = "examples", write: Callable[[str], object] | None = None
) -> Iterator[ProgressDisplay]:
    """Bars on a terminal and in a notebook, lines elsewhere; nothing where ``quiet``."""
    console = Console(stderr=True, quiet=quiet)
    if quiet or not (console.is_jupyter or (console.file.isatty() and not console.is_dumb_terminal)):
        lines = ProgressLines(
            (lambda line: None) if quiet else write or (lambda line: print(line, file=sys.stderr)), of
        )
        yield lines
        lines.close()
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(f"{of},"),
        TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    with _BarsAndLines(*columns, console=console) as progress:
        yield ProgressBars(progress)


def shows_progress() -> bool:
    """Whether somebody watches: standard error is a terminal, or this is a notebook."""
    console = Console(stderr=True)
    return console.is_jupyter or console.is_terminal
