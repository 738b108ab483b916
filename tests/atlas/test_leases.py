"""One owner at a time; the lease of a dead one expires, and an owner that was suspended stops."""

import itertools
import json
import threading
import time

import pytest

from headwise.atlas.storage import lease as leases
from headwise.atlas.storage import open_location
from headwise.atlas.storage.lease import Lease, LeaseLostError, hold_lease
from headwise.core.errors import AtlasError

_numbers = itertools.count()


@pytest.fixture
def location():
    return open_location(f"memory://leases/{next(_numbers)}")


def owner(location) -> str | None:
    return json.loads(location.read("lease"))["owner"]


def test_held_renewed_and_released(location, monkeypatch):
    monkeypatch.setattr(leases, "SECONDS", 0.06)
    with hold_lease(location, "lease") as held:
        first = location.read("lease")
        mine = owner(location)
        with hold_lease(location, "lease", wait=False) as other:
            assert other is None
        time.sleep(0.2)  # over three times as long as it lasts without being renewed
        held.check()
        assert owner(location) == mine
        assert location.read("lease") != first
    assert owner(location) is None
    with hold_lease(location, "lease", wait=False) as again:
        assert again is not None


def test_waiting_for_one_that_is_held(location, monkeypatch, caplog):
    monkeypatch.setattr(leases, "SECONDS", 0.5)
    monkeypatch.setattr(leases, "WARN_AFTER", 0.0)
    order = []

    def second() -> None:
        with hold_lease(location, "lease"):
            order.append("second")

    with hold_lease(location, "lease"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert [record.message for record in caplog.records if "memory://leases" in record.message]
    assert caplog.text.count("Waiting for another writer") == 1


def test_an_expired_lease_is_taken_over_and_its_owner_notices(location, monkeypatch):
    monkeypatch.setattr(leases, "SECONDS", 0.1)
    suspended = Lease(location, "lease")
    assert suspended.acquire(wait=False)
    suspended.check()
    began = time.monotonic()
    with hold_lease(location, "lease") as successor:
        assert time.monotonic() - began > 0.1
        with pytest.raises(LeaseLostError):
            suspended.check()
        suspended.release()  # it is not its own any more: nothing happens
        successor.check()
        assert owner(location) == successor._record["owner"]


def test_a_dead_process_of_this_machine_is_seen_at_once(location, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(leases.os, "getpid", lambda: 2**22 + 1)  # no process has this number
        assert Lease(location, "lease").acquire(wait=False)
    with hold_lease(location, "lease", wait=False) as held:
        assert held is not None


def test_of_another_machine_only_the_timeout_counts(location, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(leases, "_machine", lambda: "another")
        patch.setattr(leases.os, "getpid", lambda: 2**22 + 1)
        assert Lease(location, "lease").acquire(wait=False)
    with hold_lease(location, "lease", wait=False) as held:
        assert held is None
    monkeypatch.setattr(leases, "ABANDONED_AFTER", 0)
    with hold_lease(location, "lease", wait=False) as held:
        assert held is not None


def test_many_take_turns(location, monkeypatch):
    monkeypatch.setattr(leases, "SECONDS", 1.0)
    inside, most, counted = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, counted
        for _ in range(3):
            with hold_lease(location, "lease"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                counted += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, counted) == (1, 12)


def test_a_lost_response_is_no_lost_lease(location, monkeypatch):
    """The request succeeded, its response was lost, and the repeated request met another tag."""
    monkeypatch.setattr(leases, "SECONDS", 0.0)
    lease = Lease(location, "lease")
    assert lease.acquire(wait=False)
    real = location.replace
    monkeypatch.setattr(location, "replace", lambda key, content, tag: real(key, content, tag) and None)
    lease.check()


def test_a_network_failure_is_no_lost_lease(location, monkeypatch):
    monkeypatch.setattr(leases, "SECONDS", 0.12)
    with hold_lease(location, "lease") as held:

        def away(*_: object) -> None:
            raise AtlasError("nothing answers")

        with monkeypatch.context() as patch:
            patch.setattr(location, "replace", away)
            time.sleep(0.05)
            with pytest.raises(AtlasError, match="nothing answers"):
                held.check()
        held.check()


def test_a_broken_lease_is_free(location):
    location.write("lease", b"[half")
    with hold_lease(location, "lease", wait=False) as held:
        assert held is not None
