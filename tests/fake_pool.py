"""Simulated workers: their clock is a number, and their fate is drawn at random.

Nothing is measured and nothing sleeps; a run of a thousand shards and two hundred deaths takes milliseconds, and a seed
gives the same run again. The pool notes what a scheduler must never do: send to a worker that is busy or gone,
or start one while too many live.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from headwise.core.errors import EngineError, StudyError
from headwise.engines.pool import Answered, Call, Died, Event, Failed, Refused
from headwise.engines.scheduler import PREPARE

Fate = Callable[
    [str, Call], str
]  # worker, call -> answer, slow (an answer after 90 seconds), fail, die, refuse or hang


@dataclass
class FakePool:
    fate: Fate = lambda worker, call: "answer"
    seed: int = 0
    most: int = 10**9  # workers at a time; more is a mistake of the scheduler
    gone_after: float = float("inf")  # when the cluster itself dies
    sent: list[tuple[str, Call]] = field(default_factory=list)
    living: set[str] = field(default_factory=set)
    busy: dict[str, Call] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self._clock, self._due, self._dice = 0.0, list[tuple[float, int, Event]](), random.Random(self.seed)
        self._number = 0

    def start(self) -> str:
        self.started += 1
        name = f"w{self.started}"
        self.living.add(name)
        assert len(self.living) <= self.most, "more workers than were asked for"
        self._plan(name, Call("start"))
        return name

    def send(self, worker: str, call: Call) -> None:
        assert worker in self.living, f"{worker} is gone and was sent {call}"
        self._plan(worker, call)

    def _plan(self, worker: str, call: Call) -> None:
        assert worker not in self.busy, f"{worker} was sent {call} while it did {self.busy[worker]}"
        self.busy[worker] = call
        self.sent.append((worker, call))
        fate = self.fate(worker, call)
        event = {
            "answer": Answered(worker, ("done", call)),
            "slow": Answered(worker, ("done", call)),
            "fail": Failed(worker, "ValueError: by dice"),
            "die": Died(worker, "killed by dice"),
            "refuse": Refused(worker, StudyError("refused by dice")),
            "hang": None,
        }[fate]
        if event is not None:
            self._number += 1
            takes = 90.0 if fate == "slow" else self._dice.uniform(0.1, 5.0)
            heapq.heappush(self._due, (self._clock + takes, self._number, event))

    def wait(self, seconds: float) -> list[Event]:
        end = self._clock + seconds
        heard: list[Event] = []
        while self._due and self._due[0][0] <= end and len(heard) < 3:
            self._clock, _, event = heapq.heappop(self._due)
            if event.worker in self.living:
                heard.append(event)
                self.busy.pop(event.worker, None)
                if isinstance(event, Died):
                    self.living.discard(event.worker)
        self._clock = self._clock if heard else end
        return heard

    def stop(self, worker: str) -> None:
        assert worker in self.living, f"{worker} was stopped twice"
        self.living.discard(worker)
        self.busy.pop(worker, None)

    def check(self) -> None:
        if self._clock > self.gone_after:
            raise EngineError("the cluster is gone")

    def now(self) -> float:
        return self._clock

    def prepared(self, worker: str) -> list[str]:
        """The studies this worker was sent to prepare, in order."""
        return [call.arguments[0] for name, call in self.sent if name == worker and call.method == PREPARE]
