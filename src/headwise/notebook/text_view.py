"""A model and a text, looked at now: one forward pass with the instrument `Patterns`, then the pattern view.

Cost: the pass, and 4 bytes x heads x T x T of memory; for a long text name the heads. This is the only file of the folder that
needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwise.core.provenance import public_name
from headwise.instruments.patterns import Patterns
from headwise.model import Model
from headwise.notebook.pattern_view import PatternView
from headwise.seam import observe


def look(model: Model, text: str, *, heads: str | Iterable[str | tuple[int, int]] | None = None) -> PatternView:
    """The attention maps of one text, to be looked at in a notebook.

    Args:
        model: what `headwise.load` gave.
        text: what it reads.
        heads: those that are shown, such as ``"L3H7, L4H0"``; None: all.

    Returns:
        A widget.

    Examples:
        >>> look(model, "the old river", heads="L0H3, L1H4")
        <PatternView: 2 heads, 4 tokens, L0H3 open>
    """
    with observe(model, Patterns(heads)) as seen:
        model(**model.encode(text))
    return PatternView(seen["patterns"], model.tokens(text), title=public_name(model.id))
