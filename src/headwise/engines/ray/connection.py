"""A connection to Ray for the length of a run: started on this machine, or joined; its nodes; and how its death is noticed.

Which Ray: the one this process has joined already; else the `address` (``auto``, ``HOST:6379``, ``ray://HOST:10001``); else
the one in the variable RAY_ADDRESS, as inside a job submitted to a cluster; else one of our own, which ends with the run. Our
own has no dashboard, sends no usage statistics, keeps its files in a folder of its own, and dies with us: the kernel kills its
processes with this one (two small agents of Ray follow within a minute; the next run cleans up what is stuck).

Liveness: the head (GCS) and the raylet of this machine accept connections. We check that every second, because Ray itself
waits for a minute after the death of its head and then ends this process silently, and after the death of the raylet ends it
at the next fetch.
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.core.errors import EngineError
from headwise.engines.cluster import Cluster, Node

__all__ = ["RayConnection", "connect", "connected_cluster", "import_ray", "with_gpu_memory"]

_log = logging.getLogger(__name__)
OWN_ENVIRONMENT = {  # of our own Ray
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a worker on the CPU sees the GPUs that are there, as this process does
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "30",
}
OBJECT_STORE_BYTES = 512 * 2**20  # shared memory for results in transit; the rest spills to disk
FOLDER = "headwise-ray-"  # followed by machine and process
MAX_STARTS = 3  # of our own Ray
MAX_PATH = 60  # characters of a folder in which Ray can still create sockets
EXIT_SECONDS = 10.0  # for a process of our own Ray to end
CHECK_SECONDS = 1.0  # between two checks
MAX_SILENCE, MAX_SILENCE_CLUSTER = 2.0, 25.0  # seconds without a head; that of a cluster may be restarted
ACCELERATOR = "accelerator_type:"  # prefix of the kind of GPU among a node's resources


def import_ray() -> Any:
    """The package ray."""
    try:
        return importlib.import_module("ray")
    except ImportError as cause:
        raise EngineError(
            "The engine ray needs the package ray, which is not installed; run pip install 'headwise[ray]', or leave "
            "--engine out to run in this process."
        ) from cause


class RayConnection:
    """A Ray that this process has joined."""

    def __init__(self, ray: Any, own: bool) -> None:
        self.ray, self.own = ray, own
        self._client = bool(ray.util.client.ray.is_connected())
        context = ray.get_runtime_context()
        mine: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == context.get_node_id()), {})
        self._raylet = (mine.get("NodeManagerAddress", ""), int(mine.get("NodeManagerPort", 0)))
        host, _, port = ("", "", "0") if self._client else str(context.gcs_address).rpartition(":")
        self._head = (host.strip("[]"), int(port))
        self._checked = self._reached = time.monotonic()

    def check(self) -> None:
        """EngineError if Ray is gone; checks at most once per second."""
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        if self._client:
            try:
                self.ray.nodes()
            except Exception as cause:  # the Ray client raises many classes
                raise EngineError(self._death(_first_line(cause))) from cause
            return
        self.check_raylet()
        if _reachable(*self._head):
            self._reached = now
        elif now - self._reached > (MAX_SILENCE if self.own else MAX_SILENCE_CLUSTER):
            raise EngineError(self._death(f"its head at {':'.join(map(str, self._head))} does not answer"))

    def check_raylet(self) -> None:
        """EngineError if the raylet of this machine is dead; called before each fetch, which would end this process."""
        if not self._client and not _reachable(*self._raylet):
            raise EngineError(self._death("its raylet on this machine is dead"))

    def _death(self, why: str) -> str:
        whose = "Ray, which this run had started," if self.own else "The Ray cluster"
        return f"{whose} died ({why}); what was committed is kept, and the same command goes on from there."


@contextlib.contextmanager
def connect(address: str | None = None, *, cpus: int | None = None) -> Iterator[RayConnection]:
    """Start or join Ray during the block; `cpus`: how many our own offers (None: all of this machine)."""
    ray = import_ray()
    if ray.is_initialized():
        yield RayConnection(ray, own=False)
        return
    address = address or os.environ.get("RAY_ADDRESS")
    with contextlib.ExitStack() as stack:
        if address in (None, "local"):
            stack.enter_context(_started(ray, cpus))
        else:
            _join(ray, str(address))
        stack.callback(_shut_down, ray)
        stack.enter_context(_daemon_output_to_log())
        yield RayConnection(ray, own=address in (None, "local"))


@contextlib.contextmanager
def _started(ray: Any, cpus: int | None) -> Iterator[None]:
    """Our own Ray; retried, because on a busy machine a start may exceed Ray's own time limit."""
    for attempt in range(MAX_STARTS):
        folder = _new_folder()
        try:
            _start(ray, folder, cpus)
            break
        except (OSError, RuntimeError, ValueError) as cause:
            _clean_up(folder)
            if attempt + 1 == MAX_STARTS:
                raise EngineError(
                    f"Ray could not be started on this machine ({_first_line(cause)}); look for what is in the way, join a Ray "
                    "that runs with --address auto, or leave --engine out."
                ) from cause
    try:
        yield
    finally:
        _clean_up(folder)


