"""Which tokens are punctuation or line ends."""

from __future__ import annotations

import unicodedata
from typing import Any


def delimiter_ids(tokenizer: Any) -> frozenset[int]:
    """Token ids whose text is nothing but punctuation or line ends; special tokens are not.

    Decoded one by one, so that the rule holds for every tokenizer, whatever its bytes look like inside.

    Args:
        tokenizer: a ``transformers`` tokenizer.

    Returns:
        The ids, as `Profile` takes them.

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
    kept = [character for character in text if not character.isspace() or character == "\n"]
    return bool(kept) and all(c == "\n" or unicodedata.category(c).startswith("P") for c in kept)
