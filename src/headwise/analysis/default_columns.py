"""Which columns does a reader of the table of heads see first? Those that tell one head from another, a few of every study.

Used by the command line and by the pages, so that both open on the same table. This module does not know what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwise.core.dims import HEAD, LAYER

__all__ = ["DEFAULT_COLUMNS", "default_columns"]

DEFAULT_COLUMNS = (
    "profile.induction",
    "profile.previous",
    "profile.sink",
    "profile.entropy",
    "relations.categories",
    "relations.best",
    "functions.best",
    "probing.head_auroc",
    "spectral.whole.laplacian.effect",
    "spectral.whole.laplacian.q",
    "spectral.whole.attention_score.q",
    "patterns.similarity",
)  # the most telling first
FEW = 2  # columns of a study that has none of the usual ones


def default_columns(columns: Iterable[object]) -> list[str]:
    """The columns that a reader of the table of heads sees first.

    Args:
        columns: of the head table.

    Returns:
        The usual ones that are there, then a few of every study that has none of them.

    Examples:
        >>> default_columns(["layer", "head", "profile.sink", "profile.induction", "mine.a", "mine.b", "mine.c"])
        ['profile.induction', 'profile.sink', 'mine.a', 'mine.b']
    """
    names = [str(name) for name in columns if name not in (LAYER, HEAD)]
    there = [name for name in DEFAULT_COLUMNS if name in names]
    told = {_study(name) for name in there}
    others = dict.fromkeys(_study(name) for name in names if _study(name) not in told)
    few = [name for study in others for name in [one for one in names if _study(one) == study][:FEW]]
    return [*there, *few]


def _study(name: str) -> str:
    return name.partition(".")[0]
