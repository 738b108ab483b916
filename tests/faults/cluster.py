"""A build on Ray, found among the processes of this machine, so that some of them can be killed.

The driver is a build like any other (`zygote`); Ray's head (`gcs_server`) and its node (`raylet`) are its children, and the
workers are the node's.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from faults.experiment import STUDIES, Experiment
from faults.zygote import Run

ON_RAY = ("--engine", "ray", "--workers", "2", "--threads-per-worker", "1")
NAMES = {"worker": "ray::RayWorker", "node": "raylet", "head": "gcs_server"}
PATIENCE = 240.0  # seconds
PLANTED = Path(__file__).with_name("planted")


def start(experiment: Experiment, atlas: Path, studies: str = STUDIES, *, fault: dict[str, Any] | None = None) -> Run:
    """Begin a build on two workers; a fault is put into every one of them."""
    path = os.pathsep.join([str(PLANTED), str(PLANTED.parents[1]), *(entry for entry in sys.path if entry)])
    planted = {} if fault is None else {"HEADWISE_FAULT": json.dumps(fault), "PYTHONPATH": path}
    return experiment.zygote.start(experiment.scene.arguments(atlas, studies, *ON_RAY), atlas, environment=planted)


def wait_for(run: Run, what: Callable[[], object]) -> bool:
    """Until it is so, or the build has ended; whether it is so and the build goes on."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and lives(run.pid):
        if what():
            return True
        time.sleep(0.005)
    return False


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def processes(run: Run, what: str) -> list[psutil.Process]:
    """The workers, the node or the head of this build's Ray."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(run.pid).children(recursive=True)
        return [one for one in family if _called(one, NAMES[what])]
    return []


def _called(process: psutil.Process, name: str) -> bool:
    try:
        return name in process.name() or name in " ".join(process.cmdline()[:1])
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def kill(run: Run, what: str, which: int = 0) -> bool:
    """kill -9 of one of them; whether there was one."""
    found = processes(run, what)
    if found:
        with contextlib.suppress(psutil.NoSuchProcess):
            found[which % len(found)].kill()
    return bool(found)
