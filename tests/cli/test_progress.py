"""What a build says of itself: lines in a log, bars on a terminal, nothing where JSON is asked for."""

from __future__ import annotations

import io
import re
import sys

import pytest

from headwise.studies.progress import SECONDS_BETWEEN_LINES, ProgressBars, ProgressLines, progress_display

STARTED, ENDED = (
    re.compile(r"profile: 0 of (\d+) examples"),
    re.compile(r"profile: (\d+) of \1 examples, done in 0:00:\d\d"),
)


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_when_a_study_starts_and_one_when_it_ends(headwise, tiny, texts, tmp_path):
    command = ("build", tiny, "--data", texts, "--studies", "profile", "-o", tmp_path / "atlas")
    lines = headwise(*command).err.splitlines()
    assert lines[0] == f"loading {tiny}"
    assert STARTED.fullmatch(lines[1]) and ENDED.fullmatch(lines[2])
    assert lines[3:] == ["drawing", "writing the report"]
    assert "profile: all 28 examples were measured earlier" in headwise(*command).err.splitlines()
    assert headwise(*command, "--json").err == ""


def test_a_long_study_gets_a_line_a_minute():
    told: list[str] = []
    clock = Clock()
    lines = ProgressLines(told.append, clock=clock)
    for done in range(101):
        lines.update("spectral", done, 100)
        clock.now += 1.8
    lines.ended("spectral")
    lines.close()  # says nothing twice
    assert told == [
        "spectral: 0 of 100 examples",
        "spectral: 34 of 100 examples, 0:01:01 elapsed",
        "spectral: 68 of 100 examples, 0:02:02 elapsed",
        "spectral: 100 of 100 examples, done in 0:03:02",
    ]
    assert SECONDS_BETWEEN_LINES == 60


def test_what_was_not_finished_is_not_said_to_be():
    told: list[str] = []
    lines = ProgressLines(told.append, of="steps")
    lines.update("training", 3, 8, note="loss 3.1")
    lines.update("report", 0, 2)
    lines.update("report", 2, 2)
    lines.close()
    assert told == ["training: 3 of 8 steps; loss 3.1", "report: 0 of 2 steps", "report: 2 of 2 steps, done in 0:00:00"]


@pytest.mark.parametrize(("stream", "kind"), [(Terminal, ProgressBars), (io.StringIO, ProgressLines)])
def test_bars_are_for_terminals(monkeypatch, stream, kind):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")  # a CI that wants colours is no terminal
    monkeypatch.setattr(sys, "stderr", stream())
    with progress_display() as progress:
        assert isinstance(progress, kind)
        progress.update("profile", 1, 2)


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_display() as progress:
        assert isinstance(progress, ProgressLines)
