"""A writer that dies between any two requests leaves the previous or the new study, whole."""

import itertools
import runpy
import threading
from pathlib import Path

import pytest
import xarray as xr
from zarr_in_memory import zarr_memory_store

from headwise.atlas import Atlas
from headwise.atlas.storage import ObjectStoreLocation
from headwise.atlas.storage import lease as leases
from headwise.core.errors import AtlasError

crashes = runpy.run_path(str(Path(__file__).with_name("object_crashes.py")))
version, version_of = crashes["version"], crashes["version_of"]
_numbers = itertools.count()
VERBS = ("read_tagged", "write", "_put", "delete", "delete_many", "tags")


class Killed(SystemExit):
    """The process is gone: nothing it does takes effect any more."""


class Mortal(ObjectStoreLocation):
    """A location whose process dies just before the n-th request."""

    left = 10**9

    def _live(self, real, *args):
        if self.left <= 0:
            raise Killed
        self.left -= 1
        return real(self, *args)


for _verb in VERBS:
    _real = getattr(ObjectStoreLocation, _verb)
    setattr(Mortal, _verb, lambda self, *args, real=_real: self._live(real, *args))


@pytest.fixture
def atlas() -> Atlas:
    atlas = Atlas.create(f"memory://crashes/{next(_numbers)}")
    atlas.store.write("toy", version(0))
    return atlas


def mortal(atlas: Atlas, left: int) -> Atlas:
    location = Mortal(atlas.location.url, atlas.location.store, atlas.location.prefix)
    location.left = left
    return Atlas(location)


def seen(atlas: Atlas) -> tuple[int | None, int]:
    """By plain xarray, and by Headwise without recovering."""
    location = atlas.location
    parts = {key: location.read(key) for key in location.keys() if not key.startswith(".")}  # noqa: SIM118
    tree = xr.open_datatree(zarr_memory_store(parts), engine="zarr")
    plain = version_of(tree["toy"].to_dataset()) if "toy" in tree.children else None
    return plain, version_of(atlas.store.read("toy"))


def lives(atlas: Atlas, write) -> list[tuple[int | None, int]]:
    """What is seen after a death before the n-th request, for every n until the writer gets through."""
    found = []
    for left in range(200):
        atlas.store.write("toy", version(0))
        try:
            write(mortal(atlas, left))
        except Killed:
            found.append(seen(atlas))
            continue
        return [*found, seen(atlas)]
    raise AssertionError("it never gets through")


def dead(monkeypatch) -> None:
    """Processes that died here were on this machine: their leases are seen to be free at once."""
    monkeypatch.setattr(leases, "_alive", lambda pid: False)


def test_dying_before_each_request(atlas, monkeypatch):
    dead(monkeypatch)
    states = lives(atlas, lambda writer: writer.store.write("toy", version(1)))
    assert len(states) > 15
    order = [state for state, _ in itertools.groupby(states)]
    assert order == [(0, 0), (None, 1), (1, 1)]  # from the announcement on the new one stands


def test_the_next_build_finishes(atlas, monkeypatch):
    dead(monkeypatch)

    def write_then_look(writer: Atlas) -> None:
        try:
            writer.store.write("toy", version(1))
        finally:
            again = Atlas.create(atlas.location)
            plain, headwise = seen(again)
            assert plain == headwise
            assert again.store.metadata().pending == {}

    states = lives(atlas, write_then_look)
    assert [state for state, _ in itertools.groupby(states)] == [(0, 0), (1, 1)]
    atlas.store.write("toy", version(2))
    assert [key for key in atlas.location.keys(".swap") if not key.endswith("/lease")] == []


