"""What the weights say of one head: its relations with the pairs it gets right, and the tokens it acts on most.

Steps: read scores, hits and words once; of a head, the relations over the study's threshold, promoted or suppressed, the
highest first, and at least the few that come nearest; of each, the first pairs that it maps right and the first that it
does not, in the order of the data.

This module does not know how scores are measured.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.analysis.head_facts import FunctionFact, MaskingFact, PatternFact, PatternMaps, RelationFact, SalientToken
from headwise.analysis.rank_stats import places
from headwise.core.dims import (
    EXAMPLE,
    FUNCTION,
    HEAD,
    LAYER,
    QUERY,
    RANK,
    RELATION,
    REMOVED,
    SUBJECT,
    TARGET,
    VOCABULARY,
    head_name,
)
from headwise.figures.tiles import to_levels

__all__ = ["FunctionFacts", "PatternFacts", "RelationFacts", "SalienceFacts"]

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


_MAPS = ("importance", "importance_low", "importance_high", "magnitude", "null_high", "p", "q", "alone", "alone_q")
_CURVES = ("own", "random", "effect", "effect_low", "effect_high")


class FunctionFacts:
    """The functions study, ready to be asked for any head."""

    def __init__(self, functions: xr.Dataset, masking: xr.Dataset | None) -> None:
        self._names = [str(name) for name in functions[FUNCTION].values]
        self._maps = {name: functions[name].transpose(FUNCTION, LAYER, HEAD).values.astype(float) for name in _MAPS}
        self._chosen = functions["chosen"].transpose(FUNCTION, LAYER, HEAD).values
        self._best = functions["best"].transpose(LAYER, HEAD).values.astype(str)
        self._reason = [str(text) for text in functions["reason"].values]
        magnitude = self._maps["magnitude"]
        _, rank, self._of = places(magnitude.reshape(len(self._names), -1).T)
        self._rank = rank.T.reshape(magnitude.shape)
        self._masked = {} if masking is None else _masked(masking)

    def of(self, layer: int, head: int) -> tuple[FunctionFact, ...]:
        """One fact a function; refused functions last."""
        facts = [self._fact(place, layer, head) for place in range(len(self._names))]
        return tuple(sorted(facts, key=lambda fact: (bool(fact.refused), -np.nan_to_num(fact.magnitude))))

    def _fact(self, place: int, layer: int, head: int) -> FunctionFact:
        at = {name: float(values[place, layer, head]) for name, values in self._maps.items()}
        name = self._names[place]
        sets = self._masked.get(name, [])
        return FunctionFact(
            function=name,
            importance=at["importance"],
            low=at["importance_low"],
            high=at["importance_high"],
            magnitude=at["magnitude"],
            null_high=at["null_high"],
            rank=int(self._rank[place, layer, head]),
            of=int(self._of[place]),
            p=at["p"],
            q=at["q"],
            chosen=bool(self._chosen[place, layer, head]),
            best=self._best[layer, head] == name,
            alone=at["alone"],
            alone_q=at["alone_q"],
            refused=self._reason[place],
            masking=next((fact for heads, fact in sets if head_name(layer, head) in heads), None),
        )


def _masked(masking: xr.Dataset) -> dict[str, list[tuple[frozenset[str], MaskingFact]]]:
    """By function: the masked sets, the smallest first, with what happened."""
    sizes = [int(size) for size in masking[REMOVED].values]
    curves = {name: masking[name].transpose(FUNCTION, REMOVED).values for name in _CURVES}
    heads = masking["heads"].transpose(FUNCTION, REMOVED).values
    found = {}
    for row, name in enumerate(str(each) for each in masking[FUNCTION].values):
        asked = int(masking["asked"].values[row])
        facts = [
            (
                frozenset(str(heads[row, place]).split(", ")),
                MaskingFact(size, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], asked),
            )
            for place, size in enumerate(sizes)
            if np.isfinite((numbers := [float(curves[key][row, place]) for key in _CURVES])[0])
        ]
        found[name] = sorted(facts, key=lambda one: one[1].size)
    return found


class PatternFacts:
    """The patterns study, ready to be asked for any head."""

    def __init__(self, patterns: xr.Dataset) -> None:
        self._keys = [str(key) for key in patterns[SUBJECT].values]
        self._names = [str(name) for name in patterns["name"].values]
        self._tokens = tuple(str(text) for text in patterns["token_text"].values)
        self._starts = tuple(int(start) for start in patterns[QUERY].values)
        self._prompts = tuple(str(name) for name in patterns[EXAMPLE].values)
        self._maps = {name: patterns[name].transpose(SUBJECT, LAYER, HEAD, ...).values for name in ("shown", "average")}

    def of(self, layer: int, head: int) -> PatternFact | None:
        """The head's maps of every subject; None where it has none."""
        if not np.isfinite(self._maps["shown"][:, layer, head]).any():
            return None
        maps = tuple(
            PatternMaps(
                key, name, *(to_levels(self._maps[kind][place, layer, head], 0, 1) for kind in ("shown", "average"))
            )
            for place, (key, name) in enumerate(zip(self._keys, self._names, strict=True))
        )
        return PatternFact(self._tokens, self._starts, self._prompts, maps)
