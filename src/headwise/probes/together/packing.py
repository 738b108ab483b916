"""Matrices laid out for many products with a few vectors.

A product of five vectors with a matrix of 800 x 576 is over when the matrix has come from the cache, but a BLAS library
copies the matrix into an order of its own first, at every product, which takes longer. oneDNN (``torch.ops.mkldnn``, in
every torch for CPUs) can make that copy once: two packings a cell cost as much as four products, and each product then
takes half the time (69 us against 128 us at 5 x 800 x 576 on one core).

    packed = pack(matrices)                      # (cell, a, b), or None where this torch cannot, and on other devices
    packed[cell](vectors)                        # (vector, a) -> (vector, b)

What torch offers here is used by its own compiler and is not promised to stay, so it is tried before it is used, on a
small product with a known answer; without it products are plain ones.

This module does not know what the matrices hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

__all__ = ["pack"]

_VECTORS = 5  # the number for which the order is chosen; it serves for others
_LEAST = 2**14  # numbers in a matrix; a smaller one is faster as it is

Product = Callable[[Tensor], Tensor]


def pack(matrices: Tensor) -> Sequence[Product] | None:
    """A product for each of ``matrices`` (cell, a, b)."""
    if matrices.device.type != "cpu" or matrices[0].numel() < _LEAST or not _can_pack():
        return None
    return [partial(_product, _ordered(matrix)) for matrix in matrices]


def _ordered(matrix: Tensor) -> Any:
    return torch.ops.mkldnn._reorder_linear_weight(matrix.mT.contiguous(), _VECTORS)


def _product(ordered: Any, vectors: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(vectors, ordered, None, "none", [], "")


@cache
def _can_pack() -> bool:
    """Whether a packed product is there and gives what a plain one does."""
    try:
        matrix, vectors = torch.arange(12.0).view(3, 4), torch.arange(6.0).view(2, 3)
        return bool((_product(_ordered(matrix), vectors) == vectors @ matrix).all())
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
