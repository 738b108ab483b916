"""A model and a text, looked at now: one forward pass with the instrument `Patterns`, then the pattern view.

Cost: the pass, and 4 bytes x heads x T x T of memory; for a long text name the heads. This is the only file of the folder that
needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwise.instruments import Patterns
from headwise.model import Model
from headwise.notebook.pattern_view import PatternView
from headwise.seam import observe

__all__ = ["look"]


def look(model: Model, text: str, *, heads: str | Iterable[str | tuple[int, int]] | None = None) -> PatternView:
    """The maps of every head, or of those named ("L3H7, L4H0"), for one text."""
    with observe(model, Patterns(heads)) as seen:
        model(**model.encode(text))
    return PatternView(seen["patterns"], model.tokens(text), title=model.id)
