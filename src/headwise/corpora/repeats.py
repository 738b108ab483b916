"""Random tokens, said twice: x1 ... xn x1 ... xn. What comes next can only be known by looking back.

A head that, at the second x_i, looks at the token after the first x_i is an induction head; one that looks at the
first x_i itself is a duplicate-token head. Tokens are distinct within a period, so each has exactly one earlier
occurrence, and are drawn from ordinary tokens only.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from headwise.core.errors import DataError
from headwise.corpora.sequences import Example

REPEATS = "repeats"  # the register of these examples


def repeated_random(
    count: int, period: int, vocabulary: Collection[int], *, seed: int, prefix: Sequence[int] = ()
) -> list[Example]:
    """`count` examples of `period` distinct random tokens, twice, after an optional prefix such as BOS."""
    ordinary = sorted(set(vocabulary) - set(prefix))
    if len(ordinary) < period:
        raise DataError(f"{period} distinct tokens were asked for and the vocabulary has {len(ordinary)}; repeat fewer")
    rng = random.Random(seed)
    examples = []
    for index in range(count):
        drawn = rng.sample(ordinary, period)
        examples.append(Example(f"repeat-{index + 1:02d}", REPEATS, (*prefix, *drawn, *drawn)))
    return examples
