"""The scheduler on workers that die by dice: no shard lost, none done twice, every run ends."""

from __future__ import annotations

import random

import pytest
from fake_pool import FakePool
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.core.errors import EngineError, StudyError
from headwise.engines import Listener
from headwise.engines.pool import Call
from headwise.engines.scheduler import PREPARE, Scheduler, TaskList, Timeouts

TIMEOUTS = Timeouts(first=300, factor=50, minimum=100)


class Notes(Listener):
    def __init__(self):
        self.events: list[str] = []
        self.doing: list[dict[str, str]] = []

    def event(self, sentence):
        self.events.append(sentence)

    def workers(self, study, doing):
        self.doing.append(dict(doing))


class Fates:
    """What befalls a call: by share, for shards, for starts and preparations; some shards are poison."""

    def __init__(self, seed=0, *, shards=0.0, others=0.0, poison=(), how=("die", "fail", "hang")):
        self.dice, self.shards, self.others = random.Random(seed), shards, others
        self.poison, self.how = set(poison), how

    def __call__(self, worker, call):
        if call.method == "measure":
            if call.arguments[0] in self.poison:
                return self.dice.choice(("die", "fail"))
            return self.dice.choice(self.how) if self.dice.random() < self.shards else "answer"
        return self.dice.choice(self.how) if self.dice.random() < self.others else "answer"


def task_list(study, count, done, *, verify=lambda answer: None):
    prepare = Call(PREPARE, (study,))
    return TaskList(
        study, range(count), lambda item: Call("measure", (item,)), lambda item: f"shard {item}",
        lambda item, answer: done.append(item), prepare=prepare, verify=verify,
    )  # fmt: skip


def scheduler_of(pool, size=4, **options):
    notes = Notes()
    return Scheduler(pool, size, notes, timeouts=TIMEOUTS, **options), notes


def test_all_is_done_once_by_several():
    pool, done = FakePool(most=4), []
    scheduler, notes = scheduler_of(pool)
    ledger = scheduler.work(task_list("toy", 40, done))
    assert sorted(done) == list(range(40))
    assert not ledger.quarantined and not notes.events
    assert pool.started == 4
    measured = [call.arguments[0] for _, call in pool.sent if call.method == "measure"]
    assert sorted(measured) == list(range(40))
    assert max(sum("shard" in words for words in doing.values()) for doing in notes.doing) == 4


def test_no_more_workers_than_there_is_to_do():
    pool = FakePool()
    scheduler, _ = scheduler_of(pool, size=8)
    scheduler.work(task_list("toy", 2, []))
    assert pool.started == 2
    scheduler.work(task_list("next", 0, []))
    assert pool.started == 2


def test_every_worker_prepares_before_it_measures_and_once_a_study():
    pool = FakePool(seed=3)
    scheduler, _ = scheduler_of(pool)
    for study in ("one", "two"):
        scheduler.work(task_list(study, 20, []))
    for worker in pool.living:
        methods = [call.method for name, call in pool.sent if name == worker]
        assert methods[:3] == ["start", "prepare", "measure"]
        assert pool.prepared(worker) == ["one", "two"]


def test_a_prepared_worker_takes_a_single_task():
    """Finalizing goes to a worker that has the study prepared; the others are not bothered."""
    pool, done = FakePool(), []
    scheduler, _ = scheduler_of(pool)
    todo = task_list("toy", 12, done)
    scheduler.work(todo)
    before = len(pool.sent)
    last = TaskList(
        "toy", ["end"], lambda _: Call("finalize"), lambda _: "end", lambda *_: done.append("end"), todo.prepare
    )
    scheduler.work(last)
    assert done[-1] == "end"
    assert [call.method for _, call in pool.sent[before:]] == ["finalize"]


def test_a_dead_worker_is_replaced_and_its_shard_goes_to_another():
    deaths = iter(["die"])
    pool = FakePool(fate=lambda worker, call: next(deaths, "answer") if call.method == "measure" else "answer", most=2)
    scheduler, notes = scheduler_of(pool, size=2)
    done: list[int] = []
    scheduler.work(task_list("toy", 6, done))
    assert sorted(done) == list(range(6))
    assert pool.started == 3
    assert notes.events == [
        "w1 (('done', Call(method='start', arguments=()))) died at toy, shard 0 (killed by dice): tried again."
    ]
    assert next(worker for worker, call in reversed(pool.sent) if call == Call("measure", (0,))) != "w1"


def test_a_poison_shard_is_quarantined_after_three_tries_and_the_rest_is_done():
    pool, done = FakePool(fate=Fates(poison={7})), []
    scheduler, notes = scheduler_of(pool)
    ledger = scheduler.work(task_list("toy", 20, done))
    assert sorted(done) == [item for item in range(20) if item != 7]
    assert list(ledger.quarantined) == [7] and len(ledger.quarantined[7]) == 3
    assert len([call for _, call in pool.sent if call == Call("measure", (7,))]) == 3
    assert "quarantined after 3 tries" in notes.events[-1]


def test_where_nothing_goes_well_the_rest_is_not_tried():
    pool, done = FakePool(fate=Fates(shards=1.0, how=("die",)), most=1), []
    scheduler, _ = scheduler_of(pool, size=1)
    ledger = scheduler.work(task_list("toy", 1000, done))
    assert done == []
    assert sum(len(causes) for causes in ledger.failures.values()) == 9 == pool.started
    assert ledger.open == 1000


