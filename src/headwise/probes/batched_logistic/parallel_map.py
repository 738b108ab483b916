"""A map over blocks of work, one block per core.

Several threads per product are slow for thousands of small products: threads synchronise after each one by spinning, and
where another process uses one of the cores, that wait is a whole time slice (on two busy cores 24 cells took 21 s with two
threads per product, and 32 cells 5 s with one thread per block). So each block belongs to one worker, and workers do not
synchronise.

Workers are forked processes: they see the features without a copy, start at once, and share no lock. Threads would share
Python's: an operation of the solver takes a few microseconds, and two threads were only 1.2 times as fast as one. Threads are
used where a fork is not safe: on systems other than Linux, outside the main thread (a server's, while a model may be
running), and inside a worker. A worker keeps to one thread, and so never meets the threads that torch had before the fork:
what torch's own DataLoader relies on. A worker must not run the parent's handler of SIGTERM, least of all half-way out of a
fork: the signal is blocked until the worker has restored the default.

On a GPU blocks run one after the other. Cost: some milliseconds per worker; results travel through a pipe.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from headwise.core.errors import StudyError

T = TypeVar("T")
R = TypeVar("R")


def parallel_map(
    work: Callable[[T], R], items: Sequence[T], device: torch.device, done: Callable[[], object] = lambda: None
) -> list[R]:
    """The results of ``work`` in the order of ``items``; as many at a time as torch has threads.

    ``done`` is called here after each item.

    >>> parallel_map(lambda x: x + 1, [1, 2, 3], torch.device("cpu"))
    [2, 3, 4]
    """
    workers = min(torch.get_num_threads(), len(items))
    if device.type == "cpu" and workers > 1 and _can_fork():
        return _map_in_processes(work, items, workers, done)
    if device.type == "cpu" and workers > 1:
        with (
            single_torch_thread(),
            ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1)) as pool,
        ):
            return _each(pool.map(work, items), done)
    return _each(map(work, items), done)


def _each(results: Iterable[R], done: Callable[[], object]) -> list[R]:
    """All results; ``done`` is called after each."""
    found = []
    for result in results:
        found.append(result)
        done()
    return found


@contextmanager
def single_torch_thread() -> Iterator[None]:
    """Hold torch to one thread; the caller gets its own number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _can_fork() -> bool:
    main = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    return sys.platform == "linux" and main


def _map_in_processes(work: Callable[[T], R], items: Sequence[T], workers: int, done: Callable[[], object]) -> list[R]:
    """The results, in order; the first failure of a worker is raised here."""
    fork = multiprocessing.get_context("fork")
    counter, receivers, running = fork.Value("l", 0), [], []
    try:
        for _ in range(workers):
            receiver, sender = fork.Pipe(duplex=False)
            process = fork.Process(target=_worker, args=(work, items, counter, sender), daemon=True)
            with warnings.catch_warnings(), _blocked(signal.SIGTERM):
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks while torch has idle threads
                process.start()
            sender.close()
            receivers.append(receiver)
            running.append(process)
        found = dict(_each(_results(receivers), done))
        return [found[index] for index in range(len(items))]
    finally:
        for process in running:
            process.terminate()
            process.join()


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """A signal that arrives meanwhile is delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker(work: Callable[[T], R], items: Sequence[T], counter: Any, sender: Connection) -> None:
    """Take the next item until there is none; send each result with its index, or the failure."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    torch.set_num_threads(1)
    try:
        while True:
            with counter.get_lock():
                index, counter.value = counter.value, counter.value + 1
            if index >= len(items):
                break
            sender.send((index, work(items[index])))
        sender.send(None)
    except Exception as error:
        sender.send(error)


def _results(receivers: list[Connection]) -> Iterator[tuple[int, Any]]:
    """(index, result) as they come, until every worker has finished."""
    open_ = list(receivers)
    while open_:
        ready = wait(open_)
        for receiver in [receiver for receiver in open_ if receiver in ready]:
            try:
                message = receiver.recv()
            except EOFError:
                raise StudyError(
                    "a probe process was killed, probably because memory ran out; give fewer questions or sites, or run with "
                    "OMP_NUM_THREADS=1, which starts no such processes."
                ) from None
            if isinstance(message, Exception):
                raise message
            if message is None:
                open_.remove(receiver)
            else:
                yield message
