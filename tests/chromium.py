"""A browser for tests: Debian's Chromium, driven by Playwright, and a page that is held to good manners.

`chromium` is one browser for all tests of a process; `page` is a fresh page a test, and after the test it fails it for

- anything the page complained of (a console error, an uncaught error, a dialog that opened),
- any request that left the machine: only file:, data:, blob: and 127.0.0.1 are allowed.

The browser is looked for in HEADWISE_CHROMIUM, in PATH, and at /usr/bin/chromium; where there is none, tests are skipped
and say so. The conftest of all tests imports these fixtures (once: two Playwrights in a process do not go together).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HERE = ("127.0.0.1", "localhost")


def find_chromium() -> str | None:
    """The path of a browser, or None."""
    wanted = os.environ.get("HEADWISE_CHROMIUM")
    found = [wanted] if wanted else [*map(shutil.which, NAMES), "/usr/bin/chromium"]
    return next((path for path in found if path and Path(path).exists()), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed (pip install playwright)"
    )
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium: install it (apt install chromium) or name it in HEADWISE_CHROMIUM")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page 1200 x 900 pixels large, light."""
    yield from watched(chromium, viewport={"width": 1200, "height": 900}, color_scheme="light")


def watched(chromium: Any, **options: Any) -> Iterator[Any]:
    """A page with these options of Playwright; what it did wrong is told when it is closed."""
    context = chromium.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda request: wrong.append(f"request: {request.url}") if not is_local(request.url) else None)
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    yield page
    context.close()
    assert not wrong, f"the page misbehaved: {wrong}"


def is_local(url: str) -> bool:
    """Whether a request stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname in HERE