def test_a_worker_that_fails_twice_in_a_row_is_replaced():
    """A GPU may be left in a state in which everything fails."""
    broken = FakePool(
        fate=lambda worker, call: "fail" if worker == "w1" and call.method == "measure" else "answer", most=2
    )
    scheduler, _ = scheduler_of(broken, size=2)
    done: list[int] = []
    ledger = scheduler.work(task_list("toy", 30, done))
    assert sorted(done) == list(range(30)) and not ledger.quarantined
    assert "w1" not in broken.living and broken.started == 3
    assert len([call for worker, call in broken.sent if worker == "w1" and call.method == "measure"]) == 2


def test_a_worker_that_hangs_is_stopped_after_its_timeout():
    hangs = iter(["hang"])
    pool = FakePool(fate=lambda worker, call: next(hangs, "answer") if call.method == "measure" else "answer")
    scheduler, notes = scheduler_of(pool, size=2)
    done: list[int] = []
    scheduler.work(task_list("toy", 5, done))
    assert sorted(done) == list(range(5))
    assert "no answer for" in notes.events[0]
    assert pool.now() > TIMEOUTS.minimum


def test_a_refusal_stops_at_once_with_its_sentence():
    pool = FakePool(fate=lambda worker, call: "refuse" if call.method == PREPARE else "answer")
    scheduler, _ = scheduler_of(pool)
    with pytest.raises(StudyError, match="refused by dice"):
        scheduler.work(task_list("toy", 5, []))


def test_workers_that_never_begin_are_given_up():
    pool = FakePool(fate=lambda worker, call: "die" if call.method == "start" else "answer")
    scheduler, notes = scheduler_of(pool, size=1)
    with pytest.raises(EngineError, match=r"3 workers in a row were lost .* w3 died while starting \(killed by dice\)"):
        scheduler.work(task_list("toy", 5, []))
    assert pool.started == 3 and len(notes.events) == 3


def test_one_that_works_carries_on_where_no_other_can_begin():
    pool = FakePool(fate=lambda worker, call: "die" if call.method == "start" and worker != "w1" else "answer")
    scheduler, _ = scheduler_of(pool, size=4)
    done: list[int] = []
    scheduler.work(task_list("toy", 50, done))
    assert sorted(done) == list(range(50))


def test_the_end_of_the_cluster_is_raised():
    pool = FakePool(fate=Fates(seed=1, shards=0.2), gone_after=20)
    scheduler, _ = scheduler_of(pool)
    with pytest.raises(EngineError, match="the cluster is gone"):
        scheduler.work(task_list("toy", 500, []))


def test_who_comes_to_something_else_is_refused():
    def verify(answer):
        raise EngineError("two workers do not agree")

    scheduler, _ = scheduler_of(FakePool())
    with pytest.raises(EngineError, match="do not agree"):
        scheduler.work(task_list("toy", 5, [], verify=verify))


def test_what_comes_late_of_a_list_given_up_is_not_counted():
    """A worker is still at the first study when the second has begun; its answer belongs to neither."""
    begun: list[str] = []

    def fate(worker, call):
        if call.method != "measure" or begun:
            return "answer"
        return "slow" if call.arguments[0] == 1 else "die"

    pool = FakePool(fate=fate)
    scheduler, _ = scheduler_of(pool, size=3, tries=1)
    first, second = [], []
    ledger = scheduler.work(task_list("one", 40, first))
    assert first == [] and ledger.open
    late = next(worker for worker in pool.living if ledger.task_of(worker) == 1)
    begun.append("two")
    scheduler.work(task_list("two", 200, second))
    assert sorted(second) == list(range(200))
    assert first == []
    assert pool.prepared(late) == ["one", "two"]  # it is used again once it has answered


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 60), st.integers(1, 7), st.sampled_from([0.0, 0.05, 0.3, 0.8]), st.sampled_from([0.0, 0.1, 0.4]),
    st.sets(st.integers(0, 59), max_size=3), st.integers(0, 10**6),
)  # fmt: skip
def test_no_shard_is_lost_or_doubled_whichever_worker_dies(count, size, shards, others, poison, seed):
    pool = FakePool(fate=Fates(seed, shards=shards, others=others, poison=poison), seed=seed, most=size)
    scheduler, _ = scheduler_of(pool, size=size)
    done: list[int] = []
    try:
        ledger = scheduler.work(task_list("toy", count, done))
    except EngineError:  # several in a row could not begin: nothing is lost, and the next run goes on
        assert len(done) == len(set(done))
        return
    assert len(done) == len(set(done))
    assert ledger.open == 0 or (not done and sum(map(len, ledger.failures.values())) >= 9)
    assert set(done) | set(ledger.quarantined) | set(ledger.waiting) >= set(range(count)) - {
        ledger.task_of(worker) for worker in pool.living
    }
    assert not set(done) & set(ledger.quarantined)
    assert not set(done) & poison
    tried = [call.arguments[0] for _, call in pool.sent if call.method == "measure"]
    assert all(tried.count(item) <= 3 for item in set(tried))
