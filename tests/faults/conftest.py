"""One process that forks builds, and one scene, for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.experiment import Experiment
from faults.zygote import Zygote


@pytest.fixture(scope="session")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    if not hasattr(os, "fork") or not Path("/proc/self/fd").is_dir():
        pytest.skip("needs fork and /proc")
    folder = tmp_path_factory.mktemp("faults")
    with Zygote(folder) as zygote:
        yield Experiment(folder, zygote)
