"""What runs studies? The contract that `studies.building` is written against; nothing else knows which engine runs.

    engine.open(order) -> session          an order is what is to be built: a model by name or loaded, data, options
    session.prepare(study, needed) -> job  what the study will be: its provenance, its examples, how they are cut
    session.run(job, store, ...) -> outcome

An order is opened where the work is done (`Order.open`: the model is loaded there), and what comes of it is a `Desk`: the
model with one study prepared on it. The in-process engine opens the order here and works at that desk; Ray sends the order
to its workers, each of which opens it for itself. So every engine measures the same shards by the same code, and the same
bits come out.

This module does not know what a study is, nor a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import xarray as xr

from headwise.core.errors import EngineError
from headwise.core.provenance import Provenance
from headwise.engines.shards import Shard, ShardStore

__all__ = ["Desk", "Engine", "Job", "Listener", "Order", "Outcome", "Session", "SetAsideError", "Threads"]

NAMED = 3  # parts that an error names


class Job(NamedTuple):
    """One study made concrete."""

    study: str
    provenance: Provenance
    examples: int
    shard_size: int


class Outcome(NamedTuple):
    """What a study came to."""

    datasets: Mapping[str, xr.Dataset]  # by name; the study's own comes last
    files: Mapping[str, bytes]  # by key below the atlas: what is kept beside the maps, such as a fitted detector


class Threads(NamedTuple):
    """How many threads compute; a sum may end in another last digit with another number of them."""

    torch: int
    blas: int  # numpy's and scipy's


class Listener:
    """Who wants to hear how a run goes. This one hears and says nothing; override what is of interest.

    Examples:
        >>> class Loud(Listener):
        ...     def event(self, sentence):
        ...         print(sentence)
        >>> Loud().event("worker 3 died; its shard goes to another")
        worker 3 died; its shard goes to another
    """

    def progress(self, study: str, done: int, total: int) -> None:
        """So many examples of a study are done."""

    def ended(self, study: str) -> None:
        """A study is measured, concluded and kept; not said of one that was there before."""

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        """What each worker does now."""

    def event(self, sentence: str) -> None:
        """Something happened that a person may want to know: a worker died, a shard is tried again."""


class Desk(Protocol):
    """A loaded model with one study prepared on it, in the process that measures."""

    def prepare(self, study: str, needed: Mapping[str, xr.Dataset]) -> Job:
        """Make a study ready, from the maps that it needs; the one before is put away."""
        ...

    def measure(self, shard: Shard) -> xr.Dataset:
        """Some examples of the study that is ready."""
        ...

    def conclude(self, parts: Sequence[xr.Dataset]) -> Outcome:
        """All shards of the study that is ready, in order."""
        ...


class Order(Protocol):
    """What is to be built."""

    def open(self) -> Desk:
        """Load the model; takes long."""
        ...

    def for_workers(self, gpus: float | None, threads: int | None) -> Order:
        """The same order in a form that other processes can open, on so many GPUs (None: as it comes), by so many threads.

        Refused with the reason where it holds what only this process has.
        """
        ...

    @property
    def threads(self) -> Threads:
        """How many threads it is to be worked on with."""
        ...

    @property
    def on_cpu(self) -> bool:
        """Whether the model was asked for on the CPU."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of this process that opening it depends on."""
        ...


class Session(Protocol):
    """An engine at work on an order."""

    def prepare(self, study: str, needed: Mapping[str, xr.Dataset]) -> Job:
        """What the study will be."""
        ...

    def run(self, job: Job, store: ShardStore, listener: Listener) -> Outcome:
        """Measure what is not committed, commit it, conclude; raises SetAsideError where shards could not be measured."""
        ...


class Engine(Protocol):
    """How work is run. Made by the user: `LocalEngine`, `RayEngine`."""

    def open(self, order: Order, listener: Listener) -> AbstractContextManager[Session]:
        """Begin; what was started is ended with the block."""
        ...


class SetAsideError(EngineError):
    """Parts of a study that failed again and again (docs/errors/engines.md). What else there was to do for it is committed."""

    def __init__(self, study: str, parts: Mapping[str, Sequence[str]], untried: int = 0) -> None:
        """`parts`: what failed -> what happened at each try; `untried`: parts left out after nothing had gone well."""
        self.study, self.parts, self.untried = study, parts, untried
        super().__init__(str(self))

    def __str__(self) -> str:
        named = [f"{part} ({len(causes)} tries; {causes[-1]})" for part, causes in list(self.parts.items())[:NAMED]]
        more = f" and {len(self.parts) - NAMED} more" if len(self.parts) > NAMED else ""
        rest = f"; {self.untried} others were not tried after that" if self.untried else ""
        return f"{self.study}: {'; '.join(named)}{more}{rest}"
