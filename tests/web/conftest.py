"""What tests of pages share: a page with figures on it (`figure_pages.py`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from figure_pages import open_figures


@pytest.fixture
def show(page: Any, tmp_path: Path) -> Callable[..., Any]:
    """Draw figures, by name, on a page of their own: ``show({"one": figure}, theme="dark")`` gives the page."""
    return partial(open_figures, page, tmp_path / "figures.html")
