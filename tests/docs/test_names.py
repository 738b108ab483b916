"""Code on a page stands alone: every name in it is imported or made on that page before it is used.

A reader pastes the first block of a page into an empty notebook. Nothing is run here; `test_code` and `test_tutorials` do
that.
"""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest
from page_code import DOCS, blocks

PAGES = [
    page
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md")))
    if any(block.language == "python" for block in blocks(page))
]


def missing(codes: list[str]) -> list[str]:
    """Names that are read and bound nowhere, neither in their own block nor in one before it."""
    bound, lacking = set(dir(builtins)), []
    for code in codes:
        nodes = list(ast.walk(ast.parse(code)))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
                bound.add(str(node.name))
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.add(node.id)
        lacking += [node.id for node in nodes if isinstance(node, ast.Name) and node.id not in bound]
    return lacking


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_a_page_makes_what_it_uses(page: Path):
    python = [block.text for block in blocks(page) if block.language == "python" and not block.file]
    assert not missing(python)


def test_a_name_from_nowhere_is_found():
    assert missing(["import headwise as hw\natlas = hw.load()", "atlas.heads()\nmodel(atlas)"]) == ["model"]
    assert missing(["[x for x in range(3)]\nwith open(y) as f: f"]) == ["y"]
