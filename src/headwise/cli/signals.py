"""SIGTERM ends a command as Ctrl-C does: the stack unwinds, so that no file is left half written.

Python may run a signal handler inside a finaliser (`__del__`), where exceptions are printed and dropped: the signal would be
lost. The unraisable-exception hook detects this and sends the signal again, outside the finaliser.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["INTERRUPTED", "TERMINATED", "unwind_on_sigterm"]

INTERRUPTED, TERMINATED = 130, 143  # exit codes: Ctrl-C, and SIGTERM (as sent by a job scheduler)
RESEND_DELAY_S = 0.05


@contextmanager
def unwind_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM inside the `with`; does nothing outside the main thread, which alone receives signals."""

    def on_sigterm(number: int, frame: Any) -> None:
        raise SystemExit(TERMINATED)

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        lost = _signal_of(unraisable.exc_value)
        if lost is None:
            previous_hook(unraisable)
            return
        resend = threading.Timer(RESEND_DELAY_S, os.kill, (os.getpid(), lost))
        resend.daemon = True
        resend.start()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous, previous_hook = signal.signal(signal.SIGTERM, on_sigterm), sys.unraisablehook
    sys.unraisablehook = on_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def _signal_of(error: BaseException | None) -> signal.Signals | None:
    """The signal that raised an exception; None for any other exception."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    return signal.SIGTERM if isinstance(error, SystemExit) and error.code == TERMINATED else None
