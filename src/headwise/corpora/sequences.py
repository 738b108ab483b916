"""Token sequences to show to a model, among them random tokens repeated twice, x1 ... xn x1 ... xn; and delimiter tokens.

In the second half of a repeated sequence the next token can only be predicted by looking back. A head that attends from
the second x_i to the token after the first x_i is an induction head; one that attends to the first x_i is a
duplicate-token head. Tokens are distinct within a period, so each has exactly one earlier occurrence.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.core.errors import DataError

__all__ = ["REPEATS", "Example", "delimiter_ids", "repeated_random"]

REPEATS = "repeats"  # the register of repeated random sequences


@dataclass(frozen=True)
class Example:
    """One token sequence with its name and its register (kind of text)."""

    id: str
    register: str
    ids: tuple[int, ...]


def repeated_random(
    count: int, period: int, vocabulary: Collection[int], *, seed: int, prefix: Sequence[int] = ()
) -> list[Example]:
    """`count` examples of `period` distinct random tokens, repeated once, after an optional prefix such as BOS."""
    ordinary = sorted(set(vocabulary) - set(prefix))
    if len(ordinary) < period:
        raise DataError(f"{period} distinct tokens are needed and the vocabulary has {len(ordinary)}; lower the period")
    rng = random.Random(seed)
    examples = []
    for number in range(1, count + 1):
        drawn = rng.sample(ordinary, period)
        examples.append(Example(f"repeat-{number:02d}", REPEATS, (*prefix, *drawn, *drawn)))
    return examples


def delimiter_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of tokens that consist of punctuation or line ends; special tokens are excluded.

    Tokens are decoded one by one, so the rule holds for every tokenizer, whatever its byte encoding.

    Args:
        tokenizer: a ``transformers`` tokenizer.

    Returns:
        The ids, as the instrument `Profile` expects them.

    Examples:
        >>> model.tokens(sorted(delimiter_ids(model.tokenizer))[1:6])
        ['.', ',', ';', ':', '!']
    """
    special = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
    texts = tokenizer.batch_decode([[index] for index in range(len(tokenizer))])
    return frozenset(index for index, text in enumerate(texts) if index not in special and is_delimiter(text))


def is_delimiter(text: str) -> bool:
    r"""Whether a token's text is punctuation or a line end.

    >>> [is_delimiter(text) for text in (",", " (", "\n", " ", "a.", "")]
    [True, True, True, False, False, False]
    """
    characters = [c for c in text if not c.isspace() or c == "\n"]
    return bool(characters) and all(c == "\n" or unicodedata.category(c).startswith("P") for c in characters)
