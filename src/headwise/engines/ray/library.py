"""The package ray, imported when it is needed; where it is missing, one sentence says how to get it."""

from __future__ import annotations

import importlib
from typing import Any

from headwise.core.errors import EngineError

__all__ = ["the_library"]


def the_library() -> Any:
    """The module ray."""
    try:
        return importlib.import_module("ray")
    except ImportError as cause:
        raise EngineError(
            "The engine ray needs the package ray, which is not installed; run pip install 'headwise[ray]', or leave "
            "--engine out to run in this process."
        ) from cause
