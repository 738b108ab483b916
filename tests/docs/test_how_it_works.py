"""Files and names that the pages name are there: a newcomer who follows a page finds what it says, where it says."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from page_code import DOCS

ROOT = DOCS.parent
SOURCE = ROOT / "src" / "headwise"
PAGE = DOCS / "how-it-works" / "from-token-to-page.md"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w<>-]+(?:/[\w<>-]+)*/[\w<>-]+\.(?:py|js|css)")  # a path, and no file name alone
DEFINED_IN = re.compile(r"`(\w+)` (?:of |in |\()(?:the study in )?`([\w/]+\.py)`")
WRITTEN_BY_A_READER = ("adding/",)  # pages whose files a reader writes


def is_there(path: str) -> bool:
    """Whether a file of the repository has this path; <name> stands for anything."""
    pattern = re.sub(r"<\w+>", "*", path)
    return any(next(folder.glob(pattern), None) is not None for folder in (SOURCE, ROOT, ROOT / "src", ROOT / "tests"))


@cache
def defined_in(path: Path) -> frozenset[str]:
    """What a file defines: functions, methods, classes, constants, attributes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {node.name for node in ast.walk(tree) if isinstance(node, named)}
    return frozenset(found | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and is_stored(node)})


def is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path):
    if str(page.relative_to(ROOT)).startswith(tuple(f"docs/{part}" for part in WRITTEN_BY_A_READER)):
        pytest.skip("a reader writes these files")
    spans = SPAN.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S))
    assert not [span for span in spans if FILE.fullmatch(span) and not is_there(span)]


def test_what_the_tour_says_of_a_file_is_in_it():
    named = DEFINED_IN.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) >= 10
    assert not [(name, path) for name, path in named if name not in defined_in(SOURCE / path)]


def test_the_tour_names_every_folder():
    """Of the package: whoever wonders what a folder is for finds it there."""
    text = PAGE.read_text(encoding="utf-8")
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert not sorted(folder for folder in folders if f"`{folder}/" not in text)


def test_a_file_that_is_not_there_is_found():
    assert is_there("seam/forward.py") and is_there("studies/<name>/spec.py")
    assert not is_there("seam/backward.py") and not is_there("<name>/no_such_file.py")
    assert "observe" in defined_in(SOURCE / "seam" / "observation.py")
