"""What does the study say about single heads? The heads of each category; one head's relations and salient tokens.

- `RelationFacts`: the relations over the study's threshold, promoted or suppressed, the highest score first, and at least
  the `MIN_RELATIONS` next ones; of each, the first pairs that the head maps right and the first that it does not.
- `SalienceFacts`: the tokens that the head scales up most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.core.dims import CATEGORY, EXAMPLE, HEAD, LAYER, RANK, RELATION, TARGET, VOCABULARY
from headwise.core.schema import INTERVAL_ENDS
from headwise.stats.ranks import percentile_per_map
from headwise.studies.head_sets import HeadSetMap, layer_head

MIN_RELATIONS = 3  # listed even where fewer are over the threshold
MAX_RIGHT_PAIRS, MAX_MISSED_PAIRS, MAX_TOKENS = 12, 4, 12
THRESHOLD_TOLERANCE = 1e-7  # scores are float32 shares
_SIGNS = {"score": ("promotes", "mapped"), "suppression": ("suppresses", "suppressed")}  # -> verb, hits per pair
_ENDS = (*INTERVAL_ENDS, "_null", "_null_high")


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per category: its heads by either sign; its map is the highest score of the category's relations.

    The score alone also names heads that promote all targets of a relation, whatever the source: on models whose heads are
    known a quarter of those it names. The shuffles of the targets take nearly all of these out (docs/headbench.md).
    """
    scores = np.fmax(*(layer_head(dataset[sign], RELATION) for sign in ("score", "suppression")))
    member = dataset["member_beyond_null"].transpose(CATEGORY, LAYER, HEAD).values
    owner = dataset["category_of"].values.astype(str)
    for index, name in enumerate(dataset[CATEGORY].values.astype(str)):
        if not (owner == name).any():
            continue
        strength = np.fmax.reduce(scores[owner == name], axis=0)
        percent = f"{100 * float(dataset.attrs['threshold']):g} %"
        rule = f"over {percent} of the pairs of one of its relations, and more than with any shuffle of the targets"
        yield HeadSetMap(f"relations.{name}", "relations", name.capitalize(), rule, strength, member[index])


@dataclass(frozen=True)
class RelationFact:
    """One relation and this head, computed from its weights."""

    relation: str
    category: str
    sign: str
    """"promotes" or "suppresses" the targets"""
    score: float
    """share of the pairs whose target is among the top k tokens"""
    low: float
    high: float
    null: float
    """mean score with shuffled targets"""
    null_high: float
    over: bool
    """over the study's threshold"""
    percentile: float
    right: int
    pairs: int
    examples: tuple[tuple[str, str], ...] = ()
    """(source, target) pairs that it gets right; the first few"""
    missed: tuple[tuple[str, str], ...] = ()
    """pairs that it does not; the first few"""


@dataclass(frozen=True)
class SalientToken:
    """A token that the head scales up most, and the tokens that it writes for it."""

    text: str
    strength: float
    """norm of the head's output over norm of its input"""
    targets: tuple[str, ...]


class RelationFacts:
    """The relations study."""

    def __init__(self, relations: xr.Dataset) -> None:
        self._names = [str(name) for name in relations[RELATION].values]
        self._category = [str(name) for name in relations["category_of"].values]
        self._threshold = float(relations.attrs["threshold"])
        self._categories = relations["categories"].transpose(LAYER, HEAD).values.astype(str)
        self._maps = {
            f"{sign}{end}": relations[f"{sign}{end}"].transpose(LAYER, HEAD, RELATION).values.astype(float)
            for sign in _SIGNS
            for end in _ENDS
        }
        self._hits = {
            sign: np.ascontiguousarray(relations[variable].transpose(LAYER, HEAD, EXAMPLE).values)
            for sign, (_, variable) in _SIGNS.items()
        }
        self._percentile = {sign: percentile_per_map(self._maps[sign]) for sign in _SIGNS}
        owner = relations["relation_of"].values.astype(str)
        self._pairs = [np.flatnonzero(owner == name) for name in self._names]
        self._words = list(zip(relations["source"].values, relations["target_word"].values, strict=True))

    def categories(self, layer: int, head: int) -> tuple[str, ...]:
        """Of the head; none where it is unclassified."""
        return tuple(part.strip() for part in self._categories[layer, head].split(",") if part.strip())

    def of(self, layer: int, head: int) -> tuple[RelationFact, ...]:
        """The relations over the threshold, and at least `MIN_RELATIONS`."""
        found = [
            (float(self._maps[sign][layer, head, index]), sign, index)
            for sign in _SIGNS
            for index in range(len(self._names))
        ]
        found = sorted((one for one in found if np.isfinite(one[0])), key=lambda one: -one[0])
        over = sum(value > self._threshold + THRESHOLD_TOLERANCE for value, _, _ in found)
        return tuple(self._fact(layer, head, sign, index) for _, sign, index in found[: max(over, MIN_RELATIONS)])

    def _fact(self, layer: int, head: int, sign: str, index: int) -> RelationFact:
        score, low, high, null, null_high = (float(self._maps[f"{sign}{end}"][layer, head, index]) for end in _ENDS)
        own = self._pairs[index]
        hit = self._hits[sign][layer, head, own]
        return RelationFact(
            relation=self._names[index],
            category=self._category[index],
            sign=_SIGNS[sign][0],
            score=score,
            low=low,
            high=high,
            null=null,
            null_high=null_high,
            over=score > self._threshold + THRESHOLD_TOLERANCE,
            percentile=float(self._percentile[sign][layer, head, index]),
            right=int(hit.sum()),
            pairs=len(own),
            examples=self._word_pairs(own[hit][:MAX_RIGHT_PAIRS]),
            missed=self._word_pairs(own[~hit][:MAX_MISSED_PAIRS]),
        )

    def _word_pairs(self, indices: np.ndarray) -> tuple[tuple[str, str], ...]:
        return tuple((str(self._words[index][0]), str(self._words[index][1])) for index in indices)


class SalienceFacts:
    """The salient tokens."""

    def __init__(self, salience: xr.Dataset) -> None:
        self._text = dict(
            zip(salience[VOCABULARY].values.tolist(), salience["text"].values.astype(str).tolist(), strict=True)
        )
        self._token = salience["token"].transpose(LAYER, HEAD, RANK).values
        self._strength = salience["strength"].transpose(LAYER, HEAD, RANK).values
        self._targets = salience["targets"].transpose(LAYER, HEAD, RANK, TARGET).values

    def of(self, layer: int, head: int) -> tuple[SalientToken, ...]:
        """The first few tokens, strongest first; none where the head has none."""
        return tuple(
            SalientToken(
                self._text[int(token)],
                float(self._strength[layer, head, rank]),
                tuple(self._text[int(one)] for one in self._targets[layer, head, rank] if int(one) in self._text),
            )
            for rank, token in enumerate(self._token[layer, head, :MAX_TOKENS])
            if int(token) in self._text
        )
