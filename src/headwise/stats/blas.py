"""Holding BLAS to one thread.

Statistics and detectors multiply small matrices (500 x 500) thousands of times. Two BLAS threads synchronise by spinning
after each product; where another process uses one of the cores, that wait is a whole time slice. The detector table for
500 answers took 15 s with one thread and 575 s with two threads on two shared cores. On idle cores little is lost.

Cost: microseconds per call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")


def single_threaded_blas(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, with BLAS held to one thread while it runs."""

    @functools.wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # scans all loaded libraries, so only once
