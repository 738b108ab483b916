"""Every error has a page, every page of an error is listed, and each class names the page in its docstring."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import headwise
from headwise.core.errors import HeadwiseError

DOCS = Path(__file__).parents[2] / "docs"
ERRORS = DOCS / "errors"
# need Triton, Ray, a notebook or Inspect, and define no error
WITHOUT = ("headwise.kernels.", "headwise.engines.ray", "headwise.notebook.", "headwise.inspect_scorer")


def classes() -> list[type[HeadwiseError]]:
    """All errors that Headwise defines, whatever module they are in."""
    for module in pkgutil.walk_packages(headwise.__path__, "headwise."):
        if not module.name.startswith(WITHOUT):
            importlib.import_module(module.name)
    found, left = [], [HeadwiseError]
    while left:
        one = left.pop()
        found.append(one)
        left += one.__subclasses__()
    return [one for one in dict.fromkeys(found) if one.__module__.startswith("headwise")]


@pytest.mark.parametrize("error", classes(), ids=lambda error: error.__name__)
def test_an_error_names_its_page(error: type[HeadwiseError]):
    named = re.findall(r"docs/errors/([\w-]+\.md)", error.__doc__ or "")
    assert named, f"the docstring of {error.__name__} names no page of docs/errors"
    for page in named:
        text = (ERRORS / page).read_text(encoding="utf-8")
        assert error.__name__ in text, f"{page} does not speak of {error.__name__}"


def test_every_page_of_an_error_is_listed():
    listed = set(re.findall(r"\]\(([\w-]+\.md)", (ERRORS / "index.md").read_text(encoding="utf-8")))
    assert {page.name for page in ERRORS.glob("*.md")} - {"index.md"} == listed


def test_every_page_of_an_error_shows_the_sentence_and_the_remedy():
    for page in ERRORS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert re.search(r"^(\w+(Error|ed): |headwise: )", text, re.MULTILINE), f"{page.name} shows no sentence"
