"""Means over an example's queries, for statistics of rows and for what marked keys receive.

A statistic of a row speaks of some queries: those that count and see more than one key, or fewer of them. Its mean is

    Σ_i over them  x_i / how many they are

The mean weight on marked keys m needs no sum a row: it is what these keys receive in all, less what queries that see a single
key (and are left out) have given, which is their peak:

    [ Σ_j m_j Σ_i a_ij  -  Σ_i alone  m_only(i) peak_i ] / how many they are

All that depends on the mask alone is made once for the layers that share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.kernels import AttentionMask


@dataclass(frozen=True)
class Averages:
    """Means of (statistic, batch, head, query) and of what marked keys receive, for all layers of one mask."""

    spoken: Tensor  # (statistic, batch, 1, query) bool: the queries that each statistic speaks of
    share: Tensor  # (statistic, batch, 1): one over their number; NaN where there is none
    marks: Tensor  # (mark, batch, 1, key) float
    alone: Tensor  # (mark, batch, 1 or head, query) bool: queries whose only key is marked
    each: Tensor  # (batch, 1): one over the number of queries that see more than one key

    @classmethod
    def of(cls, mask: AttentionMask, repeat: Sequence[Tensor | None], marks: Tensor) -> Averages:
        """`repeat` are the queries (batch, query) bool that a statistic is held to, None: all; `marks` (mark, batch, key)."""
        batch, device = marks.shape[1], mask.device
        counted = mask.valid_queries(batch) & (mask.n_visible_keys(batch)[:, 0] > 1)
        spoken = torch.stack([counted if held is None else counted & held.to(device) for held in repeat])[:, :, None]
        marks = marks.to(device)
        return cls(spoken, _shares(spoken), marks[:, :, None].float(), _alone(marks, mask), _shares(counted[:, None]))

    def of_rows(self, rows: Tensor, gated: bool) -> Tensor:
        """(statistic, batch, head) of (statistic, batch, head, query).

        In a sparse model a row may look nowhere, and then has no entropy and no distance: it is left out of these means. In a
        dense one NaN is a fault, and stays.
        """
        if gated:
            speaks = self.spoken & ~rows.isnan()
            return torch.where(speaks, rows, 0.0).sum(dim=-1) * _shares(speaks)
        return torch.where(self.spoken, rows, 0.0).sum(dim=-1) * self.share

    def of_marks(self, column_sums: Tensor, peak: Tensor) -> Tensor:
        """(mark, batch, head) of column sums (batch, head, key) and peaks (batch, head, query)."""
        received = (self.marks * column_sums).sum(dim=-1)
        return (received - torch.where(self.alone, peak, 0.0).sum(dim=-1)) * self.each


def _shares(some: Tensor) -> Tensor:
    """One over how many there are along the last dim; NaN where there is none."""
    count = some.sum(dim=-1)
    return torch.where(count > 0, 1.0 / count.clamp(min=1), torch.nan)


def _alone(marks: Tensor, mask: AttentionMask) -> Tensor:
    """(mark, batch, 1 or head, query) bool: where a query counts, sees a single key, and that key is marked."""
    batch = marks.shape[1]
    if mask.explicit is not None:
        only = mask.explicit.int().argmax(dim=-1).expand(batch, -1, -1)
    else:
        own = torch.arange(mask.queries, device=mask.device) + mask.offset
        only = own.clamp(0, mask.keys - 1).expand(batch, 1, -1)
    places = only[None].expand(len(marks), *only.shape)
    marked = marks[:, :, None].expand(-1, -1, only.shape[1], -1).gather(-1, places)
    return marked & mask.valid_queries(batch)[:, None] & (mask.n_visible_keys(batch) == 1)
