"""Pages of the documentation as programs: their blocks are run, in order, and what they say they print is compared.

What a fenced block of a page means:

    ```python                        run, in one namespace a page
    ```json title="pairs.json"       a file: written into the working folder (any language, any title that ends in a suffix)
    ```text                          after a block that was run: what it printed, `...` for what may differ; of an error
                                     that Headwise raises on purpose its last line, as Python prints it
    ```console                       lines after `$ ` are commands of headwise, the others what they print
    ```sh                            for the reader alone
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwise.cli import main as door
from headwise.core.errors import HeadwiseError

DOCS = Path(__file__).parents[1] / "docs"
RUN = ("python", "console")
_FENCE = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]+\.\w+)"')


class Block(NamedTuple):
    """One fenced block."""

    language: str
    file: str  # the name it is written under, or nothing
    text: str
    line: int  # of the page, where the text begins


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    content = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(content):
        title = _TITLE.search(fence[2])
        found.append(Block(fence[1], title[1] if title else "", fence[3], content.count("\n", 0, fence.start(3))))
    return found


def run(page: Path) -> int:
    """Run a page in the working folder; how many blocks were run or compared."""
    space: dict[str, object] = {"__name__": "__page__"}
    printed, count = "", 0
    for block in blocks(page):
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            printed, count = _python("\n" * block.line + block.text, space, page), count + 1
        elif block.language == "console":
            for command, expected in _commands(block.text):
                compare(_command(command), expected, f"{page.name}: {command}")
                count += 1
        elif block.language == "text" and printed:
            compare(printed, block.text, page.name)
            printed, count = "", count + 1
    return count


def compare(found: str, expected: str, where: str) -> None:
    """Fail, showing both, where what was printed is not what the page says; blanks and line ends do not count."""
    found, expected = (" ".join(text.split()) + "\n" for text in (found, expected))
    if not doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS):
        pytest.fail(f"{where} says\n  {expected}and it is\n  {found}")


def _python(code: str, space: dict[str, object], page: Path) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(code, str(page), "exec"), space)
        except HeadwiseError as error:
            out.write(f"{type(error).__name__}: {error}\n")
    return out.getvalue()


def _commands(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def _command(line: str) -> str:
    """What a command prints on both streams."""
    words = shlex.split(line, comments=True)
    assert words[0] == "headwise", f"{line!r} is no command of headwise; put it into a block of sh"
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        patch.setattr(sys, "argv", words)
        with contextlib.suppress(SystemExit):
            door.main()
    return out.getvalue()
