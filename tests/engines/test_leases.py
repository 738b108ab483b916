"""The book of leases: at every moment an item is in one state, held by one worker, and tried a bounded number of times."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.engines.leases import Leases, Terms


def test_items_are_taken_in_order_and_one_at_a_time():
    book = Leases(range(3))
    assert [book.take("a", now=0), book.take("b", now=0)] == [0, 1]
    assert book.holds("a") == 0 and book.holds("c") is None
    with pytest.raises(ValueError, match="holds 0 already"):
        book.take("a", now=1)
    assert book.finish("a", now=1) == 0
    assert book.take("a", now=1) == 2
    assert book.take("c", now=1) is None
    assert (book.open, book.done) == (2, {0})


def test_what_stands_twice_is_refused():
    with pytest.raises(ValueError, match="stands twice"):
        Leases([1, 2, 1])


def test_what_failed_goes_to_the_end_and_to_another_worker():
    book = Leases(["a", "b"], tries=3)
    book.take("one", now=0)
    assert book.fail("one", "died") is False
    assert book.waiting == ["b", "a"]
    assert book.take("one", now=0, others=["two"]) == "b"
    assert book.take("two", now=0, others=["one"]) == "a"
    book.fail("two", "died")
    assert book.take("two", now=0, others=["one"]) == "a"  # both have failed on it: whoever is free tries again
    assert book.fail("two", "died once more") is True
    assert book.aside == {"a": ["died", "died", "died once more"]}


def test_a_worker_waits_while_another_could_take_what_it_failed_on():
    book = Leases(["a"])
    book.take("one", now=0)
    book.fail("one", "died")
    assert book.take("one", now=0, others=["two"]) is None
    assert book.take("one", now=0, others=[]) == "a"


def test_the_term_follows_the_longest_so_far():
    book = Leases(range(9), terms=Terms(first=100, times=20, least=10))
    for worker in "abc":
        book.take(worker, now=0)
    assert book.overdue(now=100) == []
    assert book.overdue(now=101) == ["a", "b", "c"]
    book.finish("a", now=0.1)
    assert book.term == 10  # twenty times a tenth of a second is less than the least
    assert book.overdue(now=11) == ["b", "c"]
    book.finish("b", now=5)
    assert book.term == 100
    assert book.overdue(now=101) == ["c"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 30), st.integers(1, 6), st.integers(1, 4), st.floats(0, 1), st.integers(0, 10**6))
def test_nothing_is_lost_or_doubled_whatever_fails(items, workers, tries, share, seed):
    """Random workers take, finish and fail at random; at the end every item is done once or was tried `tries` times."""
    dice, book = random.Random(seed), Leases(range(items), tries=tries)
    tried: dict[int, int] = {}
    done: list[int] = []
    names = [f"w{i}" for i in range(workers)]
    for step in range(10_000):
        if not book.open:
            break
        name = dice.choice(names)
        if book.holds(name) is None:
            item = book.take(name, now=step, others=[other for other in names if other != name])
            if item is not None:
                tried[item] = tried.get(item, 0) + 1
        elif dice.random() < share:
            book.fail(name, "dice")
        else:
            done.append(book.finish(name, now=step))
        held = [book.holds(one) for one in names if book.holds(one) is not None]
        assert len(held) == len(set(held))
        assert not set(held) & set(done) and not set(book.waiting) & set(done)
        assert len(held) + len(book.waiting) + len(book.done) + len(book.aside) == items
    assert book.open == 0
    assert sorted([*done, *book.aside]) == list(range(items))
    assert all(tried[item] <= tries for item in tried)
    assert all(len(causes) == tries for causes in book.aside.values())
