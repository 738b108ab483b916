"""Does a head see the error, or only the length of the answer? Pairs of a wrong and a right answer of similar length.

Wrong answers are often longer (or shorter) than right ones, and every statistic of an attention map changes with length.
Among the matched pairs length carries no information.

Steps: all pairs of a length of wrong answers and a length of right ones that differ by at most ``caliper``, nearest
first (exact matches before all others, shorter before longer); from each, as many pairs as both still have. Which of
several answers of the same length is taken is decided by a seeded random order of all rows, made without looking at the
labels. Nearest-first is greedy (nearest-neighbour matching within a caliper, Cochran and Rubin 1973): with a caliper above
0 it need not find the largest number of pairs.

With ``caliper=0``, the default, the lengths of the two sides are identical. With more, look at ``length_auroc``: it should
be near 0.5. Cost: distinct lengths squared. Other confounders are not balanced.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.core.errors import DataError
from headwise.stats.auroc import auroc_rows
from headwise.stats.validation import as_labels

__all__ = ["MatchedPairs", "match_lengths"]


class MatchedPairs(NamedTuple):
    """Pairs of a wrong and a right answer of similar length. Made by `match_lengths`.

    Examples:
        >>> matched = match_lengths([3, 5, 5, 9], [True, False, True, False])
        >>> matched.pairs, matched.rows, matched.left_out_wrong
        (1, array([1, 2]), 1)
    """

    rows: NDArray[np.int64]
    """indices of all matched answers, in their first order: select these, and test again"""
    wrong: NDArray[np.int64]
    """index of the wrong answer of each pair"""
    right: NDArray[np.int64]
    """index of the right answer of each pair"""
    left_out_wrong: int
    """wrong answers without a partner"""
    left_out_right: int
    """right answers without a partner"""
    length_auroc: float
    """AUROC of length alone among the matched answers; 0.5 is perfect balance, NaN without pairs"""
    length_auroc_before: float
    """the same among all answers: how strong a confounder length was"""

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return len(self.wrong)


def match_lengths(lengths: ArrayLike, labels: ArrayLike, *, caliper: float = 0, seed: int = 0) -> MatchedPairs:
    """Pair wrong and right answers of similar length, so that length is no longer informative among the rest.

    Args:
        lengths: (example,).
        labels: (example,), True for wrong answers.
        caliper: by how much the lengths of a pair may differ.
        seed: of the choice among equals.

    Returns:
        The pairs, and the AUROC of length before and after.

    Examples:
        >>> lengths, wrong = [3, 3, 4, 8, 9, 9], [False, True, False, True, False, True]
        >>> matched = match_lengths(lengths, wrong, caliper=1)
        >>> matched.pairs, matched.length_auroc_before, matched.length_auroc
        (2, 0.5555555555555556, 0.5)
    """
    length = np.asarray(lengths, dtype=np.float64)
    is_wrong = as_labels(labels, rows=len(length), min_per_class=1)
    if not np.isfinite(length).all() or caliper < 0:
        raise DataError("Lengths must be numbers, and the caliper at least 0; leave out answers without a length.")
    order = np.random.default_rng(seed).permutation(len(length))
    waiting: tuple[dict[float, list[int]], dict[float, list[int]]] = ({}, {})
    for row in order:
        waiting[int(is_wrong[row])].setdefault(float(length[row]), []).append(int(row))
    right_at, wrong_at = waiting
    wrong_lengths, right_lengths = np.array(sorted(wrong_at)), np.array(sorted(right_at))
    apart = np.abs(wrong_lengths[:, None] - right_lengths[None])
    first, second = np.nonzero(apart <= caliper)
    nearest = np.lexsort((right_lengths[second], wrong_lengths[first], apart[first, second]))
    pairs: list[tuple[int, int]] = []
    for at in nearest:
        left, other = wrong_at[float(wrong_lengths[first[at]])], right_at[float(right_lengths[second[at]])]
        pairs += [(left.pop(), other.pop()) for _ in range(min(len(left), len(other)))]
    pairs.sort()
    wrong, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    rows = np.sort(np.concatenate([wrong, right]))
    return MatchedPairs(
        rows, wrong, right,
        left_out_wrong=int(is_wrong.sum()) - len(wrong),
        left_out_right=int((~is_wrong).sum()) - len(right),
        length_auroc=float(auroc_rows(length[rows], is_wrong[rows])) if len(wrong) else float("nan"),
        length_auroc_before=float(auroc_rows(length, is_wrong)),
    )  # fmt: skip
