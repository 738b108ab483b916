"""What the functions study, and the masking of its heads, say of one head.

Steps: read the maps once; of a head, one `FunctionFact` a function, ranked by magnitude among all heads, the most important
function first; of the masking, the smallest masked set of the function that has this head in it. A set was masked whole:
what happened is the set's doing, not the head's.

This module does not know how importance is measured.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import FUNCTION, HEAD, LAYER, REMOVED, head_name
from headwise.joins.dossier.facts import FunctionFact, MaskingFact
from headwise.joins.percentiles import places

__all__ = ["FunctionFacts"]

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
