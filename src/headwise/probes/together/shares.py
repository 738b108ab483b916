"""Which problems share which cell's matrix, and the products that they make with it together.

The problems of a block stand in one list, cell by cell, whatever their number: a vector a problem, a row a vector. So
what is done to every problem is one operation over the list, and a problem that is solved leaves by leaving the list.

    product(vectors, matrices)[p]  =  vectors[p] @ matrices[the cell of p]

While every cell has as many problems as the others, that is one batched product. On a CPU problems leave one by one, and
then each cell's product is taken by itself, which costs the same there; on a GPU it would not, so that there a cell leaves
as a whole.

This module does not know what the matrices hold.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Shares"]


class Shares:
    """The list of problems: ``cells`` (problem,), rising, is the cell of each, one of ``count``."""

    def __init__(self, cells: Tensor, count: int):
        self.cells, self.count = cells, count
        sizes = torch.bincount(cells, minlength=count).tolist()
        self._even = min(sizes) == max(sizes)
        self._spans, begin = [], 0
        for cell, size in enumerate(sizes):
            if size:
                self._spans.append((cell, begin, begin + size))
            begin += size

    def product(self, vectors: Tensor, matrices: Tensor) -> Tensor:
        """(problem, a) with (cell, a, b) -> (problem, b)."""
        if self._even:
            return torch.bmm(vectors.view(self.count, -1, vectors.shape[1]), matrices).flatten(0, 1)
        out = vectors.new_empty(len(vectors), matrices.shape[2])
        for cell, begin, end in self._spans:
            torch.mm(vectors[begin:end], matrices[cell], out=out[begin:end])
        return out

    def mean(self, values: Tensor) -> Tensor:
        """(problem, a) -> (cell, a): over the problems of a cell; 0 where none is left."""
        total = values.new_zeros(self.count, values.shape[1]).index_add_(0, self.cells, values)
        return total / torch.bincount(self.cells, minlength=self.count).clamp(min=1)[:, None]

    def without(self, gone: Tensor) -> tuple[Tensor, Tensor]:
        """What stays when the problems ``gone`` leave: problems (problem,) bool, and cells (cell,) bool."""
        left = torch.bincount(self.cells[~gone], minlength=self.count) > 0
        if _one_by_one(gone.device):
            return ~gone, torch.ones_like(left)  # matrices stay where they are
        return left[self.cells], left


def _one_by_one(device: torch.device) -> bool:
    return device.type == "cpu"
