"""Blocks in parallel: the same results by processes, by threads and one after the other; failures arrive."""

import os
import signal

import numpy as np
import pytest
import torch

from headwise.core.errors import DataError, StudyError
from headwise.probes.batched_logistic import parallel_map as module
from headwise.probes.batched_logistic.parallel_map import parallel_map

CPU = torch.device("cpu")


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def doubled(item):
    return os.getpid(), torch.get_num_threads(), np.full(20_000, 2 * item)


@pytest.mark.parametrize("forks", [True, False])
def test_results_come_in_order_and_workers_keep_to_one_thread(three_threads, monkeypatch, forks):
    monkeypatch.setattr(module, "_can_fork", lambda: forks)
    found = parallel_map(doubled, range(10), CPU)
    assert [int(values[7]) for _, _, values in found] == [2 * item for item in range(10)]
    assert {threads for _, threads, _ in found} == {1} and torch.get_num_threads() == 3
    assert (os.getpid() in {process for process, _, _ in found}) is not forks


@pytest.mark.parametrize("forks", [True, False])
def test_a_failure_is_raised_as_it_was(three_threads, monkeypatch, forks):
    monkeypatch.setattr(module, "_can_fork", lambda: forks)

    def fails(item):
        if item == 4:
            raise DataError("row 4 is not a number")
        return item

    with pytest.raises(DataError, match="row 4 is not a number"):
        parallel_map(fails, range(10), CPU)


def test_a_worker_does_not_end_as_its_parent_would(three_threads, monkeypatch):
    monkeypatch.setattr(module, "_can_fork", lambda: True)
    ours = os.getpid()

    def leave(number, frame):
        raise AssertionError("the parent's way to end") if os.getpid() == ours else SystemExit("a worker took it")

    before = signal.signal(signal.SIGTERM, leave)
    try:
        found = parallel_map(lambda _: signal.getsignal(signal.SIGTERM), range(6), CPU)
        assert set(found) == {signal.SIG_DFL} and signal.getsignal(signal.SIGTERM) is leave
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_killed_worker_is_reported(three_threads, monkeypatch):
    monkeypatch.setattr(module, "_can_fork", lambda: True)
    with pytest.raises(StudyError, match="a probe process was killed, probably because memory ran out"):
        parallel_map(lambda item: os._exit(9) if item == 3 else item, range(6), CPU)


def test_one_item_or_one_thread_needs_no_worker(monkeypatch):
    monkeypatch.setattr(module, "_map_in_processes", None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert parallel_map(doubled, [3], CPU)[0][0] == os.getpid()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert parallel_map(doubled, [3], CPU)[0][0] == os.getpid()
