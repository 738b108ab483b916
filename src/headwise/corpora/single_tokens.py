"""Which pairs of a relation can be asked about with this tokenizer? Those whose two words are one token each.

A head's matrix maps one token to one token, so the published rule (Elhelo & Geva 2024) keeps a pair when source and
target, each with a blank in front as inside a sentence, are exactly one token; and a relation counts only when at
least 30 pairs are left. What is dropped is counted by its reason and never hidden: a tokenizer that splits numbers
into digits has no years, and a small vocabulary few foreign words.

The blank is put in front by writing the word after another one, since some tokenizers add a blank of their own to a
text's beginning: the ids of "the cold" are those of "the" and then one more, or the word is several tokens. A word the
tokenizer does not know at all is not a token. Where letter case is lost, source and target of a relation such as
uppercase are one token, and the pair says nothing.

Cost: one call of the tokenizer. This module knows no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.corpora.relations import Relation

__all__ = ["LEAST_PAIRS", "Kept", "single_token", "token_of"]

LEAST_PAIRS = 30  # of a relation that counts
BEFORE = "the"

SOURCE = "source is several tokens"
TARGET = "target is several tokens"
BOTH = "both are several tokens"
SAME = "source and target are one token"
TWICE = "another pair has the same tokens"


@dataclass(frozen=True)
class Kept:
    """A relation as this tokenizer has it."""

    relation: Relation
    pairs: tuple[tuple[str, str], ...]  # those left
    sources: tuple[int, ...]  # a token id for each pair left
    targets: tuple[int, ...]
    dropped: Mapping[str, int]  # reason -> pairs

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def counts(self) -> bool:
        """Whether enough pairs are left for a score."""
        return len(self.pairs) >= LEAST_PAIRS

    @property
    def words(self) -> str:
        """What was kept and dropped, in one sentence."""
        given = len(self.relation)
        why = ", ".join(f"{reason}: {count}" for reason, count in self.dropped.items())
        left = f"{len(self)} of {given} pairs are single tokens" + (f" ({why})" if why else "")
        return left if self.counts else f"{left}; {LEAST_PAIRS} are needed, so the relation does not count"


def single_token(relation: Relation, tokenizer: Any) -> Kept:
    """The pairs of a relation whose words are one token each, and how many were dropped for which reason."""
    tokens = token_of([word for pair in relation.pairs for word in pair], tokenizer)
    kept: dict[tuple[int, int], tuple[str, str]] = {}
    dropped: Counter[str] = Counter()
    for pair in relation.pairs:
        source, target = (tokens[word] for word in pair)
        if source is None or target is None:
            dropped[BOTH if source is None and target is None else SOURCE if source is None else TARGET] += 1
        elif source == target and not relation.copying:
            dropped[SAME] += 1
        elif (source, target) in kept:
            dropped[TWICE] += 1
        else:
            kept[source, target] = pair
    sources, targets = zip(*kept, strict=True) if kept else ((), ())
    return Kept(relation, tuple(kept.values()), sources, targets, dict(dropped))


def token_of(words: Sequence[str], tokenizer: Any) -> dict[str, int | None]:
    """The one token of each word inside a sentence, or None where it is not one token."""
    unique = list(dict.fromkeys(words))
    texts = [BEFORE, *(f"{BEFORE} {word}" for word in unique)]
    before, *rest = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    found: dict[str, int | None] = {}
    for word, ids in zip(unique, rest, strict=True):
        one = len(ids) == len(before) + 1 and ids[:-1] == before and ids[-1] != tokenizer.unk_token_id
        found[word] = int(ids[-1]) if one else None
    return found
