"""Several workers, one list of tasks: every task is done once, whichever worker dies.

The loop of `Scheduler.work`, until no task is open:

1. start workers up to the requested number, and replace dead ones;
2. each free worker prepares the study, if it has not, and then takes the next task from the `TaskLedger`;
3. events are handled: a result goes to `finished` (which commits it), a failed task is retried or quarantined;
4. a worker over its timeout is killed, and its task goes to another.

A task is at every moment in one of four states:

    waiting --take--> running --finish--> done
       ^                 |
       +-----fail--------+--- after `tries` failures --> quarantined

It runs on one worker at a time and a worker runs one task at a time. A failed task goes to the end of the queue, and to a
worker that has not failed on it, if there is one. Each is tried at most `tries` times, so every run ends.

It stops early when a worker refuses (HeadwiseError: the user's to repair); when the cluster is gone (`WorkerPool.check`);
when `tries` workers in a row were lost before they could begin and none is left. After many failures (`tries` per worker, at
least `tries` squared) without a success the tasks are not at fault, and the rest is left untried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from headwise.core.errors import EngineError
from headwise.engines.engine import Listener
from headwise.engines.pool import Answered, Call, Died, Event, Failed, Refused, WorkerPool

__all__ = ["DEFAULT_TIMEOUTS", "PREPARE", "Scheduler", "TaskLedger", "TaskList", "Timeouts"]

Task = TypeVar("Task", bound=Hashable)
START = Call("start")
PREPARE = "prepare"  # the method whose first argument, a study or several, the worker then has prepared
MAX_FAILURES_IN_A_ROW = 2  # of a worker; then it is replaced, because its state is unknown


class Timeouts(NamedTuple):
    """How long a task may run, in seconds: `first` until one is done, then `factor` times the longest so far."""

    first: float = 3600.0
    factor: float = 20.0
    minimum: float = 600.0


DEFAULT_TIMEOUTS = Timeouts()


class TaskLedger(Generic[Task]):
    """Which task is waiting, running, done or quarantined. Pure bookkeeping: no worker, no clock.

    >>> ledger = TaskLedger(["a", "b"], tries=2)
    >>> ledger.take("w1", now=0.0), ledger.take("w2", now=0.0)
    ('a', 'b')
    >>> ledger.finish("w2", now=3.0), ledger.fail("w1", "died"), ledger.take("w2", now=4.0)
    ('b', False, 'a')
    >>> ledger.fail("w2", "died too"), ledger.quarantined, ledger.open
    (True, {'a': ['died', 'died too']}, 0)
    """

    def __init__(self, tasks: Iterable[Task], *, tries: int = 3, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self._waiting: list[Task] = list(tasks)
        if len(set(self._waiting)) < len(self._waiting):
            raise ValueError("the list of tasks has a duplicate")
        self._running: dict[str, tuple[Task, float]] = {}  # worker -> its task, and since when
        self._failed: dict[Task, list[tuple[str, str]]] = {}  # task -> (worker, cause) of each failure
        self._tries, self._timeouts, self._longest = tries, timeouts, 0.0
        self.done: set[Task] = set()
        self.quarantined: dict[Task, list[str]] = {}  # task -> the cause of each try

    @property
    def open(self) -> int:
        """The number of tasks that are neither done nor quarantined."""
        return len(self._waiting) + len(self._running)

    @property
    def waiting(self) -> list[Task]:
        """Tasks that are not running, in the order in which they will be taken."""
        return list(self._waiting)

    @property
    def has_waiting(self) -> bool:
        """Whether a task is waiting."""
        return bool(self._waiting)

    def task_of(self, worker: str) -> Task | None:
        """The task that this worker is running."""
        return self._running[worker][0] if worker in self._running else None

    def take(self, worker: str, *, now: float, others: Collection[str] = ()) -> Task | None:
        """The next task for this worker, or None; one that it failed on only if none of the `others` could take it."""
        if worker in self._running:
            raise ValueError(f"{worker} is running {self._running[worker][0]} already")
        for index, task in enumerate(self._waiting):
            tried = {name for name, _ in self._failed.get(task, ())}
            if worker not in tried or tried.issuperset(others):
                self._running[worker] = (self._waiting.pop(index), now)
                return task
        return None

    def finish(self, worker: str, *, now: float) -> Task:
        """The worker's task is done; which."""
        task, since = self._running.pop(worker)
        self._longest = max(self._longest, now - since)
        self.done.add(task)
        return task

    def fail(self, worker: str, cause: str) -> bool:
        """The worker's task failed; whether it is quarantined now."""
        task, _ = self._running.pop(worker)
        failures = self._failed.setdefault(task, [])
        failures.append((worker, cause))
        if len(failures) < self._tries:
            self._waiting.append(task)
            return False
        self.quarantined[task] = [cause for _, cause in failures]
        return True

    @property
    def failures(self) -> dict[Task, list[str]]:
        """Tasks that are not done and have failed -> the cause of each try."""
        failed = self._failed.items()
        return {task: [cause for _, cause in tries] for task, tries in failed if task not in self.done}

    @property
    def timeout(self) -> float:
        """How long a task may run now."""
        limits = self._timeouts
        return max(limits.minimum, limits.factor * self._longest) if self.done else limits.first

    def overdue(self, *, now: float) -> list[str]:
        """Workers whose task is over its timeout."""
        return [worker for worker, (_, since) in self._running.items() if now - since > self.timeout]


