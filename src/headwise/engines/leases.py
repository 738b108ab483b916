"""Who works on what, what is done, what is given up? The book in which workers' leases are kept.

An item (a shard) is at every moment in one of four states:

    waiting --take--> leased --finish--> done
       ^                 |
       +-----fail--------+--- after `tries` failures --> aside

It is leased to one worker at a time and a worker holds one item at a time, so nothing is measured twice at once; what fails
goes to the end of the queue, and to another worker if there is one that has not failed on it. Items are tried at most
`tries` times each, so every run ends.

A lease has a term: before anything was done, `Terms.first` seconds; after that, `Terms.times` the longest so far, and at
least `Terms.least`. Whoever is over the term is taken for stuck.

This module is arithmetic on names: it knows no worker, no clock and no cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["USUAL", "Leases", "Terms"]

Item = TypeVar("Item", bound=Hashable)


class Terms(NamedTuple):
    """How long a worker may take, in seconds."""

    first: float = 3600.0  # for the first item, of which nobody knows how long it takes
    times: float = 20.0  # of the longest so far
    least: float = 600.0


USUAL = Terms()


class _Lease(NamedTuple, Generic[Item]):
    item: Item
    since: float


class Leases(Generic[Item]):
    """The book of one run.

    >>> book = Leases(["a", "b"], tries=2)
    >>> book.take("w1", now=0.0), book.take("w2", now=0.0)
    ('a', 'b')
    >>> book.finish("w2", now=3.0), book.fail("w1", "died"), book.take("w2", now=4.0)
    ('b', False, 'a')
    >>> book.fail("w2", "died too"), book.aside, book.open
    (True, {'a': ['died', 'died too']}, 0)
    """

    def __init__(self, items: Iterable[Item], *, tries: int = 3, terms: Terms = USUAL) -> None:
        self._waiting: list[Item] = list(items)
        if len(set(self._waiting)) < len(self._waiting):
            raise ValueError("an item stands twice in the list of what is to be done")
        self._held: dict[str, _Lease[Item]] = {}
        self._failed: dict[Item, list[tuple[str, str]]] = {}  # item -> (worker, cause) of each failure
        self._tries, self._terms, self._longest = tries, terms, 0.0
        self.done: set[Item] = set()
        self.aside: dict[Item, list[str]] = {}  # item -> the causes, one a try

    @property
    def open(self) -> int:
        """Items that are neither done nor set aside."""
        return len(self._waiting) + len(self._held)

    @property
    def waiting(self) -> list[Item]:
        """Items that nobody holds, in the order in which they will be taken."""
        return list(self._waiting)

    @property
    def some_wait(self) -> bool:
        """Whether there is an item that nobody holds."""
        return bool(self._waiting)

    def holds(self, worker: str) -> Item | None:
        """What this worker has on lease."""
        lease = self._held.get(worker)
        return None if lease is None else lease.item

    def take(self, worker: str, *, now: float, others: Collection[str] = ()) -> Item | None:
        """The next item for this worker, or None.

        What it has failed on before it gets again only where none of the `others` could take it instead.
        """
        if worker in self._held:
            raise ValueError(f"{worker} holds {self._held[worker].item} already")
        for place, item in enumerate(self._waiting):
            tried = {name for name, _ in self._failed.get(item, ())}
            if worker not in tried or tried.issuperset(others):
                self._held[worker] = _Lease(self._waiting.pop(place), now)
                return self._held[worker].item
        return None

    def finish(self, worker: str, *, now: float) -> Item:
        """The lease ends well; which item is done."""
        lease = self._held.pop(worker)
        self._longest = max(self._longest, now - lease.since)
        self.done.add(lease.item)
        return lease.item

    def fail(self, worker: str, cause: str) -> bool:
        """The lease ends badly; whether its item is set aside now."""
        item = self._held.pop(worker).item
        failures = self._failed.setdefault(item, [])
        failures.append((worker, cause))
        if len(failures) < self._tries:
            self._waiting.append(item)
            return False
        self.aside[item] = [said for _, said in failures]
        return True

    @property
    def failures(self) -> dict[Item, list[str]]:
        """Items that are not done and have failed -> what happened at each try."""
        failed = self._failed.items()
        return {item: [cause for _, cause in tries] for item, tries in failed if item not in self.done}

    @property
    def term(self) -> float:
        """How long a lease may last now."""
        terms = self._terms
        return max(terms.least, terms.times * self._longest) if self.done else terms.first

    def overdue(self, *, now: float) -> list[str]:
        """Workers whose lease is over its term."""
        return [worker for worker, lease in self._held.items() if now - lease.since > self.term]
