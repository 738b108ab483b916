"""Properties of a tokenizer's vocabulary: which tokens are delimiters, and which word pairs are single tokens.

A head's OV matrix maps one token to one token, so the published rule (Elhelo & Geva 2024) retains a pair of a relation if
source and target, each with a leading space as inside a sentence, are exactly one token, and a relation if at least 30
pairs are left. Dropped pairs are counted by reason: a tokenizer that splits numbers into digits has no years, and a small
vocabulary has few foreign words.

The leading space is produced by writing the word after another one, because some tokenizers add a space to the beginning
of a text: the ids of "the cold" must be those of "the" plus one. A word that maps to the unknown token does not count.
Where the tokenizer ignores case, source and target of a relation such as uppercase are one token, and the pair is dropped.

Cost: one tokenizer call per relation, one decode per token of the vocabulary.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.corpora.relations import Relation

__all__ = ["MIN_PAIRS", "SingleTokenPairs", "delimiter_ids", "single_token_ids", "single_token_pairs"]


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


# ---- relations ------------------------------------------------------------------------------------------------------

MIN_PAIRS = 30  # single-token pairs of a relation that is scored
BEFORE = "the"

SOURCE = "source is several tokens"
TARGET = "target is several tokens"
BOTH = "both are several tokens"
SAME = "source and target are one token"
DUPLICATE = "another pair has the same tokens"


@dataclass(frozen=True)
class SingleTokenPairs:
    """The pairs of a relation that are single tokens in one tokenizer."""

    relation: Relation
    pairs: tuple[tuple[str, str], ...]  # retained pairs
    sources: tuple[int, ...]  # one token id per retained pair
    targets: tuple[int, ...]
    dropped: Mapping[str, int]  # reason -> number of pairs

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def counts(self) -> bool:
        """Whether enough pairs are left to score the relation."""
        return len(self.pairs) >= MIN_PAIRS

    @property
    def words(self) -> str:
        """The numbers of retained and dropped pairs, in one sentence."""
        given = len(self.relation)
        why = ", ".join(f"{reason}: {count}" for reason, count in self.dropped.items())
        left = f"{len(self)} of {given} pairs are single tokens" + (f" ({why})" if why else "")
        return left if self.counts else f"{left}; {MIN_PAIRS} are needed, so the relation is not scored"


def single_token_pairs(relation: Relation, tokenizer: Any) -> SingleTokenPairs:
    """The pairs of a relation whose words are one token each, and the numbers of dropped pairs by reason."""
    tokens = single_token_ids([word for pair in relation.pairs for word in pair], tokenizer)
    retained: dict[tuple[int, int], tuple[str, str]] = {}
    dropped: Counter[str] = Counter()
    for pair in relation.pairs:
        source, target = (tokens[word] for word in pair)
        if source is None or target is None:
            dropped[BOTH if source is None and target is None else SOURCE if source is None else TARGET] += 1
        elif source == target and not relation.copying:
            dropped[SAME] += 1
        elif (source, target) in retained:
            dropped[DUPLICATE] += 1
        else:
            retained[source, target] = pair
    sources, targets = zip(*retained, strict=True) if retained else ((), ())
    return SingleTokenPairs(relation, tuple(retained.values()), sources, targets, dict(dropped))


def single_token_ids(words: Sequence[str], tokenizer: Any) -> dict[str, int | None]:
    """The token id of each word inside a sentence; None if the word is not a single token."""
    unique = list(dict.fromkeys(words))
    texts = [BEFORE, *(f"{BEFORE} {word}" for word in unique)]
    before, *rest = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    found: dict[str, int | None] = {}
    for word, ids in zip(unique, rest, strict=True):
        one = len(ids) == len(before) + 1 and ids[:-1] == before and ids[-1] != tokenizer.unk_token_id
        found[word] = int(ids[-1]) if one else None
    return found
