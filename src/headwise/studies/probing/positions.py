"""The fifteen tokens at which a question with its answer is probed, over prompt + answer.

| name                        | token                                                        |
|-----------------------------|--------------------------------------------------------------|
| last_q                      | the last of the prompt                                       |
| first_answer, second_answer | the first two of the answer                                  |
| exact_answer_before_first   | before the exact answer                                      |
| exact_answer_first, _last   | the exact answer's own first and last                        |
| exact_answer_after_last     | after it; the end where it ends the answer                   |
| -8 ... -1                   | counted from the end                                         |

In an answer of fewer than eight tokens the first of the last eight stand in the prompt, and in one of a single token
second_answer is its end: such rows are counted for each position (`in_prompt`, `moved`), so that a map can mark them.
What ended an answer (end of turn) is not part of it, so -1 is the last token that was said.

After Orgad et al. (arXiv 2410.02707). This module does not know a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT", "LAST", "POSITIONS", "Positions", "positions_of"]

BEFORE, FIRST, LAST, AFTER = (f"exact_answer_{name}" for name in ("before_first", "first", "last", "after_last"))
EXACT = (BEFORE, FIRST, LAST, AFTER)
FROM_END = tuple(str(-place) for place in range(8, 0, -1))
POSITIONS = ("last_q", "first_answer", "second_answer", *EXACT, *FROM_END)


@dataclass(frozen=True)
class Positions:
    """Where the fifteen tokens of each example stand."""

    index: NDArray[np.int64]  # (example, position), counted from the first token of the prompt
    in_prompt: NDArray[np.int64]  # (position,): examples in which a token of the answer's end stands in the prompt
    moved: NDArray[np.int64]  # (position,): examples in which the token is the end of the text, for want of another


def positions_of(prompts: Sequence[int], answers: Sequence[int], spans: Sequence[tuple[int, int]]) -> Positions:
    """For prompts and answers of so many tokens, and exact answers at [first, last] of the answer's tokens.

    >>> found = positions_of([10], [3], [(1, 1)])
    >>> dict(zip(POSITIONS, found.index[0].tolist()))["exact_answer_after_last"], found.in_prompt.tolist()[7:]
    (12, [1, 1, 1, 1, 1, 0, 0, 0])
    """
    rows, moved, in_prompt = [], [], []
    for prompt, answer, (first, last) in zip(prompts, answers, spans, strict=True):
        end = prompt + answer - 1
        wanted = [prompt - 1, prompt, prompt + 1]
        wanted += [prompt + first - 1, prompt + first, prompt + last, prompt + last + 1]
        wanted += [end + 1 + int(name) for name in FROM_END]
        rows.append([max(0, min(place, end)) for place in wanted])
        moved.append([place > end or place < 0 for place in wanted])
        in_prompt.append([name in FROM_END and place < prompt for name, place in zip(POSITIONS, wanted, strict=True)])
    return Positions(
        np.array(rows, dtype=np.int64).reshape(-1, len(POSITIONS)),
        np.array(in_prompt, dtype=np.int64).reshape(-1, len(POSITIONS)).sum(axis=0),
        np.array(moved, dtype=np.int64).reshape(-1, len(POSITIONS)).sum(axis=0),
    )
