"""How a command ends when it is told to: SIGTERM unwinds what is under way, as Ctrl-C does, and nothing is left half written.

Python runs a signal's handler between any two steps, also within a finaliser, where an exception is reported and forgotten:
the order would be lost, and the command would go on. Then it is given once more, from outside the finaliser.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["INTERRUPTED", "TERMINATED", "ends_when_told"]

INTERRUPTED, TERMINATED = 130, 143  # exit codes: Ctrl-C, and SIGTERM (a scheduler that takes its machine back)
AGAIN = 0.05  # seconds


@contextmanager
def ends_when_told() -> Iterator[None]:
    """For the length of a `with`; in another thread than the main one, where no signal comes, nothing."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(TERMINATED)

    def lost(unraisable: sys.UnraisableHookArgs) -> None:
        order = _order(unraisable.exc_value)
        if order is None:
            hook(unraisable)
            return
        again = threading.Timer(AGAIN, os.kill, (os.getpid(), order))
        again.daemon = True
        again.start()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, hook = signal.signal(signal.SIGTERM, end), sys.unraisablehook
    sys.unraisablehook = lost
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _order(error: BaseException | None) -> signal.Signals | None:
    """The signal that an exception stands for."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    return signal.SIGTERM if isinstance(error, SystemExit) and error.code == TERMINATED else None
