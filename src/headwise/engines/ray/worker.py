"""What runs on the cluster: an order, opened; one study ready; shards measured as they are asked for.

A worker is a process of its own on some node, with the CPUs and GPUs that Ray lent it. It never raises: whatever happens
comes back as a `Reply`, in words, because an exception that travels between processes may not arrive (its class may not be
there, its arguments may not be sendable). What ends the process itself is Ray's to tell.

Results travel packed (`atlas.packing`), or, where the atlas lies at a URL, are committed from here and only said to be done.

This module does not know Ray but for fetching what was put aside for it, nor what a study is.
"""

from __future__ import annotations

import functools
import os
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import xarray as xr

from headwise.atlas.encoding import CorruptionError, pack, unpack
from headwise.core.errors import HeadwiseError
from headwise.engines.engine import Desk, Job, Order
from headwise.engines.ray.library import the_library
from headwise.engines.shards import Shard, ShardStore

__all__ = ["ANSWERED", "FAILED", "REFUSED", "Parts", "Reply", "Worker"]

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"


class Reply(NamedTuple):
    """What came of a call."""

    kind: str
    value: Any = None  # of an answer
    words: str = ""  # of a refusal, or the last line of a failure
    error: str = ""  # the class of the refusal, or the whole traceback of the failure


class Parts(NamedTuple):
    """Where the shards of a study are: put aside for the worker, or at the place of the atlas."""

    shards: tuple[Shard, ...]
    put: tuple[Any, ...] = ()  # references, one a shard
    place: str | None = None


def _replying(method: Callable[..., Any]) -> Callable[..., Reply]:
    """The method, with whatever happens in it as a Reply."""

    @functools.wraps(method)
    def replying(*arguments: Any) -> Reply:
        try:
            return Reply(ANSWERED, method(*arguments))
        except HeadwiseError as error:
            return Reply(REFUSED, words=str(error), error=type(error).__name__)
        except Exception as error:
            words = (
                f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
            )
            return Reply(FAILED, words=words, error=traceback.format_exc())

    return replying


class Worker:
    """One process that holds the model."""

    def __init__(self, environment: Mapping[str, str], order: Sequence[Any]) -> None:
        """`order`: a list of one reference, so that it is not opened before the environment is set."""
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._order = order
        self._desk: Desk | None = None
        self._job: Job | None = None
        self._stores: dict[str, ShardStore] = {}

    @_replying
    def start(self) -> str:
        """Load the model; where this worker is."""
        order: Order = the_library().get(self._order[0])
        self._desk = order.open()
        return f"{socket.gethostname()}, process {os.getpid()}"

    @_replying
    def prepare(self, study: str, needed: Sequence[tuple[str, Any]]) -> Job:
        """Make a study ready; what it will be."""
        ray = the_library()
        self._job, self._stores = None, {}
        self._job = self._at_desk().prepare(study, {name: unpack(ray.get(ref)) for name, ref in needed})
        return self._job

    @_replying
    def measure(self, shard: Shard, place: str | None) -> bytes | None:
        """A shard, packed; or nothing, where it could be committed from here."""
        content = pack(self._at_desk().measure(shard))
        if place is None:
            return content
        self._store(place).put(shard, content)
        return None

    @_replying
    def conclude(self, parts: Parts) -> tuple[list[Shard], dict[str, bytes], Mapping[str, bytes]]:
        """Shards that are missing or damaged; or none, and the maps (packed) and files of the study."""
        found: list[xr.Dataset] = []
        lost = []
        for place, shard in enumerate(parts.shards):
            part = self._part(parts, place, shard)
            lost += [shard] if part is None else []
            found += [] if part is None else [part]
        if lost:
            return lost, {}, {}
        outcome = self._at_desk().conclude(found)
        return [], {name: pack(dataset) for name, dataset in outcome.datasets.items()}, outcome.files

    def _part(self, parts: Parts, place: int, shard: Shard) -> xr.Dataset | None:
        if parts.place is not None:
            return self._store(parts.place).load(shard)
        try:
            return unpack(the_library().get(parts.put[place]))
        except CorruptionError:
            return None

    def _store(self, place: str) -> ShardStore:
        if place not in self._stores:
            job = self._job
            assert job is not None  # a crew prepares before it measures
            self._stores[place] = ShardStore(place, job.provenance, examples=job.examples, size=job.shard_size)
        return self._stores[place]

    def _at_desk(self) -> Desk:
        assert self._desk is not None  # a crew starts its workers before it sends them anything
        return self._desk
