"""A spec without a model, for engines: an example's numbers follow from its place, and faults are ordered by shard.

    ToySpec(folder, faults={3: ("die", 1)})      shard 3 kills the process that measures it, the first time

Every try is noted in a file of `folder`, so that a test sees what was done in which process, and how often. Fates: die
(SIGKILL), fail (an error nobody meant), refuse (an error for the user), hang. Places -1, -2, -3 stand for opening, preparing
and finalizing. Workers import this module by its name, so this folder must be in their PYTHONPATH (`on_the_path`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import xarray as xr

from headwise.atlas import Provenance
from headwise.core.errors import EngineError, StudyError
from headwise.engines import Shard, StudyJob, StudyResult, ThreadCounts

OPEN, PREPARE, FINALIZE = -1, -2, -3


def on_the_path() -> str:
    """PYTHONPATH as this process has it, with this folder and Headwise's in it."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src"), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, folders))


EXAMPLES, SIZE = 23, 4


@dataclass(frozen=True)
class ToySpec:
    folder: Path
    faults: Mapping[int, tuple[str, int]] = field(default_factory=dict)  # place -> what happens, how many times
    examples: int = EXAMPLES
    seconds: float = 0.0  # a shard takes
    together: int = 1  # shards wait until so many workers are there
    in_memory: bool = False  # as if it held a model that cannot be sent
    on_cpu: bool = False

    @property
    def threads(self) -> ThreadCounts:
        return ThreadCounts(1, 1)

    @property
    def environment(self) -> dict[str, str]:
        return {"TOY": "sent", **{name: value for name, value in os.environ.items() if name.startswith("AWS_")}}

    def for_workers(self, gpus: float | None, threads: int | None) -> ToySpec:
        if self.in_memory:
            raise EngineError("a toy in memory cannot be sent; give its name")
        return replace(self, on_cpu=gpus == 0)

    def open(self) -> ToyWorker:
        self.meet(OPEN)
        return ToyWorker(self)

    def meet(self, place: int) -> None:
        """Note that this is tried, and let happen what was ordered."""
        with open(self.folder / "tries", "ab", buffering=0) as file:
            file.write(f"{place} {os.getpid()}\n".encode())
        what, times = self.faults.get(place, ("", 0))
        if self.tries().count(place) > times:
            return
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            time.sleep(600)
        if what == "refuse":
            raise StudyError(f"place {place} is refused; choose another")
        if what == "fail":
            raise ZeroDivisionError(f"at place {place}")

    def tries(self) -> list[int]:
        """The places tried so far, in order."""
        path = self.folder / "tries"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


class ToyWorker:
    on_gpu = False

    def __init__(self, spec: ToySpec) -> None:
        self.spec = spec

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        self.spec.meet(PREPARE)
        data = {"digest": "d", "size": self.spec.examples}
        origin = Provenance("+".join(studies), 1, {"id": "toy", "digest": "m"}, data, {"needed": sorted(inputs)}, 0)
        return StudyJob(origin.study, origin, self.spec.examples, SIZE)

    def measure(self, shard: Shard) -> xr.Dataset:
        time.sleep(self.spec.seconds)
        end = time.monotonic() + 60
        while self.spec.tries().count(PREPARE) < self.spec.together and time.monotonic() < end:
            time.sleep(0.02)
        self.spec.meet(shard.index)
        examples = range(shard.start, shard.stop)
        numbers = np.stack([np.random.default_rng(example).random((3, 2), "float32") for example in examples])
        numbers[0, 0, 0] = np.nan
        return xr.Dataset(
            {"value": (("example", "layer", "head"), numbers)},
            coords={"example": [f"é{example}" for example in examples]},
            attrs={"environment": os.environ.get("TOY", "not sent")},
        )

    def finalize(self, parts: Sequence[xr.Dataset]) -> StudyResult:
        self.spec.meet(FINALIZE)
        whole = xr.concat(parts, dim="example", data_vars="all", combine_attrs="override")
        return StudyResult({"toy": whole}, {"kept/file.bin": whole["value"].values.tobytes()})
