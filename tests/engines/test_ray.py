"""The engine ray on this machine, with toys for studies: the same bits as in process, whoever dies. One Ray for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import xarray as xr
from loopback_s3 import serving
from toy_spec import EXAMPLES, FINALIZE, OPEN, ToySpec, on_the_path

from headwise.atlas.storage import open_location
from headwise.core.errors import AtlasError, EngineError, StudyError
from headwise.engines import (
    Listener,
    LocalEngine,
    RayEngine,
    ShardsFailedError,
    ShardStore,
    StudyJob,
    StudyResult,
    split_shards,
)
from headwise.engines.ray.connection import connect, connected_cluster
from headwise.engines.scheduler import Timeouts

pytestmark = [pytest.mark.xdist_group("ray")]
pytest.importorskip("ray", reason="the package ray is not installed (pip install 'headwise[ray]')")
SHARDS = split_shards(EXAMPLES, 4)


class Notes(Listener):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.counts: list[tuple[int, int]] = []
        self.doing: list[dict[str, str]] = []

    def event(self, sentence: str) -> None:
        self.events.append(sentence)

    def progress(self, study: str, done: int, total: int) -> None:
        self.counts.append((done, total))

    def workers(self, study: str, doing: object) -> None:
        self.doing.append(dict(doing))  # type: ignore[call-overload]


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """Started as a run would start it, with room for three; every run of this module joins it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", on_the_path())
        with connect(cpus=3):
            yield


def run(spec: ToySpec, atlas: Path | str, *, listener: Listener | None = None, **options: object) -> StudyResult:
    heard = listener or Listener()
    engine = RayEngine(**{"workers": 2, **options})  # type: ignore[arg-type]
    with engine.open(spec, heard) as session:
        job = session.prepare(["toy"], {})
        return session.run(job, store_of(job, atlas), heard)


def store_of(job: StudyJob, atlas: Path | str) -> ShardStore:
    return ShardStore(atlas, job.provenance, examples=job.examples, size=job.shard_size)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """In this process."""
    folder = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOY", "sent")
        with LocalEngine().open(ToySpec(folder), Listener()) as session:
            job = session.prepare(["toy"], {})
            return session.run(job, store_of(job, folder / "atlas"), Listener())


def assert_same(a: StudyResult, b: StudyResult) -> None:
    assert list(a.datasets) == list(b.datasets)
    for name, dataset in a.datasets.items():
        xr.testing.assert_identical(dataset, b.datasets[name])
        for variable in dataset.data_vars:
            assert dataset[variable].values.tobytes() == b.datasets[name][variable].values.tobytes()
    assert a.artifacts == b.artifacts


def test_the_same_bits_as_in_process(tmp_path: Path, expected: StudyResult) -> None:
    notes = Notes()
    spec = ToySpec(tmp_path, together=2)
    assert_same(run(spec, tmp_path / "atlas", listener=notes), expected)
    assert sorted(place for place in spec.tries() if place >= 0) == list(range(6))
    assert spec.tries().count(OPEN) == 2 and spec.tries().count(FINALIZE) == 1
    assert notes.counts[0] == (0, EXAMPLES) and notes.counts[-1] == (EXAMPLES, EXAMPLES)
    assert any(sum("examples" in words for words in doing.values()) == 2 for doing in notes.doing)
    assert not [event for event in notes.events if "died" in event]


def test_what_is_committed_is_not_measured_again(tmp_path: Path, expected: StudyResult) -> None:
    first = ToySpec(tmp_path)
    run(first, tmp_path / "atlas")
    (tmp_path / "tries").unlink()
    store = next((tmp_path / "atlas").glob(".shards/*"))
    (store / "00004.shard").unlink()
    damaged = store / "00002.shard"
    damaged.write_bytes(damaged.read_bytes()[:-60])
    assert_same(run(ToySpec(tmp_path), tmp_path / "atlas"), expected)
    assert sorted(place for place in first.tries() if place >= 0) == [2, 4]


def test_a_killed_worker_costs_one_shard(tmp_path: Path, expected: StudyResult) -> None:
    notes = Notes()
    spec = ToySpec(tmp_path, {1: ("die", 1), 3: ("fail", 1)})
    assert_same(run(spec, tmp_path / "atlas", listener=notes), expected)
    tries = spec.tries()
    assert tries.count(1) == 2 and tries.count(3) == 2
    assert all(tries.count(place) == 1 for place in (0, 2, 4, 5))
    said = " ".join(notes.events)
    assert "died at toy, examples 4 to 7 (its process was killed): tried again." in said
    assert "failed at toy, examples 12 to 15 (ZeroDivisionError: at place 3): tried again." in said