def _start(ray: Any, folder: str, cpus: int | None) -> None:
    variables = {name: value for name, value in OWN_ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(variables)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            ray.init(
                address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                object_store_memory=OBJECT_STORE_BYTES, _temp_dir=folder, namespace="headwise", num_cpus=cpus,
            )  # fmt: skip
    finally:
        for name in variables:
            del os.environ[name]


def _join(ray: Any, address: str) -> None:
    plain = re.fullmatch(r"([^/]+):(\d+)", address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if plain and not _reachable(plain[1], int(plain[2])):
                raise ConnectionError("nothing listens there")  # Ray itself would wait for minutes
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="headwise")
        except (OSError, RuntimeError, ValueError) as cause:
            if "InvalidAuthToken" in _with_causes(cause):
                raise EngineError(
                    f"The Ray at {address!r} requires a token; set RAY_AUTH_MODE=token and give the token as Ray's page on "
                    "token authentication describes, or ask the administrator of the cluster."
                ) from cause
            raise EngineError(
                f"There is no Ray that can be joined at {address!r} ({_first_line(cause)}); start one with `ray start --head`, "
                "give the address that it prints, or leave --address out to start one here."
            ) from cause


def _shut_down(ray: Any) -> None:
    """Disconnect; of our own Ray, wait until its processes have ended, which Ray itself does not."""
    node = getattr(importlib.import_module("ray._private.worker"), "_global_node", None)
    started = [one.process for kind in getattr(node, "all_processes", {}).values() for one in kind]
    ray.shutdown()
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_SECONDS)


def _with_causes(error: BaseException) -> str:
    """The text of an error and of those that caused it."""
    before = error.__cause__ or error.__context__
    return str(error) + ("" if before is None else f"\n{_with_causes(before)}")


def _first_line(error: BaseException) -> str:
    """The first line that is not blank."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:200]


def _reachable(host: str, port: int) -> bool:
    """Whether the port accepts connections; a timeout counts as yes, since the machine may be busy."""
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except TimeoutError:
        return True
    except OSError:
        return False


def _new_folder() -> str:
    """A new folder for the sockets and logs of our own Ray; those of killed runs are cleaned up."""
    where = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < MAX_PATH else "/tmp")
    ours = f"{FOLDER}{_machine()}-"  # the folder may be shared with other machines or containers
    for old in where.glob(f"{ours}*"):
        if not Path("/proc", old.name.removeprefix(ours).partition("-")[0]).exists():
            _clean_up(str(old))
    return tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=where)


def _machine() -> str:
    """A short name of this machine or container, in which process ids are unique."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}{os.stat('/proc/self/ns/pid').st_ino}"[-16:]
    return socket.gethostname()[-16:]


def _clean_up(folder: str) -> None:
    """Kill the processes that still run in the folder, and delete it."""
    for process in Path("/proc").glob("[0-9]*"):
        if _runs_in(folder, process):
            with contextlib.suppress(OSError):
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _runs_in(folder: str, process: Path) -> bool:
    """Whether a process (a folder of /proc) was started in the folder, or writes its log there."""
    with contextlib.suppress(OSError):
        if folder.encode() in (process / "cmdline").read_bytes():
            return True
        return os.readlink(process / "fd" / "1").startswith(folder)
    return False


@contextlib.contextmanager
def _daemon_output_to_log() -> Iterator[None]:
    """Send the output of Ray's daemons to the log; Ray would print it on standard output."""
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


def connected_cluster() -> Cluster:
    """The living nodes of the Ray that this process has joined."""
    return Cluster(tuple(parse_nodes(import_ray().nodes())))


def parse_nodes(rows: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Nodes from Ray's own description; dead ones are left out."""
    nodes = []
    for row in rows:
        if not row.get("Alive"):
            continue
        resources = row.get("Resources", {})
        kind = next((name.removeprefix(ACCELERATOR) for name in resources if name.startswith(ACCELERATOR)), "")
        name = row.get("NodeManagerHostname") or row.get("NodeName") or row.get("NodeID", "")
        size = (resources.get("CPU", 0), resources.get("GPU", 0), int(resources.get("memory", 0)))
        nodes.append(Node(str(name), *size, gpu_kind=kind, id=str(row.get("NodeID", ""))))
    return sorted(nodes, key=lambda node: node.name)


def with_gpu_memory(cluster: Cluster, seconds: float = 60) -> Cluster:
    """The cluster with the memory of each node's GPUs, by a short task on each; None if a node's GPUs are all busy."""
    ray = import_ray()
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    task = ray.remote(num_gpus=1, num_cpus=0, max_calls=1)(_gpu_memory)
    sent = {}
    for node in cluster.nodes:
        if node.gpus >= 1:
            strategy = strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
            sent[task.options(scheduling_strategy=strategy).remote()] = node.id
    ready, late = ray.wait(list(sent), num_returns=len(sent), timeout=seconds) if sent else ([], [])
    for reference in late:
        ray.cancel(reference)
    found = {sent[reference]: ray.get(reference) for reference in ready}
    return replace(cluster, nodes=tuple(replace(node, gpu_memory=found.get(node.id)) for node in cluster.nodes))


def _gpu_memory() -> int:
    """On a node: the bytes of the assigned GPU."""
    torch = importlib.import_module("torch")
    return int(torch.cuda.get_device_properties(0).total_memory)
