"""Several workers, one list of things to do: everything gets done once, whoever dies.

The loop, until nothing of the list is open:

1. as many workers as are wanted and as there are items are there; one that died is replaced;
2. each that is free prepares the study, if it has not, and then takes the next item (`leases`);
3. what is heard is noted: an item done is handed to `finished` (which commits it), a failure puts it back or aside;
4. whoever is over the term of its lease is stopped, and its item goes to another.

When it stops before the end: a refusal (HeadwiseError) of any worker is the user's to repair and is raised at once; so is
the end of the cluster (`Pool.check`). `tries` workers lost in a row before they could begin, and none left: raised, with the
cause. Many failures (`tries` a worker, and at least `tries` squared) and nothing done: it is not the items, so the rest is left
untried.

This module knows neither Ray nor studies; tests run it on workers that are made up and die by dice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headwise.core.errors import EngineError
from headwise.engines.engine import Listener
from headwise.engines.leases import USUAL, Leases, Terms
from headwise.engines.pool import Answered, Call, Died, Event, Failed, Pool, Refused

__all__ = ["PREPARE", "Crew", "Round"]

Item = TypeVar("Item", bound=Hashable)
STARTING = Call("start")
DOUBTED = 2  # failures in a row after which a worker is replaced: nobody knows what state it is in
PREPARE = "prepare"  # the verb whose first argument is a study, which a worker then has ready


@dataclass(frozen=True)
class Round(Generic[Item]):
    """A list of things to do, and what each asks of a worker."""

    study: str
    items: Sequence[Item]
    call: Callable[[Item], Call]
    name: Callable[[Item], str]  # for a reader
    finished: Callable[[Item, Any], None]
    prepare: Call | None = None  # what a worker does before its first item; None: nothing
    agree: Callable[[Any], None] = lambda answer: None  # looks at the answer to `prepare`, and may refuse it


@dataclass
class _Hand:
    """A worker, as the crew knows it."""

    name: str
    doing: Call | None = STARTING
    words: str = "starting"
    since: float = 0.0
    started: bool = False
    study: str | None = None  # which it has prepared
    book: Leases[Any] | None = None  # where its item stands
    where: str = ""
    failures: int = 0  # in a row

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


class Crew:
    """Workers of a pool, at most `size` at a time."""

    def __init__(
        self,
        pool: Pool,
        size: int,
        listener: Listener,
        *,
        tries: int = 3,
        terms: Terms = USUAL,
    ) -> None:
        self._pool, self._size, self._listener = pool, size, listener
        self._tries, self._terms = tries, terms
        self._hands: dict[str, _Hand] = {}
        self._lost: list[str] = []  # causes of workers lost in a row before they could begin

    def work(self, todo: Round[Item]) -> Leases[Item]:
        """Have all items done or set aside; the book says which."""
        book = Leases(todo.items, tries=self._tries, terms=self._terms)
        while book.open and not self._hopeless(book):
            self._fill_up(book.open)
            for hand in sorted(self._free(), key=lambda hand: hand.study != todo.study):  # those who are ready first
                if not book.some_wait:
                    break  # else thousands of idle workers would each look at all others, for every event
                self._give(hand, todo, book)
            self._listener.workers(todo.study, {str(hand): hand.words for hand in self._hands.values()})
            events = self._pool.wait(1.0)
            if any(isinstance(event, Died) for event in events):
                self._pool.check()  # where all died, one sentence is enough
            for event in events:
                self._hear(event, todo, book)
            self._stop_overdue(todo, book)
            self._pool.check()
        return book

    def _hopeless(self, book: Leases[Any]) -> bool:
        failed = sum(len(causes) for causes in book.failures.values())
        return not book.done and failed >= self._tries * max(self._tries, self._size)

    # ---- giving out work --------------------------------------------------------------------------------------------

    def _fill_up(self, wanted: int) -> None:
        """Start workers up to the number wanted; none after too many were lost in a row."""
        if len(self._lost) >= self._tries:
            if not self._hands:
                raise EngineError(
                    f"{len(self._lost)} workers in a row were lost before they could begin: {self._lost[-1]}. What is "
                    "committed is kept; repair that and run the same command again."
                )
            return
        while len(self._hands) < min(self._size, wanted):
            name = self._pool.start()
            self._hands[name] = _Hand(name, since=self._pool.now())

    def _free(self) -> list[_Hand]:
        return [hand for hand in self._hands.values() if hand.doing is None]

    def _give(self, hand: _Hand, todo: Round[Any], book: Leases[Any]) -> None:
        if todo.prepare is not None and hand.study != todo.study:
            if book.waiting:
                self._send(hand, todo.prepare, f"preparing {todo.study}")
            return
        others = [other.name for other in self._hands.values() if other.started and other is not hand]
        item = book.take(hand.name, now=self._pool.now(), others=others)
        if item is not None:
            hand.book = book
            self._send(hand, todo.call(item), f"{todo.study}, {todo.name(item)}")

    def _send(self, hand: _Hand, call: Call, words: str) -> None:
        hand.doing, hand.words, hand.since = call, words, self._pool.now()
        hand.study = None if call.verb == PREPARE else hand.study
        self._pool.send(hand.name, call)

    # ---- hearing what came of it ------------------------------------------------------------------------------------

    def _hear(self, event: Event, todo: Round[Any], book: Leases[Any]) -> None:
        hand = self._hands.get(event.worker)
        if hand is None:
            return
        match event:
            case Answered(value=value):
                self._answered(hand, value, todo, book)
            case Refused(error=error):
                raise error
            case Failed(cause=cause):
                self._failed(hand, cause, todo, book)
            case Died(cause=cause):
                del self._hands[hand.name]
                self._failed(hand, cause, todo, book, died=True)

    def _answered(self, hand: _Hand, value: Any, todo: Round[Any], book: Leases[Any]) -> None:
        did, hand.doing, hand.words = hand.doing or STARTING, None, "waiting"
        if did is STARTING:
            hand.started, hand.where = True, str(value or "")
        if did is todo.prepare:
            todo.agree(value)
        if did.verb == PREPARE:
            hand.study = did.arguments[0]
        if hand.book is book:
            self._lost.clear()
            hand.failures = 0
            todo.finished(book.finish(hand.name, now=self._pool.now()), value)
        hand.book = None  # also that of a list which was given up

    def _failed(self, hand: _Hand, cause: str, todo: Round[Any], book: Leases[Any], *, died: bool = False) -> None:
        """An item goes back, or aside; a worker that could not even begin is ended and counted."""
        hand.doing, held, hand.book = None, hand.book, None
        went, did, hand.words = "died" if died else "failed", hand.words, "waiting"
        if held is book:
            item = book.holds(hand.name)
            aside = book.fail(hand.name, f"{hand} {went}: {cause}")
            then = f"set aside after {self._tries} tries" if aside else "tried again"
            self._listener.event(f"{hand} {went} at {todo.study}, {todo.name(item)} ({cause}): {then}.")
            hand.failures += 1
        elif held is None:
            self._lost.append(f"{hand} {went} while {did} ({cause})")
            self._listener.event(f"{hand} {went} while {did} ({cause}).")
        if not died and (held is None or hand.failures >= DOUBTED):
            self._pool.stop(hand.name)
            del self._hands[hand.name]

    def _stop_overdue(self, todo: Round[Any], book: Leases[Any]) -> None:
        late = set(book.overdue(now=self._pool.now()))
        for hand in list(self._hands.values()):
            other = hand.doing is not None and hand.book is not book  # starting, preparing, or at a list given up
            limit = book.term if hand.name in late else self._terms.first
            if hand.name in late or (other and self._pool.now() - hand.since > limit):
                self._pool.stop(hand.name)
                del self._hands[hand.name]
                self._failed(hand, f"no answer for {limit:.0f} seconds", todo, book, died=True)