def test_a_poison_shard_is_named_and_all_others_are_kept(tmp_path: Path, expected: StudyResult) -> None:
    spec = ToySpec(tmp_path, {2: ("fail", 3)})
    with pytest.raises(
        ShardsFailedError, match=r"toy: examples 8 to 11 \(3 tries; worker .* failed: ZeroDivisionError: at place 2\)"
    ):
        run(spec, tmp_path / "atlas")
    assert len(list((tmp_path / "atlas").glob(".shards/*/*.shard"))) == 5
    assert_same(run(spec, tmp_path / "atlas"), expected)  # the next run tries it again, and only that
    assert [spec.tries().count(place) for place in range(6)] == [1, 1, 4, 1, 1, 1]


def test_a_worker_that_dies_while_it_finalizes_is_replaced(tmp_path: Path, expected: StudyResult) -> None:
    spec = ToySpec(tmp_path, {FINALIZE: ("die", 1)})
    assert_same(run(spec, tmp_path / "atlas"), expected)
    assert spec.tries().count(FINALIZE) == 2


def test_a_stuck_worker_is_ended(tmp_path: Path, expected: StudyResult) -> None:
    notes = Notes()
    spec = ToySpec(tmp_path, {5: ("hang", 1)})
    timeouts = Timeouts(first=60, factor=1, minimum=3)
    assert_same(run(spec, tmp_path / "atlas", listener=notes, timeouts=timeouts), expected)
    assert any("no answer for" in event for event in notes.events)


@pytest.mark.parametrize("place", [OPEN, 1])
def test_a_refusal_stops_at_once_with_its_sentence(tmp_path: Path, place: int) -> None:
    with pytest.raises(StudyError, match=f"place {place} is refused; choose another"):
        run(ToySpec(tmp_path, {place: ("refuse", 9)}), tmp_path / "atlas")


def test_workers_that_cannot_begin_are_given_up_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match=r"3 workers in a row were lost before .*died while starting \(its process was killed"
    ):
        run(ToySpec(tmp_path, {OPEN: ("die", 9)}), tmp_path / "atlas", workers=1)


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be sent"):
        run(ToySpec(tmp_path, in_memory=True), tmp_path / "atlas")


def test_no_room_names_the_nodes(tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match=r"A worker asks for 64 CPUs, and no node has them \(.*3 CPUs.*--threads-per-worker"
    ):
        run(ToySpec(tmp_path), tmp_path / "atlas", threads_per_worker=64)
    with pytest.raises(EngineError, match="A worker asks for 2 GPUs and 1 CPUs, and no node has them"):
        run(ToySpec(tmp_path), tmp_path / "atlas", gpus_per_worker=2)


def test_the_cluster_tells_what_it_has() -> None:
    cluster = connected_cluster()
    assert cluster.cpus == 3 and len(cluster.nodes) == 1
    assert cluster.memory > 1e8
    assert cluster.workers(cpus=2) == 1 and cluster.workers(cpus=1) == 3


def test_a_disk_that_loses_writes_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardStore, "load_packed", lambda *_: None)
    monkeypatch.setattr(ShardStore, "committed", lambda *_: [])
    with pytest.raises(AtlasError, match="could not be read back; the disk is failing"):
        run(ToySpec(tmp_path), tmp_path / "atlas")


def test_at_a_url_workers_commit_themselves(
    tmp_path: Path, expected: StudyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing passes through this process; a shard that was damaged in between is measured again, and no other."""
    spec = ToySpec(tmp_path)
    with serving() as server:
        server.make("bucket")
        with monkeypatch.context() as patch:
            patch.setattr(ShardStore, "commit_packed", lambda *_: pytest.fail("this process wrote a shard"))
            assert_same(run(spec, "s3://bucket/atlas"), expected)
        place = open_location("s3://bucket/atlas")
        (damaged,) = [key for key in place.keys(".shards") if key.endswith("00003.shard")]
        place.write(damaged, (place.read(damaged) or b"")[:-60])
        assert_same(run(spec, "s3://bucket/atlas"), expected)
    assert [spec.tries().count(shard) for shard in range(6)] == [1, 1, 1, 2, 1, 1]


def test_nothing_of_ray_is_set_in_this_process() -> None:
    assert not [name for name in os.environ if name.startswith("RAY_gcs")]
