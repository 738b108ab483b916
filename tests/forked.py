"""Children of this process that do one thing and end, or are killed at it (tests/atlas/crashes.py and object_crashes.py).

A child starts with all that its parent has imported, so a round takes milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def child(work: Callable[[], object]) -> int:
    """The process id of a child at work; its exit code is 1 where it raises."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def result(pid: int) -> int:
    """The exit code of a child, waited for."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_random(replace: Callable[[int], object], look: Callable[[], Seen], kills: int) -> list[Seen]:
    """Kill a child that does ``replace(number)`` with ever higher numbers, at any moment after its first; look each time."""
    hear, tell = os.pipe()

    def replace_from(number: int) -> None:
        while True:
            number += 1
            replace(number)
            os.write(tell, b".")

    draw, seen = random.Random(0), []
    for kill in range(kills):
        began = time.monotonic()
        pid = child(lambda kill=kill: replace_from(1000 * kill))
        os.read(hear, 1)
        time.sleep(draw.uniform(0, 1.5) * (time.monotonic() - began))  # however slow this machine is today
        os.kill(pid, signal.SIGKILL)
        assert result(pid) == -signal.SIGKILL
        os.set_blocking(hear, False)
        with contextlib.suppress(BlockingIOError):
            os.read(hear, 1000)
        os.set_blocking(hear, True)
        seen.append(look())
    return seen
