"""What does the study say about single heads? The heads of each function, and one head's place in every function.

`FunctionFacts` gives one `FunctionFact` per function, ranked by magnitude among all heads; of function masking, the smallest
masked set that includes the head. A set is masked as a whole: the effect belongs to the set, not to the head alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.core.dims import FUNCTION, HEAD, LAYER, REMOVED, head_name
from headwise.stats.multiple_testing import ALPHA
from headwise.stats.ranks import rank_stats
from headwise.studies.head_sets import HeadSetMap, layer_head, set_key

_FUNCTION_MAPS = (
    "importance", "importance_low", "importance_high", "magnitude", "null_high", "p", "q", "single_head_auroc",
    "single_head_q",
)  # fmt: skip
_MASKING_CURVES = {"own": "own", "random": "random", "effect": "effect", "effect_low": "low", "effect_high": "high"}


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per function: the heads that matter more to it than to any other, and from which alone it can be decoded, since
    the joint probe also sees the mean of a head's layer; the map is the magnitude of the importance.

    Before version 4 the study did not test the first: there, the heads up to the elbow with q < 0.05.
    """
    if "own_q" in dataset:
        member = (dataset["own_q"] < ALPHA) & (dataset["single_head_q"] < ALPHA)
        rule = "more important to this function than to any other, and decoding it alone, each with q < 0.05"
    else:
        member, rule = dataset["chosen"] & dataset["beyond_null"], "up to the elbow of importance, with q < 0.05"
    strength, members = layer_head(dataset["magnitude"], FUNCTION), member.transpose(FUNCTION, LAYER, HEAD).values
    for index, name in enumerate(dataset[FUNCTION].values.astype(str)):
        yield HeadSetMap(set_key("functions", name), "functions", name, rule, strength[index], members[index])


@dataclass(frozen=True)
class MaskingFact:
    """The answers of a function when a set of heads that includes this head was masked."""

    size: int
    """heads in the smallest masked set of this function that includes the head"""
    own: float
    """share of answers still right"""
    random: float
    """the same with as many random heads"""
    effect: float
    """random - own"""
    low: float
    high: float
    asked: int


@dataclass(frozen=True)
class FunctionFact:
    """One function and this head."""

    function: str
    importance: float
    """gradient x activation, signed"""
    low: float
    high: float
    magnitude: float
    null_high: float
    """95th percentile of this head's maps with permuted labels"""
    rank: int
    """1 is the most important head of this function"""
    n_heads: int
    p: float
    q: float
    chosen: bool
    """among the function's heads: those up to the elbow"""
    best: bool
    """of all functions with q < 0.05, the one for which this head is most important"""
    alone: float
    """AUROC of this function against the others from this head alone"""
    alone_q: float
    refused: str = ""
    """why this function has no map; then there are no numbers"""
    masking: MaskingFact | None = None
    """None: no masked set of this function includes the head"""


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
