"""Blocks of work side by side on the cores of one machine, each core by itself.

Thousands of small products go badly with several threads to a product: threads wait for each other after each one, by
spinning, and where another process wants one of the cores, the wait is a whole time slice (on two busy cores 24 cells took
21 s with two threads a product, and 32 cells 5 s with a thread a block). So a block of cells is one thread's, and a thread
waits for nobody. torch releases Python's lock inside its operators.

On a GPU blocks come one after the other. This module does not know what a block is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

__all__ = ["side_by_side"]

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Sequence[T], device: torch.device) -> list[R]:
    """The results of ``work`` in the order of ``items``; as many at a time as torch has threads.

    >>> side_by_side(lambda x: x + 1, [1, 2, 3], torch.device("cpu"))
    [2, 3, 4]
    """
    if device.type != "cpu" or torch.get_num_threads() == 1:
        return [work(item) for item in items]
    with _one_thread_each() as begin, ThreadPoolExecutor(torch.get_num_threads(), initializer=begin) as pool:
        return list(pool.map(work, items))


@contextmanager
def _one_thread_each() -> Iterator[Callable[[], None]]:
    """What a worker calls first: its products keep to one thread. The caller gets its own threads back."""
    before = torch.get_num_threads()
    try:
        yield lambda: torch.set_num_threads(1)
    finally:
        torch.set_num_threads(before)
