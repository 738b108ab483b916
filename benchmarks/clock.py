"""How time and memory are taken, the same way here and in the peers' own environments. Knows neither torch nor Headwise.

Cases run in one process, in turn, round after round, so that a machine that slows down slows all of them; in an order that is
drawn again for each round, since a pass is quicker after an easy one. A case's ratio is that of the median times. Memory is the
largest resident set, and means something only in a process that does nothing else.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple


class Ratio(NamedTuple):
    """Of the rounds of one case."""

    seconds: float  # median
    ratio: float  # of the median times
    lowest: float  # of the ratios within a round
    highest: float


def in_turn(
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    set_frozen: Callable[[], object] = lambda: None,
    timer: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every case in every round, after one round to warm up; `set_frozen` waits for a device's queue."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    order, dice = list(cases.items()), random.Random(0)
    for turn in range(rounds + 1):
        for name, case in order:
            set_frozen()
            start = timer()
            case()
            set_frozen()
            if turn:
                seconds[name].append(timer() - start)
        dice.shuffle(order)
    return seconds


def ratio(seconds: Sequence[float], base: Sequence[float]) -> Ratio:
    """A case against its base.

    >>> ratio([2.0, 9.0, 4.0], [1.0, 3.0, 2.0])
    Ratio(seconds=4.0, ratio=2.0, lowest=2.0, highest=3.0)
    """
    ratios = [own / plain for own, plain in zip(seconds, base, strict=True)]
    return Ratio(median(seconds), median(seconds) / median(base), min(ratios), max(ratios))


def peak() -> float:
    """Of this process, in MB. Linux hands `ru_maxrss` of the parent down to the child, so its own mark is read there."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def resident() -> float:
    """What this process holds now, in MB; where the system does not say, the most it has held."""
    return _status("VmRSS") or peak()


def _status(field: str) -> float | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6
