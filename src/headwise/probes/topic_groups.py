"""Topics too small to fit a probe on are put together with those that look most like them.

Steps: every topic is a group; while some group has fewer than `least` answers of a class and there are more than two
groups, the smallest joins the group whose mean vector (of the questions, as the model sees them) points most nearly the
same way. Which groups join is decided by the vectors, when to stop by the counts; no answer's own label counts.

A group is named by its topics. This module does not know where the vectors come from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwise.stats.validation import Labels

__all__ = ["group_topics"]

LEAST = 25


def group_topics(
    topics: NDArray[np.str_], vectors: NDArray[np.float64], wrong: Labels, least: int = LEAST
) -> list[str]:
    """The name of each answer's group; `vectors` (row, width)."""
    centred = vectors - vectors.mean(axis=0)
    groups = {name: np.array(topics == name) for name in sorted(set(topics.tolist()))}

    def smallest(rows: Labels) -> int:
        return int(min((wrong & rows).sum(), (~wrong & rows).sum()))

    while len(groups) > 2:
        name = min(groups, key=lambda one: (smallest(groups[one]), one))
        if smallest(groups[name]) >= least:
            break
        rows = groups.pop(name)
        nearest = max(groups, key=lambda other: _likeness(centred, rows, groups[other]))
        joined = ", ".join(sorted([*name.split(", "), *nearest.split(", ")]))
        groups[joined] = rows | groups.pop(nearest)
    found = np.empty(len(topics), dtype=object)
    for name, rows in groups.items():
        found[rows] = name
    return [str(name) for name in found]


def _likeness(vectors: NDArray[np.float64], one: Labels, other: Labels) -> float:
    """The cosine of two groups' mean vectors."""
    a, b = vectors[one].mean(axis=0), vectors[other].mean(axis=0)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))
