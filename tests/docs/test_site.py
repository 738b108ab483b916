"""The site builds strictly, stands on its own, and holds every page.

`mkdocs build --strict` fails on a link, an anchor or a file of the navigation that does not exist. What it does not look at is
asked here: that no page loads anything from another host, that every page can be reached, that every picture has words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs")

pytestmark = pytest.mark.xdist_group("browser")  # where one test reads the pages, so that the site is built once
ROOT = Path(__file__).parents[2]
LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
FETCHED = ("stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload", "prefetch", "manifest")
ELSEWHERE = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)


class Loads(HTMLParser):
    """What a browser fetches for a page by itself, and its pictures' words."""

    def __init__(self, page: str):
        super().__init__()
        self.fetched: list[str] = []
        self.wordless: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag in LOADING and LOADING[tag] in given:
            self.fetched.append(given[LOADING[tag]])
        if tag == "link" and any(kind in FETCHED for kind in given.get("rel", "").split()):
            self.fetched.append(given.get("href", ""))
        small = given.get("src", "").startswith("data:") and "alt" in given  # beside its words, in a notebook's card
        if tag == "img" and not given.get("alt", "").strip() and not small:
            self.wordless.append(given.get("src", "")[:80])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The site in a folder, and what the build said."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return folder, run.stderr


def test_it_builds_strictly(built: tuple[Path, str]):
    folder, _ = built
    assert (folder / "index.html").is_file() and (folder / "search" / "search_index.json").is_file()


def test_every_page_is_in_the_navigation(built: tuple[Path, str]):
    _, said = built
    assert "not included in the" not in said, said[-2000:]


def test_no_page_loads_anything_from_another_host(built: tuple[Path, str]):
    folder, _ = built
    wrong = []
    for page in folder.rglob("*.html"):
        loads = Loads(page.read_text(encoding="utf-8"))
        wrong += [f"{page.relative_to(folder)}: {address}" for address in loads.fetched if ELSEWHERE.match(address)]
    for style in folder.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", style.read_text(encoding="utf-8"))
        wrong += [f"{style.relative_to(folder)}: {address}" for address in found]
    assert not wrong


def test_every_picture_has_words(built: tuple[Path, str]):
    folder, _ = built
    wrong = {
        str(page.relative_to(folder)): wordless
        for page in folder.rglob("*.html")
        if (wordless := Loads(page.read_text(encoding="utf-8")).wordless)
    }
    assert not wrong


def test_it_can_be_read_and_searched_from_a_disk(built: tuple[Path, str], page: Any):
    folder, _ = built
    page.goto((folder / "how-it-works" / "seam.html").as_uri())
    diagram = page.locator('img[src*="diagrams/seam.svg"]')
    assert diagram.is_visible() and diagram.evaluate("image => image.naturalWidth") == 760
    page.click("input.md-search__input")
    page.locator(".md-search-result__meta", has_text="Type to start").wait_for()
    page.locator("input.md-search__input").press_sequentially("induction head")
    page.locator(".md-search-result__link").first.wait_for()
    assert "matching" in page.inner_text(".md-search-result__meta")


def test_a_page_that_loads_from_elsewhere_would_be_found():
    loads = Loads(
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="//x/y.css"><img src="a.png">'
    )
    assert [address for address in loads.fetched if ELSEWHERE.match(address)] == [
        "https://cdn.example/x.js",
        "//x/y.css",
    ]
    assert loads.wordless == ["a.png"]
