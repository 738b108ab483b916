"""How sure is a value that is put together from several means, such as one over prompts and one over random draws?

Its variance is the sum of theirs; Student's t has Satterthwaite's degrees of freedom. Satterthwaite, "An approximate
distribution of estimates of variance components", Biometrics Bulletin 2 (1946).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["half_width"]


def half_width(samples: Sequence[NDArray], *, level: float = 0.95) -> float:
    """Half of the interval of a sum of means.

    Args:
        samples: the sample behind each mean, at least two values each.
        level: of the interval.

    Returns:
        Half of its width; 0 where nothing varies.

    Examples:
        >>> round(half_width([np.array([0.0, 1.0, 0.0, 1.0])]), 3)  # one sample: Student's own interval
        0.919
    """
    errors = np.array([sample.var(ddof=1) / len(sample) for sample in samples])
    total = float(errors.sum())
    if total == 0:
        return 0.0
    freedom = total**2 / sum(error**2 / (len(sample) - 1) for error, sample in zip(errors, samples, strict=True))
    return float(stats.t.ppf(0.5 + level / 2, freedom) * np.sqrt(total))
