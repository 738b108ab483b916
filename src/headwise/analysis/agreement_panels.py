"""The figure of agreement: two matrices of head sets against head sets, one of overlap and one of rank correlation.

Left, how many times as many heads two sets share as with heads shuffled within layers (0.5 added to both numbers, so that
an empty overlap has a place on the scale), by its logarithm. Right, the rank correlation of the two maps with the mean of
each layer taken off. A box is a pair with q < 0.05 within layers; a cross is one that passes only with heads shuffled over
the whole model, which depth alone can bring about; a dot is one that shuffling within layers cannot test, as it never changes
it (no layer has heads of both sets, say): the overlap is known, and no more can be said. Sets of one study are not held
against each other.

Nothing is computed here but the ratio.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headwise.analysis.agreement import Agreement, Pair
from headwise.analysis.agreement_words import describe_agreement
from headwise.figures import Axis, Category, Figure, Frame, Heatmap, Legend, Mark, scale_around

__all__ = ["agreement_figure"]

SURE = 0.05
UNTESTED = "cannot be tested within layers"


def agreement_figure(found: Agreement) -> Figure:
    """Overlap and correlation of all pairs.

    Args:
        found: what `agreement` gave.

    Returns:
        Two maps of sets by sets.

    Examples:
        >>> from headwise.analysis import agreement
        >>> agreement_figure(agreement(atlas, permutations=200))
        <Figure 'Do the studies agree? SmolLM2-135M-Instruct': overlap, correlation, legend>
    """
    labels = tuple(f"{one.label} · {one.study}" for one in found.sets)
    ratio = _matrix(found, _ratio)
    rank = _matrix(found, lambda pair: pair.correlation_within)
    passes = _matrix(found, lambda pair: pair.q), _matrix(found, lambda pair: pair.q_all)
    rank_passes = _matrix(found, lambda pair: pair.correlation_q), _matrix(found, lambda pair: pair.correlation_q_all)
    panels = (
        _panel("overlap", "Heads that both name", ratio, labels, passes, _overlap_extras(found)),
        _panel("correlation", "Rank correlation within layers", rank, labels, rank_passes, _rank_extras(found)),
        _legend(found),
    )
    return Figure(
        title=f"Do the studies agree? {found.model.rsplit('/', 1)[-1]}",
        panels=panels,
        columns=2,
        scales={
            "overlap": scale_around(ratio, "log₂ of shared over expected"),
            "correlation": scale_around(rank, "Spearman"),
        },
        notes=(_note(found),),
        provenance=found.provenance,
    ).with_alt(describe_agreement(found).short())


def _panel(
    key: str, title: str, values: np.ndarray, labels: tuple[str, ...], q: tuple[np.ndarray, np.ndarray],
    extras: dict[str, np.ndarray],
) -> Heatmap:  # fmt: skip
    sure, anywhere = q[0] < SURE, (q[1] < SURE) & ~(q[0] < SURE) & np.isfinite(values)
    untested = np.isfinite(values) & ~np.isfinite(q[0])
    return Heatmap(
        key=key,
        title=title,
        subtitle=_subtitle(sure, np.isfinite(q[0]), untested),
        values=values,
        x=Axis("", labels),
        y=Axis("", labels),
        scale=key,
        frames=tuple(Frame(int(row), int(row), int(column), int(column)) for row, column in np.argwhere(sure)),
        marks=(*_marks(anywhere, "cross", ""), *_marks(untested, "dot", UNTESTED)),
        extras=extras,
        missing="not compared",
    )


def _subtitle(sure: np.ndarray, tested: np.ndarray, untested: np.ndarray) -> str:
    passed, pairs, left = (int(np.triu(cells, 1).sum()) for cells in (sure, tested, untested))
    beside = f"; {left} more cannot be tested" if left else ""
    return f"{passed} of {pairs} pairs with q < {SURE:g}{beside}"


def _marks(cells: np.ndarray, sign: str, text: str) -> tuple[Mark, ...]:
    return tuple(Mark(int(row), int(column), text, sign) for row, column in np.argwhere(cells))


def _ratio(pair: Pair) -> float:
    """log2 of shared over expected; NaN where a set is empty."""
    if not pair.first_size or not pair.second_size:
        return float("nan")
    return float(np.log2((pair.count + 0.5) / (pair.expected + 0.5)))


def _matrix(found: Agreement, value: Callable[[Pair], float]) -> np.ndarray:
    """(set, set), both ways round; NaN within a study."""
    place = {one.key: index for index, one in enumerate(found.sets)}
    matrix = np.full((len(place), len(place)), np.nan)
    for pair in found.pairs:
        row, column = place[pair.first], place[pair.second]
        matrix[row, column] = matrix[column, row] = value(pair)
    return matrix


def _overlap_extras(found: Agreement) -> dict[str, np.ndarray]:
    return {
        "shared": _matrix(found, lambda pair: pair.count),
        "expected within layers": _matrix(found, lambda pair: pair.expected),
        "expected over all": _matrix(found, lambda pair: pair.expected_all),
        "odds ratio": _matrix(found, lambda pair: pair.odds_ratio),
        "p": _matrix(found, lambda pair: pair.p),
        "q": _matrix(found, lambda pair: pair.q),
        "q over all": _matrix(found, lambda pair: pair.q_all),
    }


def _rank_extras(found: Agreement) -> dict[str, np.ndarray]:
    return {
        "over all heads": _matrix(found, lambda pair: pair.correlation),
        "by depth alone": _matrix(found, lambda pair: pair.correlation_expected),
        "p": _matrix(found, lambda pair: pair.correlation_p),
        "q": _matrix(found, lambda pair: pair.correlation_q),
        "q over all": _matrix(found, lambda pair: pair.correlation_q_all),
    }


def _legend(found: Agreement) -> Legend:
    entries = (
        Category("sure", f"boxed: q < {SURE:g}, heads shuffled within layers", sign="frame", colour="#000000"),
        Category("anywhere", f"q < {SURE:g} only with heads shuffled over the whole model", sign="cross"),
        Category("untested", f"{UNTESTED}: shuffling there never changes it", sign="dot"),
        Category("missing", "not compared: one study, or no head in a set", sign="texture"),
    )
    return Legend("legend", entries)


def _note(found: Agreement) -> str:
    return (
        f"{len(found.sets)} head sets, {len(found.pairs)} pairs across studies, {found.heads} heads; {found.permutations:,} "
        f"shuffles, {found.shuffled}; q over all pairs. Expected: mean overlap with shuffled heads. With shuffled maps "
        f"{found.by_chance:.2g} and {found.correlation_by_chance:.2g} pairs pass on average."
    )
