"""Why is linear algebra held to one thread here?

The matrices of this folder are small (500 x 500), and there are thousands of products. Two BLAS threads wait for each
other after each of them, by spinning; where another process wants one of the cores, the wait is a whole time slice. The
table of detectors for 500 answers took 15 s with one thread, and 575 s with two threads on two cores that were shared.
On idle cores nothing is lost that matters.

Cost: microseconds a call. This module does not know what is computed, nor about threads outside BLAS.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]

P = ParamSpec("P")
R = TypeVar("R")


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, with BLAS held to one thread while it runs."""

    @functools.wraps(function)
    def held(*args: P.args, **kwargs: P.kwargs) -> R:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return held


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries, so once
