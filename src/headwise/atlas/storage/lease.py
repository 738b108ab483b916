"""One writer at a time in an object store: a lease that expires if its owner dies.

A lease is one small object. It is acquired by creating it, or by replacing (by entity tag) one that is free or whose owner is
dead. The owner renews it every SECONDS / 6; a waiting process that sees it unchanged for SECONDS, by its own clock, takes
it over. So clocks of different machines are never compared, and a lease is not taken over earlier than SECONDS after its last
renewal. An owner that was suspended for that long notices before its next request (``check``) and stops. On the same machine
a dead process is recognised at once.

A request already in flight when the lease is lost cannot be stopped, only bounded: requests end within 70 seconds (see
``location``), and ``check`` requires a renewal younger than SECONDS / 3. Writers therefore also use conditional writes, so
that the store refuses late ones. Cost: two requests, and one every SECONDS / 6.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwise.atlas.storage.objects import ObjectStoreLocation, Tag, TaggedObject
from headwise.core.errors import AtlasError
from headwise.core.parsing import Scalar, parse

_log = logging.getLogger(__name__)
SECONDS = 120.0
WARN_AFTER = 5.0  # seconds of waiting before the user is warned
ABANDONED_AFTER = 10  # times SECONDS by the store's clock: no clocks differ by that much


class LeaseLostError(Exception):
    """Another process took the lease over, because it was not renewed in time."""


@contextlib.contextmanager
def hold_lease(location: ObjectStoreLocation, key: str, *, wait: bool = True) -> Iterator[Lease | None]:
    """Hold a lease during the block; with ``wait=False``, None if another process holds it."""
    lease = Lease(location, key)
    if not lease.acquire(wait=wait):
        yield None
        return
    renewing = threading.Thread(target=lease.renew_until_released, daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        lease.release()
        renewing.join()


class Lease:
    """One process's claim to a lease."""

    def __init__(self, location: ObjectStoreLocation, key: str) -> None:
        self.location, self.key, self.seconds = location, key, SECONDS
        self._record: dict[str, Any] = {
            "owner": uuid.uuid4().hex, "machine": _machine(), "pid": os.getpid(), "count": 0,
        }  # fmt: skip
        self._tag: Tag = {}
        self._renewed = 0.0
        self._lost = False
        self._mutex, self._released = threading.Lock(), threading.Event()

    def acquire(self, *, wait: bool) -> bool:
        """Acquire the lease, waiting for it if asked to; whether it was acquired."""
        seen, since, warn_at = None, time.monotonic(), time.monotonic() + WARN_AFTER
        while True:
            now = time.monotonic()
            found = self.location.read_tagged(self.key)
            if found is None:
                tag = self.location.create_tagged(self.key, self._next_record())
            elif self._is_free(found) or (found.tag == seen and now - since > self.seconds):
                tag = self.location.replace(self.key, self._next_record(), found.tag)
            else:
                tag = None
                if found.tag != seen:
                    seen, since = found.tag, time.monotonic()
            if tag is not None:
                self._tag, self._renewed = tag, now
                return True
            if not wait:
                return False
            if now > warn_at:
                warn_at = float("inf")
                text = "Waiting for another writer: %s/%s is held. If that writer is dead, it is free in %.0f seconds."
                _log.warning(text, self.location, self.key.removesuffix("/lease"), self.seconds)
            time.sleep(min(0.25, self.seconds / 8))

    def check(self) -> None:
        """Raise LeaseLostError unless the lease is certainly still held."""
        with self._mutex:
            if not self._lost and time.monotonic() - self._renewed > self.seconds / 3:
                self._renew()
            if self._lost:
                raise LeaseLostError

    def renew_until_released(self) -> None:
        """Renew in the background; a network that fails now and then does no harm."""
        while not self._released.wait(self.seconds / 6):
            with self._mutex, contextlib.suppress(AtlasError):
                if self._lost or self._released.is_set():
                    return
                self._renew()

    def release(self) -> None:
        """Release the lease if it is still held."""
        self._released.set()
        with self._mutex, contextlib.suppress(AtlasError):
            if not self._lost:
                self._record = {"owner": None, "was": self._record["owner"], "count": self._record["count"]}
                self.location.replace(self.key, self._next_record(), self._tag)

    def _renew(self) -> None:
        now = time.monotonic()
        tag = self.location.replace(self.key, self._next_record(), self._tag)
        if tag is None:  # perhaps still ours: a response can be lost, and the request repeated
            found = self.location.read_tagged(self.key)
            ours = found is not None and _parse(found.content).get("owner") == self._record["owner"]
            tag = found.tag if found is not None and ours else None
        if tag is None:
            self._lost = True
        else:
            self._tag, self._renewed = tag, now

    def _next_record(self) -> bytes:
        """The object's content; never the same twice, because a tag may be a digest of the content."""
        self._record["count"] += 1
        return json.dumps(self._record).encode()

    def _is_free(self, found: TaggedObject) -> bool:
        """Whether it may be taken at once: released, our own, or its owner is certainly dead."""
        record = _parse(found.content)
        if record.get("owner") is None or record["owner"] == self._record["owner"]:
            return True
        if record.get("machine") is not None and record["machine"] == _machine() and not _alive(record.get("pid")):
            return True
        return (datetime.now(UTC) - found.modified).total_seconds() > ABANDONED_AFTER * self.seconds


def _parse(content: bytes) -> dict[str, Scalar]:
    try:
        return parse(content, dict[str, Scalar])
    except ValueError:
        return {}


def _alive(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        pass
    return True


def _machine() -> str | None:
    """Identifies this machine since its boot, and this container; None where that is unknown."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None