def test_dying_while_finishing_for_another(atlas, monkeypatch):
    """The second to die, at any request, leaves it to a third."""
    dead(monkeypatch)
    half = next(n for n in range(200) if dies_pending(atlas, n))
    states = []
    for left in range(200):
        assert dies_pending(atlas, half)
        try:
            helper = mortal(atlas, left)
            helper.store.recover()
        except Killed:
            states.append(seen(atlas))
            Atlas.create(atlas.location)
            assert seen(atlas) == (1, 1)
            continue
        break
    assert [state for state, _ in itertools.groupby(states)] == [(None, 1), (1, 1)]


def dies_pending(atlas: Atlas, left: int) -> bool:
    atlas.store.write("toy", version(0))
    try:
        mortal(atlas, left).store.write("toy", version(1))
    except Killed:
        return "toy" in atlas.store.metadata().pending
    return False


def test_a_new_study_is_there_whole_or_not_at_all(monkeypatch):
    dead(monkeypatch)
    for left in range(200):
        atlas = Atlas.create(f"memory://crashes/{next(_numbers)}")
        try:
            mortal(atlas, left).store.write("toy", version(1))
        except Killed:
            assert atlas.studies in ([], ["toy"])
            if atlas.studies:
                assert version_of(atlas.store.read("toy")) == 1
            Atlas.create(atlas.location).store.write("toy", version(2))
            assert seen(atlas) == (2, 2)
            continue
        break
    assert left > 15


def test_a_dead_writer_of_another_machine_is_waited_for(atlas, monkeypatch):
    monkeypatch.setattr(leases, "SECONDS", 0.3)
    assert any(dies_pending(atlas, left) for left in range(8, 16))
    opened = Atlas.open(atlas.location)  # who only reads neither waits nor takes the lease
    assert seen(opened) == (None, 1)
    atlas.store.write("toy", version(2))
    assert seen(atlas) == (2, 2)


def test_a_writer_that_was_asleep_starts_again(atlas, monkeypatch):
    """Its lease is taken, and another version written, while it sleeps before the announcement."""
    monkeypatch.setattr(leases, "SECONDS", 0.2)
    real, slept = atlas.store._announce, []

    def asleep(study, told, nodes, lease) -> None:
        if not slept:
            slept.append(True)
            lease._released.set()  # nobody renews for a sleeper
            Atlas.open(atlas.location).store.write("toy", version(2))
        real(study, told, nodes, lease)

    monkeypatch.setattr(atlas.store, "_announce", asleep)
    atlas.store.write("toy", version(3))
    assert seen(atlas) == (3, 3)


def test_a_writer_that_sleeps_after_the_announcement_has_written(atlas, monkeypatch):
    """Whoever takes its lease writes another version over it: both were written, one after the other."""
    monkeypatch.setattr(leases, "SECONDS", 0.2)
    real, slept = ObjectStoreLocation.write_many, []

    def asleep(self, parts, tags, guard) -> None:
        if not slept:
            slept.append(True)
            guard.__self__._released.set()
            Atlas.open(atlas.location).store.write("toy", version(2))
        real(self, parts, tags, guard)

    monkeypatch.setattr(ObjectStoreLocation, "write_many", asleep)
    atlas.store.write("toy", version(3))
    assert seen(atlas) == (2, 2)


class Sleeper(Mortal):
    """A location whose process is suspended just before the n-th request, while another process writes."""

    def __init__(self, *args: str) -> None:
        super().__init__(*args)
        self.awake, self.once = threading.Event(), threading.Lock()
        self.awake.set()

    def _live(self, real, *args):
        self.left -= 1
        if self.left == 0 and self.once.acquire(blocking=False):
            self.awake.clear()
            Atlas(ObjectStoreLocation(self.url, self.store, self.prefix)).store.write("toy", version(2))
            self.awake.set()
        self.awake.wait()
        return real(self, *args)


