"""How sure is a share? Wilson's interval of k out of n.

Unlike the share plus or minus its standard error, it stays between 0 and 1 and says something even where k is 0 or n.
Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = ["wilson"]


def wilson(share: ArrayLike, size: ArrayLike, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """The interval of a share.

    Args:
        share: one, or an array of them.
        size: out of how many; broadcast against the shares.
        level: of the interval.

    Returns:
        Its two ends; NaN where there is no share.

    Examples:
        >>> low, high = wilson(np.array(0.5), np.array(40))
        >>> round(float(low), 3), round(float(high), 3)
        (0.352, 0.648)
    """
    share, size = np.asarray(share, dtype=float), np.asarray(size, dtype=float)
    z = float(stats.norm.ppf(0.5 + level / 2))
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2)) / (1 + z**2 / size)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)
