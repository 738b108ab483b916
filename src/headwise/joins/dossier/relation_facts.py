"""What the weights say of one head: its relations with the pairs it gets right, and the tokens it acts on most.

Steps: read scores, hits and words once; of a head, the relations over the study's threshold, promoted or suppressed, the
highest first, and at least the few that come nearest; of each, the first pairs that it maps right and the first that it
does not, in the order of the data.

This module does not know how scores are measured.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK, RELATION, TARGET, VOCABULARY
from headwise.joins.dossier.facts import RelationFact, SalientToken
from headwise.joins.percentiles import places

__all__ = ["RelationFacts", "SalienceFacts"]

SIGNS = {"score": ("promotes", "mapped"), "suppression": ("suppresses", "suppressed")}
FEW = 3  # relations told at least
PAIRS = 12  # pairs told that are right
MISSED = 4
TOKENS = 12
_ENDS = ("", "_low", "_high", "_null", "_null_high")


class RelationFacts:
    """The relations study, ready to be asked for any head."""

    def __init__(self, relations: xr.Dataset) -> None:
        self._names = [str(name) for name in relations[RELATION].values]
        self._category = [str(name) for name in relations["category_of"].values]
        self._threshold = float(relations.attrs["threshold"])
        self._categories = relations["categories"].transpose(LAYER, HEAD).values.astype(str)
        self._maps = {
            f"{sign}{end}": relations[f"{sign}{end}"].transpose(LAYER, HEAD, RELATION).values.astype(float)
            for sign in SIGNS
            for end in _ENDS
        }
        self._hits = {
            sign: np.ascontiguousarray(relations[variable].transpose(LAYER, HEAD, EXAMPLE).values)
            for sign, (_, variable) in SIGNS.items()
        }
        self._percentile = {sign: _percentiles(self._maps[sign]) for sign in SIGNS}
        owner = relations["relation_of"].values.astype(str)
        self._pairs = [np.flatnonzero(owner == name) for name in self._names]
        self._words = list(zip(relations["source"].values, relations["target_word"].values, strict=True))

    def categories(self, layer: int, head: int) -> tuple[str, ...]:
        """Of the head; none where it is unclassified."""
        return tuple(part.strip() for part in self._categories[layer, head].split(",") if part.strip())

    def score(self, relation: str, layer: int, head: int) -> float:
        """Of one relation, promoted; NaN where there is none of this name."""
        if relation not in self._names:
            return float("nan")
        return float(self._maps["score"][layer, head, self._names.index(relation)])

    def of(self, layer: int, head: int) -> tuple[RelationFact, ...]:
        """The relations over the threshold, and at least a few."""
        found = [
            (float(self._maps[sign][layer, head, place]), sign, place)
            for sign in SIGNS
            for place in range(len(self._names))
        ]
        found = sorted((one for one in found if np.isfinite(one[0])), key=lambda one: -one[0])
        over = sum(value > self._threshold + 1e-7 for value, _, _ in found)
        return tuple(self._fact(layer, head, sign, place) for _, sign, place in found[: max(over, FEW)])

    def _fact(self, layer: int, head: int, sign: str, place: int) -> RelationFact:
        score, low, high, null, null_high = (float(self._maps[f"{sign}{end}"][layer, head, place]) for end in _ENDS)
        own = self._pairs[place]
        hit = self._hits[sign][layer, head, own]
        return RelationFact(
            relation=self._names[place],
            category=self._category[place],
            sign=SIGNS[sign][0],
            score=score,
            low=low,
            high=high,
            null=null,
            null_high=null_high,
            over=score > self._threshold + 1e-7,
            percentile=float(self._percentile[sign][layer, head, place]),
            right=int(hit.sum()),
            pairs=len(own),
            examples=self._told(own[hit][:PAIRS]),
            missed=self._told(own[~hit][:MISSED]),
        )

    def _told(self, places_: np.ndarray) -> tuple[tuple[str, str], ...]:
        return tuple((str(self._words[place][0]), str(self._words[place][1])) for place in places_)


class SalienceFacts:
    """The salient tokens, ready to be asked for any head."""

    def __init__(self, salience: xr.Dataset) -> None:
        self._text = dict(
            zip(salience[VOCABULARY].values.tolist(), salience["text"].values.astype(str).tolist(), strict=True)
        )
        self._token = salience["token"].transpose(LAYER, HEAD, RANK).values
        self._strength = salience["strength"].transpose(LAYER, HEAD, RANK).values
        self._targets = salience["targets"].transpose(LAYER, HEAD, RANK, TARGET).values

    def of(self, layer: int, head: int) -> tuple[SalientToken, ...]:
        """The first few tokens, strongest first; none where there is no such head."""
        return tuple(
            SalientToken(
                self._text[int(token)],
                float(self._strength[layer, head, rank]),
                tuple(self._text[int(one)] for one in self._targets[layer, head, rank] if int(one) in self._text),
            )
            for rank, token in enumerate(self._token[layer, head, :TOKENS])
            if int(token) in self._text
        )


def _percentiles(scores: np.ndarray) -> np.ndarray:
    """Of (layer, head, relation), over heads."""
    return places(scores.reshape(-1, scores.shape[-1]))[0].reshape(scores.shape)
