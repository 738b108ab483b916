"""How far a long computation is, for a listener far away: no function in between has to pass a callback on.

    with reporting(lambda what, done, total: print(f"{what}: {done} of {total}")):
        table = detector_table(...)                    # calls report("detectors", 3, 40) as it goes

Without a listener `report` does nothing. Cost: a lookup per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[str, int, int], object]
_LISTENER: ContextVar[Report | None] = ContextVar("headwise_progress", default=None)


@contextmanager
def reporting(listener: Report) -> Iterator[None]:
    """Inside the block, ``listener`` is called with what is computed, how much of it is done, and of how much."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def report(what: str, done: int, total: int) -> None:
    """Tell the listener, if there is one.

    >>> with reporting(print):
    ...     report("detectors", 3, 40)
    detectors 3 40
    >>> report("detectors", 4, 40)
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(what, done, total)


class StepCount:
    """A count of steps, reported after each.

    >>> with reporting(print):
    ...     steps = StepCount("detectors", 2)
    ...     steps()
    ...     steps()
    detectors 0 2
    detectors 1 2
    detectors 2 2
    """

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        report(what, 0, total)

    def __call__(self) -> None:
        """One more is done."""
        self.done += 1
        report(self.what, self.done, max(self.done, self.total))