def test_asleep_before_each_request_while_another_writes(atlas, monkeypatch):
    """Never a mixture: a sleeper's requests are refused, because something else lies there by now."""
    monkeypatch.setattr(leases, "SECONDS", 0.1)
    found = []
    for left in range(1, 200):
        atlas.store.write("toy", version(0))
        location = Sleeper(atlas.location.url, atlas.location.store, atlas.location.prefix)
        location.left = left
        Atlas(location).store.write("toy", version(1))
        if location.left > 0:
            break
        found.append(seen(Atlas.open(atlas.location)))
    order = [state for state, _ in itertools.groupby(found)]
    assert order == [(1, 1), (2, 2)]  # asleep before the announcement: it starts again; after it: it was written over
    assert len(found) > 15


def test_a_packed_study_that_is_corrupt_is_reported_and_replaced(atlas, monkeypatch):
    dead(monkeypatch)
    assert any(dies_pending(atlas, left) for left in range(8, 16))
    (key,) = [key for key in atlas.location.keys(".swap/toy") if key.endswith(".zip")]
    for damage in (
        lambda: atlas.location.write(key, atlas.location.read(key)[:-9]),
        lambda: atlas.location.delete(key),
    ):
        damage()
        with pytest.raises(AtlasError, match=r"The study 'toy' in .* is damaged: .*--redo toy"):
            Atlas.open(atlas.location).store.read("toy")
    atlas.store.write("toy", version(2))
    assert seen(atlas) == (2, 2)


def test_who_may_not_write_reads_all_the_same(atlas, monkeypatch):
    dead(monkeypatch)
    assert any(dies_pending(atlas, left) for left in range(8, 16))

    def refuse(*_: object) -> None:
        raise AtlasError("The store does not let you write")

    for verb in ("write", "_put", "delete", "delete_many"):
        monkeypatch.setattr(ObjectStoreLocation, verb, refuse)
    assert version_of(Atlas.open(atlas.location).store.read("toy")) == 1


def test_readers_and_writers_at_once(atlas):
    """In threads: three studies, two writers of one of them, and readers who see whole studies only."""
    failed, over = [], threading.Event()

    def guarded(work) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write(study: str) -> None:
        for number in range(5):
            atlas.store.write(study, version(number, study=study))

    def read() -> None:
        while not over.is_set():
            version_of(Atlas.open(atlas.location).store.read("toy"))

    readers = [guarded(read) for _ in range(2)]
    writers = [guarded(lambda study=study: write(study)) for study in ("toy", "toy", "other", "third")]
    for thread in writers:
        thread.join()
    over.set()
    for thread in readers:
        thread.join()
    assert failed == []
    assert atlas.studies == ["other", "third", "toy"]
    assert seen(atlas) == (4, 4)


def test_answers_that_get_lost_do_no_harm(atlas, monkeypatch):
    """Every conditional write is carried out, but two of three answers are lost, and the client's second try is refused."""
    real, numbers = ObjectStoreLocation._put, itertools.count()

    def deaf(self, key, content, mode):
        tag = real(self, key, content, mode)
        return None if next(numbers) % 3 else tag

    monkeypatch.setattr(ObjectStoreLocation, "_put", deaf)
    for number in range(1, 5):
        atlas.store.write("toy", version(number))
        assert seen(atlas) == (number, number)
    assert next(numbers) > 20


def test_a_store_that_fails_midway_is_reported_and_finished_later(atlas, monkeypatch):
    """The third object cannot be put: the new study stands, and the next build puts the rest."""
    real, numbers = ObjectStoreLocation._put, itertools.count()

    def away(self, key, content, mode):
        if key.startswith("toy/") and next(numbers) >= 2:
            raise AtlasError("nothing answers there")
        return real(self, key, content, mode)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStoreLocation, "_put", away)
        with pytest.raises(AtlasError, match="nothing answers there"):
            atlas.store.write("toy", version(1))
    assert seen(atlas) == (None, 1)
    assert seen(Atlas.open(atlas.location)) == (None, 1)  # a reader writes nothing
    assert seen(Atlas.create(atlas.location)) == (1, 1)
