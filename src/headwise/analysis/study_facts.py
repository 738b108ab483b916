"""What do single studies say about one head beyond numbers? Functions, relations, salient tokens, attention maps.

Each class reads the maps of its study once and then answers for any head.

- `FunctionFacts`: one `FunctionFact` per function, ranked by magnitude among all heads; of function masking, the smallest
  masked set that includes the head. A set is masked as a whole: the effect belongs to the set, not to the head alone.
- `RelationFacts`: the relations over the study's threshold, promoted or suppressed, the highest score first, and at least
  the `MIN_RELATIONS` next ones; of each, the first pairs that the head maps right and the first that it does not.
- `SalienceFacts`: the tokens that the head scales up most.
- `PatternFacts`: attention maps as pixels (`figures.tiles`).
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.analysis.head_facts import (
    FunctionFact,
    MaskingFact,
    PatternFact,
    PatternMaps,
    RelationFact,
    SalientToken,
)
from headwise.analysis.rank_stats import rank_stats
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

MIN_RELATIONS = 3  # listed even where fewer are over the threshold
MAX_RIGHT_PAIRS, MAX_MISSED_PAIRS, MAX_TOKENS = 12, 4, 12
THRESHOLD_TOLERANCE = 1e-7  # scores are float32 shares
_SIGNS = {"score": ("promotes", "mapped"), "suppression": ("suppresses", "suppressed")}  # -> verb, hits per pair
_ENDS = ("", "_low", "_high", "_null", "_null_high")
_FUNCTION_MAPS = (
    "importance", "importance_low", "importance_high", "magnitude", "null_high", "p", "q", "single_head_auroc",
    "single_head_q",
)  # fmt: skip
_MASKING_CURVES = {"own": "own", "random": "random", "effect": "effect", "effect_low": "low", "effect_high": "high"}


class FunctionFacts:
    """The functions study, and the masking of its heads."""

    def __init__(self, functions: xr.Dataset, masking: xr.Dataset | None) -> None:
        self._names = [str(name) for name in functions[FUNCTION].values]
        self._maps = {
            name: functions[name].transpose(FUNCTION, LAYER, HEAD).values.astype(float) for name in _FUNCTION_MAPS
        }
        self._chosen = functions["chosen"].transpose(FUNCTION, LAYER, HEAD).values
        self._best = functions["best"].transpose(LAYER, HEAD).values.astype(str)
        self._reason = [str(text) for text in functions["reason"].values]
        magnitude = self._maps["magnitude"]
        _, rank, self._measured = rank_stats(magnitude.reshape(len(self._names), -1).T)
        self._rank = rank.T.reshape(magnitude.shape)
        self._masked = {} if masking is None else _masked_sets(masking)

    def of(self, layer: int, head: int) -> tuple[FunctionFact, ...]:
        """One fact per function, the largest magnitude first; refused functions last."""
        facts = [self._fact(index, layer, head) for index in range(len(self._names))]
        return tuple(sorted(facts, key=lambda fact: (bool(fact.refused), -np.nan_to_num(fact.magnitude))))

    def _fact(self, index: int, layer: int, head: int) -> FunctionFact:
        at = {name: float(values[index, layer, head]) for name, values in self._maps.items()}
        name = self._names[index]
        return FunctionFact(
            function=name,
            importance=at["importance"],
            low=at["importance_low"],
            high=at["importance_high"],
            magnitude=at["magnitude"],
            null_high=at["null_high"],
            rank=int(self._rank[index, layer, head]),
            n_heads=int(self._measured[index]),
            p=at["p"],
            q=at["q"],
            chosen=bool(self._chosen[index, layer, head]),
            best=self._best[layer, head] == name,
            alone=at["single_head_auroc"],
            alone_q=at["single_head_q"],
            refused=self._reason[index],
            masking=next((fact for heads, fact in self._masked.get(name, []) if head_name(layer, head) in heads), None),
        )


def _masked_sets(masking: xr.Dataset) -> dict[str, list[tuple[frozenset[str], MaskingFact]]]:
    """By function: the masked sets with their effects, the smallest first."""
    sizes = [int(size) for size in masking[REMOVED].values]
    curves = {name: masking[name].transpose(FUNCTION, REMOVED).values for name in _MASKING_CURVES}
    heads = masking["heads"].transpose(FUNCTION, REMOVED).values
    found = {}
    for row, name in enumerate(masking[FUNCTION].values.astype(str)):
        asked = int(masking["masked_steps"].values[row])
        facts = [
            (
                frozenset(str(heads[row, column]).split(", ")),
                MaskingFact(
                    size,
                    **{_MASKING_CURVES[key]: float(values[row, column]) for key, values in curves.items()},
                    asked=asked,
                ),
            )
            for column, size in enumerate(sizes)
            if np.isfinite(curves["own"][row, column])
        ]
        found[str(name)] = sorted(facts, key=lambda one: one[1].size)
    return found


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


class PatternFacts:
    """The patterns study: the map of the shown prompt, and the mean over all prompts."""

    def __init__(self, patterns: xr.Dataset) -> None:
        self._keys = [str(key) for key in patterns[SUBJECT].values]
        self._names = [str(name) for name in patterns["name"].values]
        self._tokens = tuple(str(text) for text in patterns["token_text"].values)
        self._starts = tuple(int(start) for start in patterns[QUERY].values)
        self._prompts = tuple(str(name) for name in patterns[EXAMPLE].values)
        self._maps = {name: patterns[name].transpose(SUBJECT, LAYER, HEAD, ...).values for name in ("shown", "average")}

    def of(self, layer: int, head: int) -> PatternFact | None:
        """The head's maps in every model; None where it has none."""
        if not np.isfinite(self._maps["shown"][:, layer, head]).any():
            return None
        maps = tuple(
            PatternMaps(
                key, name, *(to_levels(self._maps[kind][index, layer, head], 0, 1) for kind in ("shown", "average"))
            )
            for index, (key, name) in enumerate(zip(self._keys, self._names, strict=True))
        )
        return PatternFact(self._tokens, self._starts, self._prompts, maps)


def percentile_per_map(maps: np.ndarray) -> np.ndarray:
    """Of (layer, head, map): each head's percentile among all heads of the map."""
    return rank_stats(maps.reshape(-1, maps.shape[-1]))[0].reshape(maps.shape)
