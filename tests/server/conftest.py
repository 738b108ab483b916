"""The fixtures of `explorer`."""

from explorer import atlas, live, model, pages, running, scored_atlas, session, where

__all__ = ["atlas", "live", "model", "pages", "running", "scored_atlas", "session", "where"]
