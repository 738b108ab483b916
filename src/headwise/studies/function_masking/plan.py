"""What is asked of one function: its held-out steps, and every change they are asked with.

    done      steps that the whole model answers right: asked with the function's own heads masked, with random ones, and
              with the heads of every other function
    failed    some that it does not: asked with own and random heads masked, at one size; do they come right?
    mixed     some of both, in their shares: asked with the directions of right answers added, and with random directions

A table of changes by name, and for each which steps it is tried on. Pure; no model. This module does not know how steps
are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, FUNCTION
from headwise.corpora import Step
from headwise.studies.function_masking.asking import Change
from headwise.studies.function_masking.sets import Sets

__all__ = ["Asked", "Key", "asked_of", "augmentations", "maskings"]

Key = tuple[str, int, int]  # kind, number of heads (or place of the amount), draw or other function


class Asked(NamedTuple):
    """The held-out steps of a function, by what the whole model makes of them."""

    steps: list[Step]
    """all that are asked in any way"""
    done: list[int]
    failed: list[int]
    mixed: list[int]
    """places in `steps`"""
    tried: int
    """held-out steps that there are"""
    right: int
    """of these, done"""


def asked_of(maps: xr.Dataset, steps: dict[str, Step], function: str, sizes: Sequence[int], seed: int) -> Asked:
    """Choose steps at random, the same ones for every change; `sizes`: how many done, failed and mixed at most."""
    own = (maps["function_of"].values.astype(str) == function) & (maps["split_of"].values.astype(str) != "train")
    names, right = maps[EXAMPLE].values.astype(str)[own], maps["right"].values[own]
    order = np.random.default_rng([seed, *function.encode(), 1]).permutation(len(names))
    done, failed = [at for at in order if right[at]], [at for at in order if not right[at]]
    parts = [done[: sizes[0]], failed[: sizes[1]], list(order[: sizes[2]])]
    used = sorted({int(at) for part in parts for at in part})
    done, failed, mixed = ([used.index(int(at)) for at in part] for part in parts)
    return Asked([steps[str(names[at])] for at in used], done, failed, mixed, len(names), int(right.sum()))


def maskings(
    sets: Sets, function: str, asked: Asked, heads: Sequence[int], size: int, draws: int
) -> list[tuple[Key, list[int], Change]]:
    """Every masking of a function's steps: key, places of the steps, change."""
    found: list[tuple[Key, list[int], Change]] = []
    orders = sets.draws(function, max(heads), draws)
    for count in heads:
        both = asked.done + (asked.failed if count == size else [])
        if sets.ranked[function]:
            found.append((("own", count, 0), both, Change(sets.factors(sets.own(function, count)))))
        elif count != size:
            continue  # nothing to compare with; at `size` the random sets are the control of the cross-masking
        found += [
            (("random", count, draw), both, Change(sets.factors(order[:count]))) for draw, order in enumerate(orders)
        ]
    for place, other in enumerate(sets.functions):
        if other != function and sets.ranked[other]:
            found.append((("cross", size, place), asked.done, Change(sets.factors(sets.own(other, size)))))
    return found


def augmentations(
    sets: Sets, maps: xr.Dataset, function: str, asked: Asked, amounts: Sequence[float], size: int, draws: int
) -> list[tuple[Key, list[int], Change]]:
    """Every augmenting of a function's steps; none where it has no heads or no directions."""
    vectors = np.nan_to_num(maps["direction"].sel({FUNCTION: function}).values)
    heads = sets.own(function, size)
    if not heads or not vectors.any():
        return []
    there = torch.zeros(sets.shape)
    for layer, head in heads:
        there[layer, head] = 1
    own = torch.from_numpy(vectors) * there[:, :, None]  # (layer, head, width)
    nothing = sets.factors([])
    found: list[tuple[Key, list[int], Change]] = [(("augment", 0, 0), asked.mixed, Change(nothing))]
    generator = torch.Generator().manual_seed(sets.seed)
    others = [_turned(own, generator) for _ in range(draws)]
    for place, amount in enumerate(amounts, start=1):
        found.append((("augment", place, 0), asked.mixed, Change(nothing, own * amount)))
        found += [
            (("turned", place, draw), asked.mixed, Change(nothing, one * amount)) for draw, one in enumerate(others)
        ]
    return found


def _turned(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """Vectors of the same lengths in random directions."""
    new = torch.randn(vectors.shape, generator=generator)
    return new / new.norm(dim=-1, keepdim=True) * vectors.norm(dim=-1, keepdim=True)
