"""Who may write this study now? A lease in an object store: one owner at a time, and a dead owner's ends by itself.

A lease is one small object. Taking it: create it where there is none, or replace (by its tag) one that is free or whose
owner is dead. The owner renews it every SECONDS / 6; whoever waits and sees it unchanged for SECONDS, by their own clock,
takes it. So no two clocks are compared, and a lease cannot be taken sooner than SECONDS after its last renewal. An owner who
was asleep so long notices before its next request (``check``) and stops. On the same machine a dead process is seen at once.

Cost: two requests, and one every SECONDS / 6. This module does not know what the owner writes. It bounds, but cannot stop, a
request that is under way when the lease is lost: requests end within 70 seconds (see ``address``), and ``check`` asks for a
renewal that is less than SECONDS / 3 old. So who writes under a lease also makes the store refuse what comes too late.
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

from headwise.atlas.places.objects import Objects, Tag, Tagged
from headwise.core.errors import AtlasError

__all__ = ["Lease", "LeaseLostError", "leased"]

_log = logging.getLogger(__name__)
SECONDS = 120.0
PATIENCE = 5.0  # seconds after which it is said that one waits
LONG_AGO = 10  # times SECONDS: so old by the store's clock, and no clocks differ so much


class LeaseLostError(Exception):
    """Somebody else has taken the lease, after it was not renewed for long."""


@contextlib.contextmanager
def leased(place: Objects, key: str, *, wait: bool = True) -> Iterator[Lease | None]:
    """Hold a lease; with ``wait=False`` None where somebody else holds it."""
    lease = Lease(place, key)
    if not lease.take(wait=wait):
        yield None
        return
    renewing = threading.Thread(target=lease.keep, daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        lease.free()
        renewing.join()


class Lease:
    """One owner's hold of a lease."""

    def __init__(self, place: Objects, key: str) -> None:
        self.place, self.key, self.seconds = place, key, SECONDS
        self._note: dict[str, Any] = {"owner": uuid.uuid4().hex, "machine": _machine(), "pid": os.getpid(), "count": 0}
        self._tag: Tag = {}
        self._renewed = 0.0
        self._lost = False
        self._turn, self._over = threading.Lock(), threading.Event()

    def take(self, *, wait: bool) -> bool:
        """Take it, when it is free; whether it was taken."""
        seen, since, told = None, time.monotonic(), time.monotonic() + PATIENCE
        while True:
            asked = time.monotonic()
            found = self.place.read_tagged(self.key)
            if found is None:
                tag = self.place.create_tagged(self.key, self._next())
            elif self._open(found) or (found.tag == seen and asked - since > self.seconds):
                tag = self.place.replace(self.key, self._next(), found.tag)
            else:
                tag = None
                if found.tag != seen:
                    seen, since = found.tag, time.monotonic()
            if tag is not None:
                self._tag, self._renewed = tag, asked
                return True
            if not wait:
                return False
            if asked > told:
                told = float("inf")
                text = "Waiting for another writer: %s/%s is held. If that writer is dead, it is free in %.0f seconds."
                _log.warning(text, self.place, self.key.removesuffix("/lease"), self.seconds)
            time.sleep(min(0.25, self.seconds / 8))

    def check(self) -> None:
        """Go on only while it is surely held; LeaseLostError."""
        with self._turn:
            if not self._lost and time.monotonic() - self._renewed > self.seconds / 3:
                self._renew()
            if self._lost:
                raise LeaseLostError

    def keep(self) -> None:
        """Renew it until it is freed; a network that is away now and then does not matter."""
        while not self._over.wait(self.seconds / 6):
            with self._turn, contextlib.suppress(AtlasError):
                if self._lost or self._over.is_set():
                    return
                self._renew()

    def free(self) -> None:
        """Give it back, if it is held."""
        self._over.set()
        with self._turn, contextlib.suppress(AtlasError):
            if not self._lost:
                self._note = {"owner": None, "was": self._note["owner"], "count": self._note["count"]}
                self.place.replace(self.key, self._next(), self._tag)

    def _renew(self) -> None:
        asked = time.monotonic()
        tag = self.place.replace(self.key, self._next(), self._tag)
        if tag is None:  # perhaps ours after all: an answer can be lost, and the request made again
            found = self.place.read_tagged(self.key)
            ours = found is not None and _parse(found.content).get("owner") == self._note["owner"]
            tag = found.tag if found is not None and ours else None
        if tag is None:
            self._lost = True
        else:
            self._tag, self._renewed = tag, asked

    def _next(self) -> bytes:
        """What the object says; never twice the same, for a tag may be a digest of the content."""
        self._note["count"] += 1
        return json.dumps(self._note).encode()

    def _open(self, found: Tagged) -> bool:
        """Whether it may be taken at once: free, or of somebody who is surely dead."""
        note = _parse(found.content)
        if note.get("owner") is None:
            return True
        if note["owner"] == self._note["owner"]:
            return True
        if note.get("machine") is not None and note.get("machine") == _machine() and not _alive(note.get("pid")):
            return True
        return (datetime.now(UTC) - found.modified).total_seconds() > LONG_AGO * self.seconds


def _parse(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _alive(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        pass
    return True


def _machine() -> str | None:
    """What tells this machine, since its start, and this container from all others; None where that is not known."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None
