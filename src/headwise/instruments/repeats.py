"""Where a sequence repeats itself: the places an induction or a duplicate-token head would look at.

    tokens     a b c a b          query 3 (a): duplicate 0, induction 1
               0 1 2 3 4          query 4 (b): duplicate 1, induction 2

For query i and every earlier p with the same token, a duplicate head looks at p, an induction head at p + 1, the token that
followed it last time (left out where that is i itself). Both are matches: of a key's own token, and of the token before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.kernels import Match


def repeats(ids: Tensor, valid: Tensor) -> tuple[Match, Match]:
    """Duplicate and induction places of token ids (batch, token); what is not `valid` matches nothing."""
    own = ids.masked_fill(~valid, -1)
    before = torch.nn.functional.pad(own[:, :-1], (1, 0), value=-1).masked_fill(~valid, -1)
    return Match(own, own), Match(own, before)


def repeating(ids: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """(batch, token) bool, twice: the queries that have a duplicate, an induction place to look at.

    A token has one if its first occurrence lies before it, or more than one place before it.
    """
    place = torch.arange(ids.shape[1], device=ids.device)
    first = _first_occurrences(ids.masked_fill(~valid, -1))
    return (first < place) & valid, (first < place - 1) & valid


def _first_occurrences(ids: Tensor) -> Tensor:
    """(batch, token): where each token stands for the first time. Sorts, so that nothing of the size T x T is made."""
    ordered, places = ids.sort(dim=1, stable=True)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = torch.arange(ids.shape[1], device=ids.device).expand_as(ids).where(begins, 0).cummax(dim=1).values
    return torch.empty_like(places).scatter_(1, places, places.gather(1, run))
