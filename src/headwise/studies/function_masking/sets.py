"""Which heads are masked: the most important ones of a function, and as many random ones that are not among them.

    own      the n heads with the largest |importance|, for every n of the sweep: nested
    random   n of all other heads: those outside the function's largest set; drawn several times, nested likewise

A set is kept as the factor of every head, (layer, head): 1, or what masked heads are multiplied by. This module does not
know how heads were ranked, nor what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import FUNCTION, HEAD, LAYER, head_name, parse_head

__all__ = ["Head", "Sets"]

Head = tuple[int, int]


class Sets:
    """The heads of each function in order of importance, and random ones beside them."""

    def __init__(self, maps: xr.Dataset, *, factor: float, seed: int):
        self.functions = [str(name) for name in maps[FUNCTION].values]
        self.shape = (maps.sizes[LAYER], maps.sizes[HEAD])
        refused = dict(zip(self.functions, maps["refused"].values.tolist(), strict=True))
        ranked = {name: maps["ranked"].sel({FUNCTION: name}).values for name in self.functions}
        self.ranked: dict[str, list[Head]] = {
            name: [] if refused[name] else [parse_head(str(head)) for head in ranked[name]] for name in self.functions
        }
        self.everyone: list[Head] = sorted(parse_head(str(head)) for head in ranked[self.functions[0]])
        self.factor, self.seed = factor, seed

    def own(self, function: str, count: int) -> list[Head]:
        """The most important heads of a function; none where its map was refused."""
        return self.ranked[function][:count]

    def draws(self, function: str, largest: int, count: int) -> list[list[Head]]:
        """`count` random orders of the heads outside the function's `largest` set; the first n of one are a set of n."""
        return self.outside([self.own(function, largest)], count, function)

    def outside(self, sets: Sequence[Sequence[Head]], count: int, name: str) -> list[list[Head]]:
        """Random orders of the heads that are in none of these sets; `name` makes them a draw of its own."""
        taken = {head for some in sets for head in some}
        left = [head for head in self.everyone if head not in taken]
        random = np.random.default_rng([self.seed, *name.encode()])
        return [[left[place] for place in random.permutation(len(left))] for _ in range(count)]

    def factors(self, heads: Sequence[Head]) -> Tensor:
        """(layer, head): 1, and `factor` for these heads."""
        found = torch.ones(self.shape)
        for layer, head in heads:
            found[layer, head] = self.factor
        return found


def names_of(heads: Sequence[Head]) -> str:
    """As a text: "L3H7, L4H0"."""
    return ", ".join(head_name(*head) for head in heads)
