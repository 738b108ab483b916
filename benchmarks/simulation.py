"""A run over many workers, event by event: shards, one driver, workers that fail, workers that are slow.

The rules are those of `engines` (docs/cluster.md). A worker loads the model, then measures one shard after another. What it
measured goes to the driver, which takes one at a time (commits it, leases the next), and the worker waits for that. A
worker that fails loses its shard, which goes back to those that wait; a new one stands in its place after a restart and a
load. Failures come at random at a constant rate while a worker measures or loads (a load that fails is begun again).

    no failures, no driver        time = load + ceil(shards / workers) x shard
    at least as many workers      time = load + shard + shards x driver
    one worker, failures          time = E(load) + shards x (1/rate + E(load)) (exp(rate x shard) - 1),
                                  E(load) = (1/rate + restart) (exp(rate x load) - 1)

which tests/test_scale.py holds it to. Time is in seconds. This module does not know what is measured, nor what it costs.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Outcome", "Run", "simulate"]


@dataclass(frozen=True)
class Run:
    """What is run."""

    shards: int
    workers: int
    shard: float  # seconds of one, on a worker that is not slow
    load: float = 0.0  # of the model, by each worker
    driver: float = 0.0  # of the driver for one shard: to take it, commit it and lease the next
    mtbf: float = math.inf  # between two failures of a worker
    restart: float = 0.0  # until a new worker begins to load
    spread: float = 0.0  # of the time of a shard: standard deviation of its logarithm
    slow: float = 0.0  # share of shards that take `slowness` times as long
    slowness: float = 3.0
    seed: int = 0


class Outcome(NamedTuple):
    """What came of it."""

    seconds: float
    failures: int
    redone: int  # shards that were begun and lost
    measured: float  # worker-seconds spent on shards that counted
    driver: float  # share of the time that the driver was busy
    most_waiting: int  # results that waited for the driver at once, at most

    def efficiency(self, workers: int) -> float:
        """Worker-seconds on shards that counted, over all worker-seconds."""
        return self.measured / (self.seconds * workers) if self.seconds else 1.0


READY, DONE, FAILED = range(3)  # what happens to a worker


@dataclass
class _State:
    run: Run
    random: random.Random
    waiting: int  # shards that nobody has
    events: list[tuple[float, int, int, float]] = field(
        default_factory=list
    )  # when, what, to which worker, seconds spent
    idle: list[int] = field(default_factory=list)  # workers that found nothing to do
    failures: int = 0
    redone: int = 0
    measured: float = 0.0


def simulate(run: Run) -> Outcome:
    """Run it once."""
    state = _State(run, random.Random(run.seed), run.shards)
    for worker in range(run.workers):
        heapq.heappush(state.events, (_loaded(state, 0.0), READY, worker, 0.0))
    free, done, most = 0.0, 0, 0
    while done < run.shards:
        now, what, worker, spent = heapq.heappop(state.events)
        if what == READY:
            _take(state, worker, now)
        elif what == FAILED:
            _fail(state, worker, now)
        else:
            free = max(now, free) + run.driver
            state.measured += spent
            done += 1
            most = max(most, math.ceil((free - now) / run.driver - 1e-9) if run.driver else 0)
            heapq.heappush(state.events, (free, READY, worker, 0.0))
    return Outcome(
        free, state.failures, state.redone, state.measured, run.shards * run.driver / free if free else 0.0, most
    )


def _take(state: _State, worker: int, now: float) -> None:
    """A worker takes a shard, if one waits; what comes of it is an event."""
    if state.waiting == 0:
        state.idle.append(worker)
        return
    state.waiting -= 1
    spent = state.run.shard * _slowed(state)
    until = _failure(state)
    event = (now + until, FAILED, worker, 0.0) if until < spent else (now + spent, DONE, worker, spent)
    heapq.heappush(state.events, event)


def _fail(state: _State, worker: int, now: float) -> None:
    """Its shard waits again, or an idle worker takes it at once; a new worker loads in its place."""
    state.failures += 1
    state.redone += 1
    state.waiting += 1
    if state.idle:
        _take(state, state.idle.pop(), now)
    heapq.heappush(state.events, (_loaded(state, now + state.run.restart), READY, worker, 0.0))


def _loaded(state: _State, now: float) -> float:
    """When the model is loaded, though the worker may fail meanwhile."""
    while state.run.load:
        until = _failure(state)
        if until >= state.run.load:
            return now + state.run.load
        state.failures += 1
        now += until + state.run.restart
    return now


def _failure(state: _State) -> float:
    return math.inf if math.isinf(state.run.mtbf) else state.random.expovariate(1 / state.run.mtbf)


def _slowed(state: _State) -> float:
    run = state.run
    factor = math.exp(state.random.gauss(0.0, run.spread)) if run.spread else 1.0
    return factor * (run.slowness if run.slow and state.random.random() < run.slow else 1.0)