@dataclass(frozen=True)
class TaskList(Generic[Task]):
    """The tasks of one study, and the call that does each."""

    study: str
    tasks: Sequence[Task]
    call: Callable[[Task], Call]
    label: Callable[[Task], str]  # in messages
    finished: Callable[[Task, Any], None]
    prepare: Call | None = None  # sent to a worker before its first task
    verify: Callable[[Any], None] = lambda answer: None  # checks the answer to `prepare`; raises if it is wrong

    def prepared(self, worker: WorkerState) -> bool:
        """Whether the worker has answered this list's `prepare`, and no other since."""
        return self.prepare is not None and worker.prepared == self.prepare.arguments[0]


@dataclass
class WorkerState:
    """A worker, as the scheduler sees it."""

    name: str
    call: Call | None = START  # None: it is free
    status: str = "starting"
    since: float = 0.0
    started: bool = False
    prepared: Any = None  # the first argument of the last `prepare` it answered
    ledger: TaskLedger[Any] | None = None  # of its task
    where: str = ""
    failures: int = 0  # in a row

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


class Scheduler:
    """Runs task lists on the workers of a pool, at most `size` at a time."""

    def __init__(
        self,
        pool: WorkerPool,
        size: int,
        listener: Listener,
        *,
        tries: int = 3,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._pool, self._size, self._listener = pool, size, listener
        self._tries, self._timeouts = tries, timeouts
        self._workers: dict[str, WorkerState] = {}
        self._lost: list[str] = []  # causes of workers lost in a row before they could begin

    def work(self, tasks: TaskList[Task]) -> TaskLedger[Task]:
        """Do all tasks, or quarantine them; the ledger says which."""
        ledger = TaskLedger(tasks.tasks, tries=self._tries, timeouts=self._timeouts)
        while ledger.open and not self._hopeless(ledger):
            self._start_workers(ledger.open)
            free = [worker for worker in self._workers.values() if worker.call is None]
            for worker in sorted(free, key=lambda worker: not tasks.prepared(worker)):  # prepared workers first
                if not ledger.has_waiting:
                    break  # else thousands of idle workers would each look at all others, for every event
                self._assign(worker, tasks, ledger)
            self._listener.workers(tasks.study, {str(worker): worker.status for worker in self._workers.values()})
            events = self._pool.wait(1.0)
            if any(isinstance(event, Died) for event in events):
                self._pool.check()  # if all died, one message is enough
            for event in events:
                self._handle(event, tasks, ledger)
            self._kill_overdue(tasks, ledger)
            self._pool.check()
        return ledger

    def _hopeless(self, ledger: TaskLedger[Any]) -> bool:
        failed = sum(len(causes) for causes in ledger.failures.values())
        return not ledger.done and failed >= self._tries * max(self._tries, self._size)

    def _start_workers(self, wanted: int) -> None:
        """Start workers up to the number wanted; none after too many were lost in a row."""
        if len(self._lost) >= self._tries:
            if not self._workers:
                raise EngineError(
                    f"{len(self._lost)} workers in a row were lost before they could begin: {self._lost[-1]}. What is "
                    "committed is kept; repair that and run the same command again."
                )
            return
        while len(self._workers) < min(self._size, wanted):
            name = self._pool.start()
            self._workers[name] = WorkerState(name, since=self._pool.now())

    def _assign(self, worker: WorkerState, tasks: TaskList[Any], ledger: TaskLedger[Any]) -> None:
        if tasks.prepare is not None and not tasks.prepared(worker):
            self._send(worker, tasks.prepare, f"preparing {tasks.study}")
            return
        others = [other.name for other in self._workers.values() if other.started and other is not worker]
        task = ledger.take(worker.name, now=self._pool.now(), others=others)
        if task is not None:
            worker.ledger = ledger
            self._send(worker, tasks.call(task), f"{tasks.study}, {tasks.label(task)}")

    def _send(self, worker: WorkerState, call: Call, status: str) -> None:
        worker.call, worker.status, worker.since = call, status, self._pool.now()
        worker.prepared = None if call.method == PREPARE else worker.prepared
        self._pool.send(worker.name, call)

    def _handle(self, event: Event, tasks: TaskList[Any], ledger: TaskLedger[Any]) -> None:
        worker = self._workers.get(event.worker)
        if worker is None:
            return
        match event:
            case Answered(value=value):
                self._on_answer(worker, value, tasks, ledger)
            case Refused(error=error):
                raise error
            case Failed(cause=cause):
                self._on_failure(worker, cause, tasks, ledger)
            case Died(cause=cause):
                del self._workers[worker.name]
                self._on_failure(worker, cause, tasks, ledger, died=True)

    def _on_answer(self, worker: WorkerState, value: Any, tasks: TaskList[Any], ledger: TaskLedger[Any]) -> None:
        call, worker.call, worker.status = worker.call or START, None, "waiting"
        if call is START:
            worker.started, worker.where = True, str(value or "")
        if call is tasks.prepare:
            tasks.verify(value)
        if call.method == PREPARE:
            worker.prepared = call.arguments[0]
        if worker.ledger is ledger:
            self._lost.clear()
            worker.failures = 0
            tasks.finished(ledger.finish(worker.name, now=self._pool.now()), value)
        worker.ledger = None  # also that of an abandoned list

    def _on_failure(
        self, worker: WorkerState, cause: str, tasks: TaskList[Any], ledger: TaskLedger[Any], *, died: bool = False
    ) -> None:
        """Retry or quarantine the task; a worker that could not even begin is killed and counted."""
        worker.call, held, worker.ledger = None, worker.ledger, None
        verb, status, worker.status = "died" if died else "failed", worker.status, "waiting"
        if held is ledger:
            task = ledger.task_of(worker.name)
            quarantined = ledger.fail(worker.name, f"{worker} {verb}: {cause}")
            then = f"quarantined after {self._tries} tries" if quarantined else "tried again"
            self._listener.event(f"{worker} {verb} at {tasks.study}, {tasks.label(task)} ({cause}): {then}.")
            worker.failures += 1
        elif held is None:
            self._lost.append(f"{worker} {verb} while {status} ({cause})")
            self._listener.event(f"{worker} {verb} while {status} ({cause}).")
        if not died and (held is None or worker.failures >= MAX_FAILURES_IN_A_ROW):
            self._pool.stop(worker.name)
            del self._workers[worker.name]

    def _kill_overdue(self, tasks: TaskList[Any], ledger: TaskLedger[Any]) -> None:
        overdue = set(ledger.overdue(now=self._pool.now()))
        for worker in list(self._workers.values()):
            other = (
                worker.call is not None and worker.ledger is not ledger
            )  # starting, preparing, or at an abandoned list
            limit = ledger.timeout if worker.name in overdue else self._timeouts.first
            if worker.name in overdue or (other and self._pool.now() - worker.since > limit):
                self._pool.stop(worker.name)
                del self._workers[worker.name]
                self._on_failure(worker, f"no answer for {limit:.0f} seconds", tasks, ledger, died=True)
