"""The fixtures of `explorer`."""

from explorer import atlas, live, model, pages, running, session, where

__all__ = ["atlas", "live", "model", "pages", "running", "session", "where"]
