"""The fixtures of `explorer`."""

from chromium import chromium, page, pytest_collection_modifyitems
from explorer import atlas, live, model, pages, running, session, where

__all__ = [
    "atlas", "chromium", "live", "model", "page", "pages", "pytest_collection_modifyitems", "running", "session", "where",
]  # fmt: skip
