"""Every command that a page, a notebook, a message or the code of a page tells the reader to type is one that works.

Tutorials are held to more than that (`test_tutorials`); blocks of `console` are run, mistakes and all (`test_code`). Nothing is
run here.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from headwise.cli.main import app
from headwise.cli.preflight import OPTION_INPUTS, refuse_ignored_options
from headwise.cli.settings import refuse_unknown
from headwise.studies.present import figure_types, has_figure
from headwise.studies.registry import datasets, producers

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if re.search(r"^\s*headwise [a-z]", page.read_text(encoding="utf-8"), re.MULTILINE)
]
VERBS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OPTION = re.compile(r"-[a-z]|--[a-z][a-z-]*")


def commands(text: str) -> list[list[str]]:
    """The words of every command, without `headwise` and without the comment behind it."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    told = [part.split("  #")[0] for line in lines for part in line.split("&&")]
    found = [re.match(r"\s*headwise ([a-z].*)", part) for part in told]
    return [shlex.split(one[1]) for one in found if one]


def unknown(verb: str, words: list[str]) -> set[str]:
    """The options that the verb, and for `show` the figure, does not have."""
    known = {name for parameter in VERBS[verb].params for name in parameter.opts} | {"--help"}
    if verb == "show" and len(words) > 1 and has_figure(words[1]):
        known |= {f"--{name.replace('_', '-')}" for name in figure_types(words[1])}
    return {word.partition("=")[0] for word in words if OPTION.fullmatch(word.partition("=")[0])} - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_can_be_typed(page: Path):
    for verb, *words in commands(page.read_text(encoding="utf-8")):
        assert verb in VERBS, f"there is no verb {verb}: headwise {verb} {' '.join(words)}"
        assert not unknown(verb, words), f"headwise {verb} {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_of_a_build_is_looked_at(page: Path):
    """None of those that the build of a page would refuse, since none of its studies reads it."""
    for verb, *words in commands(page.read_text(encoding="utf-8")):
        if verb == "build" and "STUDY" not in words:
            after = dict(pairwise(words))
            studies, redo = after.get("--studies"), after.get("--redo", "")
            if studies == "recency":  # the plug-in of docs/adding/study.md, which tests/studies/test_plugin.py installs
                continue
            settings = [value for name, value in pairwise(words) if name == "--set"]
            given = {option: after.get(option) for option in OPTION_INPUTS}
            refuse_ignored_options(
                studies.split(",") if studies else None, given, settings, redo.split(",") if redo else ()
            )


HINT = re.compile(r"headwise (?:" + "|".join(sorted(VERBS)) + r")\b[^\n`\"';:()]*")
PLACEHOLDER = "\0"  # a value that a message fills in


def hints_of(path: Path) -> list[str]:
    """Commands in the strings of a source file; what an f-string fills in is a placeholder. Docstrings are pages' matter."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else PLACEHOLDER for one in node.values]
            texts.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            texts.append(re.sub(r"\{\w+\}", PLACEHOLDER, node.value))
    return [hint.strip().rstrip(".,") for text in texts for hint in HINT.findall(text)]


def notebook_hints(path: Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [hint.strip().rstrip(".,") for cell in cells for hint in HINT.findall("".join(cell["source"]))]


SOURCES = sorted((ROOT / "src").rglob("*.py"))
HINTS = {hint for path in SOURCES for hint in hints_of(path)}
HINTS |= {hint for path in sorted((ROOT / "docs").rglob("*.ipynb")) for hint in notebook_hints(path)}


def filled(hint: str) -> list[str]:
    """The hint with its placeholders filled in: after --studies and --redo every name that the registry knows."""
    named = re.sub(rf"(--studies|--redo) {PLACEHOLDER}", r"\1 STUDY_NAME", hint).replace(PLACEHOLDER, "value")
    return [named.replace("STUDY_NAME", name) for name in datasets()] if "STUDY_NAME" in named else [named]


@pytest.mark.parametrize("hint", sorted(HINTS), ids=lambda hint: hint.replace(PLACEHOLDER, "_")[:60])
def test_every_hint_of_a_message_is_a_command_that_works(hint: str):
    for command in filled(hint):
        verb, *words = command.removeprefix("headwise ").split()
        options = [word for word in words if OPTION.fullmatch(word.partition("=")[0])]
        assert not unknown(verb, options if verb != "show" else words), command
        after = dict(pairwise(words))
        for option in ("--studies", "--redo"):
            value = after.get(option, "").strip(".,")
            if re.fullmatch(r"[a-z_]+(,[a-z_]+)*", value) and value != "value":
                refuse_unknown(value.split(","))


def test_hints_are_found_and_detection_is_one_that_builds():
    assert len(HINTS) > 20
    assert producers(["detection"]) == ["spectral"]


def test_a_command_that_cannot_be_typed_would_be_found():
    [(verb, *words)] = commands("    headwise show atlas profile --relativ -o x.pdf    # a slip\n")
    assert verb == "show" and unknown(verb, words) == {"--relativ"}
