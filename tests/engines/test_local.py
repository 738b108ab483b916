import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr

from headwise.core.errors import AtlasError
from headwise.engines import Shard, run_shards, split_shards

SHARDS = split_shards(23, 4)


def same_bits(a: list[xr.Dataset], b: list[xr.Dataset]) -> bool:
    return all(
        one.value.values.tobytes() == other.value.values.tobytes()
        and one.example.values.tolist() == other.example.values.tolist()
        for one, other in zip(a, b, strict=True)
    )


def measured(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


@pytest.mark.parametrize("overlap", [False, True])
def test_all_are_done_in_order(tmp_path, store, work, overlap):
    calls: list[tuple[int, int]] = []
    count = lambda *counts: calls.append(counts)  # noqa: E731
    results = run_shards(work(tmp_path / "log"), SHARDS, store(tmp_path), progress=count, overlap=overlap)
    assert [result.sizes["example"] for result in results] == [4, 4, 4, 4, 4, 3]
    assert calls == [(4, 23), (8, 23), (12, 23), (16, 23), (20, 23), (23, 23)]
    assert measured(tmp_path / "log") == [0, 1, 2, 3, 4, 5]
    again = run_shards(work(tmp_path / "again"), SHARDS, store(tmp_path))
    assert measured(tmp_path / "again") == []
    assert same_bits(results, again)


def test_results_are_read_when_asked_for_and_once(tmp_path, store, work, monkeypatch):
    kept = store(tmp_path)
    results = run_shards(work(tmp_path / "log"), SHARDS, kept)
    reads: list[int] = []
    load = kept.load
    monkeypatch.setattr(kept, "load", lambda shard: reads.append(shard.index) or load(shard))
    assert reads == []
    for _ in range(3):
        assert [result.sizes["example"] for result in results] == [4, 4, 4, 4, 4, 3]
    assert reads == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("overlap", [False, True])
def test_an_interrupt_keeps_what_is_done(tmp_path, store, work, overlap):
    real = work(tmp_path / "log")

    def interrupted(shard: Shard) -> xr.Dataset:
        if shard.index == 3:
            raise KeyboardInterrupt
        return real(shard)

    with pytest.raises(KeyboardInterrupt):
        run_shards(interrupted, SHARDS, store(tmp_path), overlap=overlap)
    assert store(tmp_path).committed(SHARDS) == SHARDS[:3]
    run_shards(real, SHARDS, store(tmp_path), overlap=overlap)
    assert measured(tmp_path / "log") == [0, 1, 2, 3, 4, 5]


def test_a_damaged_shard_is_redone_alone(tmp_path, store, work):
    before = run_shards(work(tmp_path / "log"), SHARDS, store(tmp_path))
    path = store(tmp_path).folder / "00004.shard"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 16
    path.write_bytes(content)
    after = run_shards(work(tmp_path / "again"), SHARDS, store(tmp_path))
    assert measured(tmp_path / "again") == [4]
    assert same_bits(before, after)


def test_a_failing_disk_is_reported(tmp_path, store, work, monkeypatch):
    shards = store(tmp_path)
    monkeypatch.setattr(type(shards), "load", lambda *_: None)
    with pytest.raises(AtlasError, match=r"Shard 0 was written to .* and could not be read back; the disk is failing"):
        run_shards(work(tmp_path / "log"), SHARDS, shards)


PROGRAM = """
import runpy, sys, time
from pathlib import Path
from headwise.engines import split_shards, run_shards
kit = runpy.run_path(sys.argv[1])
folder = Path(sys.argv[2])
work = kit["make_work"](folder / "log")
def slow(shard):
    time.sleep(0.05)
    return work(shard)
run_shards(slow, split_shards(23, 4), kit["make_store"](folder))
"""


def test_a_kill_in_the_middle(tmp_path, store, work):
    """SIGKILL, twice, at whatever moment; the third run ends, and the bits are those of an undisturbed run."""
    log, conftest = tmp_path / "log", Path(__file__).with_name("conftest.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for shards_before_kill in (1, 3):
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, conftest, tmp_path], env=environment)
        deadline = time.monotonic() + 30
        while len(measured(log)) <= shards_before_kill and time.monotonic() < deadline:
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    done = store(tmp_path).committed(SHARDS)
    assert 2 <= len(done) < len(SHARDS)
    log.unlink()
    resumed = run_shards(work(log), SHARDS, store(tmp_path))
    assert measured(log) == [shard.index for shard in SHARDS if shard not in done]
    undisturbed = run_shards(work(tmp_path / "other log"), SHARDS, store(tmp_path / "elsewhere"))
    assert same_bits(resumed, undisturbed)
