"""The driver is killed, Ray itself is killed; the same command again ends with the same bits, and nothing is left running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from toy_spec import ToySpec, on_the_path

from headwise.engines import Listener, LocalEngine, ShardStore
from headwise.engines.ray import connection as ray_connection

pytestmark = [pytest.mark.xdist_group("ray")]
pytest.importorskip("ray", reason="the package ray is not installed (pip install 'headwise[ray]')")
EXAMPLES = 200
SHARDS = EXAMPLES // 4
DRIVER = Path(__file__).with_name("ray_driver.py")


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": on_the_path(), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(DRIVER), str(folder), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def committed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("atlas/.shards/*/*.shard"))


def wait_for(what: Callable[[], object], seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(what())


def processes(driver: int, name: str) -> list[psutil.Process]:
    return [one for one in psutil.Process(driver).children(recursive=True) if name in one.name()]


def test_resuming_after_the_head_or_the_driver_is_killed(tmp_path: Path) -> None:
    """Three runs of one command: Ray's head is killed, then the driver, then it ends; nothing is measured in vain."""
    spec = ToySpec(tmp_path)
    with start(tmp_path, 0.5) as run:
        assert wait_for(lambda: len(committed(tmp_path)) >= 1 or run.poll() is not None)
        (head,) = processes(run.pid, "gcs_server")
        head.kill()
        killed = time.monotonic()
        out, said = run.communicate(timeout=120)
    print(f"the driver ended {time.monotonic() - killed:.0f} s after the head of Ray")
    assert run.returncode == 2, said
    lines = [line for line in said.splitlines() if line.startswith("headwise: ")]
    assert len(lines) == 1 and "Ray, which this run had started, died (its head at" in lines[0]
    assert "what was committed is kept, and the same command goes on from there" in lines[0]
    assert "Traceback" not in said and not out
    first = committed(tmp_path)
    assert 1 <= len(first) < SHARDS

    with start(tmp_path, 0.5) as run:
        assert wait_for(lambda: len(committed(tmp_path)) > len(first) or run.poll() is not None)
        started = psutil.Process(run.pid).children(recursive=True)
        assert len(started) > 4
        run.kill()
        run.communicate()
    agents = ("DashboardAgent", "RuntimeEnvAgent")  # Ray's own, which look for their parent now and then
    heavy = [one for one in started if not any(name in " ".join(_called(one)) for name in agents)]
    assert wait_for(lambda: not [one for one in heavy if _lives(one)], 20), [
        _called(one) for one in heavy if _lives(one)
    ]
    second = committed(tmp_path)
    assert set(first) < set(second)

    with start(tmp_path, 0.0) as run:
        _, said = run.communicate(timeout=200)
    assert run.returncode == 0, said
    places = [place for place in spec.tries() if place >= 0]
    assert set(places) == set(range(SHARDS))
    assert all(places.count(int(name[:5])) == 1 for name in first)  # what was committed was never measured again
    expected = in_process(tmp_path / "local")
    assert (tmp_path / "result").read_bytes() == expected


def in_process(folder: Path) -> bytes:
    folder.mkdir()
    with LocalEngine().open(ToySpec(folder, examples=EXAMPLES), Listener()) as session:
        job = session.prepare(["toy"], {})
        store = ShardStore(folder / "atlas", job.provenance, examples=job.examples, size=job.shard_size)
        return session.run(job, store, Listener()).artifacts["kept/file.bin"]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _called(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() or [process.name()]
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def test_what_a_killed_run_left_is_cleaned_up_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a process that is gone, with one that is stuck in it; a folder of one that lives is left alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray_connection, "MAX_PATH", 1000)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    ours = f"{ray_connection.FOLDER}{ray_connection._machine()}"
    left, living = (tmp_path / f"{ours}-{number}-x" for number in (ended.pid, os.getpid()))
    left.mkdir()
    living.mkdir()
    with (left / "log").open("w") as log, subprocess.Popen(["sleep", "60"], stdout=log) as stuck:
        made = Path(ray_connection._new_folder())
        assert stuck.wait(10) == -9
    assert made.is_dir() and living.is_dir() and not left.exists()
    ray_connection._clean_up(str(made))
    assert not made.exists()
