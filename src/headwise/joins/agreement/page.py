"""Agreement as if it were a study: what ``show`` and ``describe`` call it, and its figure with its words as description."""

from __future__ import annotations

from headwise.atlas import Atlas
from headwise.figures import Figure
from headwise.joins.agreement.agreement import agreement
from headwise.joins.agreement.figure import agreement_figure
from headwise.joins.agreement.words import agreement_words

__all__ = ["AGREEMENT", "agreement_drawn"]

AGREEMENT = "agreement"  # no study has this name


def agreement_drawn(atlas: Atlas) -> Figure:
    """The figure of an atlas's agreement, with what it shows in words as its alternative text.

    Args:
        atlas: with at least two studies of heads.

    Returns:
        What ``headwise show ATLAS agreement`` draws.

    Examples:
        >>> agreement_drawn(atlas).title
        'Do the studies agree? SmolLM2-135M-Instruct'
    """
    found = agreement(atlas)
    return agreement_figure(found).with_alt(agreement_words(found).short())
