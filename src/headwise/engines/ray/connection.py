"""Ray for the length of a run: started on this machine, or joined where it runs; and noticed when it dies.

Which Ray: the one this process has joined already; else the `address` (``auto``, ``HOST:6379``, ``ray://HOST:10001``); else
the one that the variable RAY_ADDRESS names, as inside a job that was submitted to a cluster; else one of our own, which is
ended with the run. Our own has no dashboard, tells nobody of itself, keeps its files in a folder of its own, and dies with
us: the kernel ends its processes when this one is killed (two small agents of Ray follow within a minute; what is stuck or
left on the disk is cleaned up by the next run).

Is Ray alive? Its head (GCS) and the raylet of this machine take connections. That is looked at every second from here, because
Ray itself, when its head is gone, waits for a minute and then ends this process without a word, and when the raylet is gone
ends it as soon as something is fetched.

This module does not know what is run.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwise.core.errors import EngineError
from headwise.engines.ray.library import the_library

__all__ = ["Connection", "connection"]

_log = logging.getLogger(__name__)
QUIET = {  # of our own Ray
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a worker on the CPU sees the GPUs that are there, as this process does
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "30",
}
STORE = 512 * 2**20  # bytes of shared memory for results on their way; more goes by the disk
FOLDER = "headwise-ray-"  # then the machine and the process that made it
STARTS = 3  # times that our own Ray is started before it is given up
LONGEST = 60  # characters of a folder in which Ray can still make sockets
ENDING = 10.0  # seconds that a process of our own Ray is given to end
EVERY = 1.0  # seconds between two looks
SILENT, SILENT_CLUSTER = 2.0, 25.0  # how long the head may be unreachable; that of a cluster may be made to start again


class Connection:
    """A Ray that was joined."""

    def __init__(self, ray: Any, own: bool) -> None:
        self.ray, self.own = ray, own
        self._client = bool(ray.util.client.ray.is_connected())
        context = ray.get_runtime_context()
        mine: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == context.get_node_id()), {})
        self._raylet = (mine.get("NodeManagerAddress", ""), int(mine.get("NodeManagerPort", 0)))
        host, _, port = ("", "", "0") if self._client else str(context.gcs_address).rpartition(":")
        self._head = (host.strip("[]"), int(port))
        self._looked = self._heard = time.monotonic()

    def check(self) -> None:
        """EngineError where Ray is gone; looks at most once a second."""
        now = time.monotonic()
        if now - self._looked < EVERY:
            return
        self._looked = now
        if self._client:
            self._ask()
            return
        self.touch()
        if _reachable(*self._head):
            self._heard = now
        elif now - self._heard > (SILENT if self.own else SILENT_CLUSTER):
            raise EngineError(self._gone(f"its head at {':'.join(map(str, self._head))} does not answer"))

    def touch(self) -> None:
        """EngineError where the Ray of this machine is gone: the last moment to notice, before something is fetched."""
        if not self._client and not _reachable(*self._raylet):
            raise EngineError(self._gone("its raylet on this machine is dead"))

    def _ask(self) -> None:
        try:
            self.ray.nodes()
        except Exception as cause:  # the client's own, of many kinds
            raise EngineError(self._gone(_line(cause))) from cause

    def _gone(self, why: str) -> str:
        whose = "Ray, which this run had started," if self.own else "The Ray cluster"
        return f"{whose} died ({why}); what was committed is kept, and the same command goes on from there."


@contextlib.contextmanager
def connection(address: str | None = None, *, cpus: int | None = None) -> Iterator[Connection]:
    """Ray, for the length of the block; one of our own lends so many CPUs (None: as many as there are)."""
    ray = the_library()
    if ray.is_initialized():
        yield Connection(ray, own=False)
        return
    address = address or os.environ.get("RAY_ADDRESS")
    with contextlib.ExitStack() as stack:
        if address in (None, "local"):
            stack.enter_context(_started(ray, cpus))
        else:
            _join(ray, str(address))
        stack.callback(_end, ray)
        stack.enter_context(_hushed())
        yield Connection(ray, own=address in (None, "local"))


@contextlib.contextmanager
def _started(ray: Any, cpus: int | None) -> Iterator[None]:
    """Our own Ray; on a busy machine it sometimes takes longer to start than it grants itself, and is started again."""
    for turn in range(STARTS):
        folder = _folder()
        try:
            _start(ray, folder, cpus)
            break
        except (OSError, RuntimeError, ValueError) as cause:
            _clean_up(folder)
            if turn + 1 == STARTS:
                raise EngineError(
                    f"Ray could not be started on this machine ({_line(cause)}); look for what is in the way, join a Ray "
                    "that runs with --address auto, or leave --engine out."
                ) from cause
    try:
        yield
    finally:
        _clean_up(folder)


def _start(ray: Any, folder: str, cpus: int | None) -> None:
    with _variables(QUIET), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own; those of a run are shown
        ray.init(
            address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
            object_store_memory=STORE, _temp_dir=folder, namespace="headwise", num_cpus=cpus,
        )  # fmt: skip


def _join(ray: Any, address: str) -> None:
    plain = re.fullmatch(r"([^/]+):(\d+)", address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if plain and not _reachable(plain[1], int(plain[2])):
                raise ConnectionError("nobody listens there")  # Ray itself would wait for minutes
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="headwise")
        except (OSError, RuntimeError, ValueError) as cause:
            if "InvalidAuthToken" in _chain(cause):
                raise EngineError(
                    f"The Ray at {address!r} lets nobody join without its token; set RAY_AUTH_MODE=token and give the token as "
                    "Ray's page on token authentication says, or ask whoever runs the cluster."
                ) from cause
            raise EngineError(
                f"There is no Ray that can be joined at {address!r} ({_line(cause)}); start one with `ray start --head`, give "
                "the address that it prints, or leave --address out to start one here."
            ) from cause


def _end(ray: Any) -> None:
    """Leave Ray; of our own, wait until its processes are gone, which Ray itself does not."""
    node = getattr(importlib.import_module("ray._private.worker"), "_global_node", None)
    started = [one.process for kind in getattr(node, "all_processes", {}).values() for one in kind]
    ray.shutdown()
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)


def _chain(error: BaseException) -> str:
    """What an error and those that it came from say."""
    before = error.__cause__ or error.__context__
    return str(error) + ("" if before is None else f"\n{_chain(before)}")


def _line(error: BaseException) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:200]


def _reachable(host: str, port: int) -> bool:
    """Whether somebody listens there; a machine that is too busy to answer in time is not taken for dead."""
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except TimeoutError:
        return True
    except OSError:
        return False


def _folder() -> str:
    """A new folder, in which our own Ray keeps its sockets and logs; those of runs that were killed are cleaned up."""
    where = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < LONGEST else "/tmp")
    ours = f"{FOLDER}{_machine()}-"  # a folder that is shared with other machines or containers has theirs, too
    for old in where.glob(f"{ours}*"):
        if not Path("/proc", old.name.removeprefix(ours).partition("-")[0]).exists():
            _clean_up(str(old))
    return tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=where)


def _machine() -> str:
    """A short name for where process numbers mean the same: this machine, or this container."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}{os.stat('/proc/self/ns/pid').st_ino}"[-16:]
    return socket.gethostname()[-16:]


def _clean_up(folder: str) -> None:
    """End what still runs in the folder (half started, or stuck at its end), and delete it."""
    for process in Path("/proc").glob("[0-9]*"):
        if _runs_in(folder, process):
            with contextlib.suppress(OSError):
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _runs_in(folder: str, process: Path) -> bool:
    """Whether a process (as the system shows it) was started in the folder, or writes its log there."""
    with contextlib.suppress(OSError):
        if folder.encode() in (process / "cmdline").read_bytes():
            return True
        return os.readlink(process / "fd" / "1").startswith(folder)
    return False


@contextlib.contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    """Set for the length of the block, where the user has not."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """What Ray's daemons say goes into the log: Ray would print it on standard output, where results go."""
    module = importlib.import_module("ray._private.worker")
    name = "print_to_stdstream"
    before = getattr(module, name, None)
    if before is None:
        yield
        return
    setattr(module, name, lambda data, *rest, **more: _log.debug("%s", "\n".join(data.get("lines", ()))))
    try:
        yield
    finally:
        setattr(module, name, before)
