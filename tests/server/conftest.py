"""The fixtures of `explorer`."""

from explorer import atlas, causal_atlas, live, model, pages, running, scored_atlas, session, where

__all__ = ["atlas", "causal_atlas", "live", "model", "pages", "running", "scored_atlas", "session", "where"]
