"""Blocks of work side by side on the cores of one machine, each core by itself.

Thousands of small products go badly with several threads to a product: threads wait for each other after each one, by
spinning, and where another process wants one of the cores, the wait is a whole time slice (on two busy cores 24 cells took
21 s with two threads a product, and 32 cells 5 s with a thread a block). So a block is one worker's, and a worker waits
for nobody.

Workers are processes, made by fork: they see the features without a copy, start at once, and hold no lock in common.
Threads would: an operation of a descent takes a few microseconds and asks for Python's lock before and after, so that two
threads were 1.2 times as fast as one. Threads it is where a fork is not safe: on other systems than Linux, in another thread
than the main one (a server's, while a model may be running beside it), and inside a worker. A worker keeps to one thread,
and so never meets the threads that torch had before the fork: what torch's own DataLoader relies on. What the parent does when
it is told to end is not for a worker to do, half-way out of a fork least of all: SIGTERM waits until it simply ends.

On a GPU blocks come one after the other. Cost: some milliseconds to make a worker; results travel through a pipe.
This module does not know what a block is.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from headwise.core.errors import StudyError

__all__ = ["side_by_side"]

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Sequence[T], device: torch.device) -> list[R]:
    """The results of ``work`` in the order of ``items``; as many at a time as torch has threads.

    >>> side_by_side(lambda x: x + 1, [1, 2, 3], torch.device("cpu"))
    [2, 3, 4]
    """
    workers = min(torch.get_num_threads(), len(items))
    if device.type != "cpu" or workers < 2:
        return [work(item) for item in items]
    if _can_fork():
        return _by_processes(work, items, workers)
    with _one_thread_each() as begin, ThreadPoolExecutor(workers, initializer=begin) as pool:
        return list(pool.map(work, items))


def _can_fork() -> bool:
    main = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    return sys.platform == "linux" and main


# ---- processes ------------------------------------------------------------------------------------------------------


def _by_processes(work: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
    """The results, in order; the first failure of a worker is raised here."""
    fork = multiprocessing.get_context("fork")
    turn, ends, running = fork.Value("l", 0), [], []
    try:
        for _ in range(workers):
            end, other = fork.Pipe(duplex=False)
            process = fork.Process(target=_worker, args=(work, items, turn, other), daemon=True)
            with warnings.catch_warnings(), _held(signal.SIGTERM):
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside torch's idle threads
                process.start()
            other.close()
            ends.append(end)
            running.append(process)
        found = dict(_results(ends))
        return [found[place] for place in range(len(items))]
    finally:
        for process in running:
            process.terminate()
            process.join()


@contextmanager
def _held(number: signal.Signals) -> Iterator[None]:
    """A signal that comes meanwhile is followed afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker(work: Callable[[T], R], items: Sequence[T], turn: Any, end: Connection) -> None:
    """Take the next item until there is none; send each result with its place, or the failure."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    torch.set_num_threads(1)
    try:
        while True:
            with turn.get_lock():
                place, turn.value = turn.value, turn.value + 1
            if place >= len(items):
                break
            end.send((place, work(items[place])))
        end.send(None)
    except Exception as error:
        end.send(error)


def _results(ends: list[Connection]) -> Iterator[tuple[int, Any]]:
    """(place, result) as they come, until every worker has said that it is done."""
    talking = list(ends)
    while talking:
        ready = wait(talking)
        for end in [end for end in talking if end in ready]:
            said = _heard(end)
            if isinstance(said, Exception):
                raise said
            if said is None:
                talking.remove(end)
            else:
                yield said


def _heard(end: Connection) -> Any:
    try:
        return end.recv()
    except EOFError:
        raise StudyError(
            "a process that fitted probes was ended from outside, mostly for want of memory; give fewer rows or sites, or "
            "run with OMP_NUM_THREADS=1, which needs no such processes"
        ) from None


# ---- threads --------------------------------------------------------------------------------------------------------


@contextmanager
def _one_thread_each() -> Iterator[Callable[[], None]]:
    """What a worker calls first: its products keep to one thread. The caller gets its own threads back."""
    before = torch.get_num_threads()
    try:
        yield lambda: torch.set_num_threads(1)
    finally:
        torch.set_num_threads(before)
