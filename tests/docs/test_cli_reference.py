"""The page about the command line is what the commands say of themselves."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from headwise.cli.main import VERBS

ROOT = Path(__file__).parents[2]


@cache
def script() -> Any:
    path = ROOT / "scripts" / "site" / "cli_reference.py"
    spec = importlib.util.spec_from_file_location("cli_reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def section(verb: str) -> str:
    """What the page says of one verb."""
    return script().page().partition(f"\n## headwise {verb}\n")[2].partition("\n## ")[0]


def test_the_page_is_up_to_date():
    written = script().PAGE.read_text(encoding="utf-8")
    assert written == script().page(), "run: python scripts/site/cli_reference.py"


def test_every_verb_has_usage_options_and_examples():
    for verb in VERBS:
        told = section(verb.__name__)
        assert f"$ headwise {verb.__name__}" in told
        assert "| option | takes | what it does |" in told
        assert f"\nheadwise {verb.__name__}" in told.partition("### Examples")[2], f"{verb.__name__} has no example"


def test_options_stand_in_their_boxes_with_what_they_take():
    told = section("build")
    boxed = told.partition("### Model")[2].partition("### ")[0]
    assert "| `--dtype` | `TEXT` | float32" in boxed and "Default: `auto`." in boxed
    assert "| `--output`, `-o` | `PATH` |" in told.partition("### Options")[2].partition("### ")[0]
    assert "| `--trust-remote-code` |  |" in boxed  # a flag takes nothing


def test_show_lists_what_every_figure_can_be_asked_for():
    told = section("show")
    assert "**profile**" in told and "| `--relative` |" in told
    assert "| `--heads-off` |" not in told  # that is an option of the study, not of its figure


def test_nothing_breaks_a_table():
    rows = [line for line in script().page().splitlines() if line.startswith("| ")]
    for row in rows:
        assert row.replace("\\|", "").count("|") in (3, 4), row
