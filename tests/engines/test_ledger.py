"""The task ledger: at every moment a task is in one state, on one worker, and tried a bounded number of times."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.engines.scheduler import TaskLedger, Timeouts


def test_tasks_are_taken_in_order_and_one_at_a_time():
    ledger = TaskLedger(range(3))
    assert [ledger.take("a", now=0), ledger.take("b", now=0)] == [0, 1]
    assert ledger.task_of("a") == 0 and ledger.task_of("c") is None
    with pytest.raises(ValueError, match="is running 0 already"):
        ledger.take("a", now=1)
    assert ledger.finish("a", now=1) == 0
    assert ledger.take("a", now=1) == 2
    assert ledger.take("c", now=1) is None
    assert (ledger.open, ledger.done) == (2, {0})


def test_a_duplicate_task_is_refused():
    with pytest.raises(ValueError, match="has a duplicate"):
        TaskLedger([1, 2, 1])


def test_what_failed_goes_to_the_end_and_to_another_worker():
    ledger = TaskLedger(["a", "b"], tries=3)
    ledger.take("one", now=0)
    assert ledger.fail("one", "died") is False
    assert ledger.waiting == ["b", "a"]
    assert ledger.take("one", now=0, others=["two"]) == "b"
    assert ledger.take("two", now=0, others=["one"]) == "a"
    ledger.fail("two", "died")
    assert ledger.take("two", now=0, others=["one"]) == "a"  # both have failed on it: whoever is free tries again
    assert ledger.fail("two", "died once more") is True
    assert ledger.quarantined == {"a": ["died", "died", "died once more"]}


def test_a_worker_waits_while_another_could_take_what_it_failed_on():
    ledger = TaskLedger(["a"])
    ledger.take("one", now=0)
    ledger.fail("one", "died")
    assert ledger.take("one", now=0, others=["two"]) is None
    assert ledger.take("one", now=0, others=[]) == "a"


def test_the_timeout_follows_the_longest_so_far():
    ledger = TaskLedger(range(9), timeouts=Timeouts(first=100, factor=20, minimum=10))
    for worker in "abc":
        ledger.take(worker, now=0)
    assert ledger.overdue(now=100) == []
    assert ledger.overdue(now=101) == ["a", "b", "c"]
    ledger.finish("a", now=0.1)
    assert ledger.timeout == 10  # twenty times a tenth of a second is less than the minimum
    assert ledger.overdue(now=11) == ["b", "c"]
    ledger.finish("b", now=5)
    assert ledger.timeout == 100
    assert ledger.overdue(now=101) == ["c"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 30), st.integers(1, 6), st.integers(1, 4), st.floats(0, 1), st.integers(0, 10**6))
def test_nothing_is_lost_or_doubled_whatever_fails(items, workers, tries, share, seed):
    """Random workers take, finish and fail at random; at the end every item is done once or was tried `tries` times."""
    dice, ledger = random.Random(seed), TaskLedger(range(items), tries=tries)
    tried: dict[int, int] = {}
    done: list[int] = []
    names = [f"w{i}" for i in range(workers)]
    for step in range(10_000):
        if not ledger.open:
            break
        name = dice.choice(names)
        if ledger.task_of(name) is None:
            item = ledger.take(name, now=step, others=[other for other in names if other != name])
            if item is not None:
                tried[item] = tried.get(item, 0) + 1
        elif dice.random() < share:
            ledger.fail(name, "dice")
        else:
            done.append(ledger.finish(name, now=step))
        held = [ledger.task_of(one) for one in names if ledger.task_of(one) is not None]
        assert len(held) == len(set(held))
        assert not set(held) & set(done) and not set(ledger.waiting) & set(done)
        assert len(held) + len(ledger.waiting) + len(ledger.done) + len(ledger.quarantined) == items
    assert ledger.open == 0
    assert sorted([*done, *ledger.quarantined]) == list(range(items))
    assert all(tried[item] <= tries for item in tried)
    assert all(len(causes) == tries for causes in ledger.quarantined.values())
