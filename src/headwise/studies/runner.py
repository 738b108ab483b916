"""What to build (`BuildSpec`: a model by name, data, options), and the process that builds it (`StudyRunner`).

A `BuildSpec` is plain data, so it can be opened anywhere: in this process, or on a machine of a cluster. Opening it loads the
model (or leaves it on disk, if only weights are read) and gives a `StudyRunner`, which prepares one study at a time, measures
its shards and finalizes. This is all that the engines know about studies (`engines.engine`).

Cost: the model, once per process.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import xarray as xr
from threadpoolctl import threadpool_info, threadpool_limits

from headwise.core.errors import EngineError, ModelError
from headwise.corpora import Endpoint
from headwise.engines import Shard, StudyJob, StudyResult, ThreadCounts
from headwise.model import Model, StoredModel, check_finite, load, open_stored
from headwise.seam import HeadWeights
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import join_runs
from headwise.studies.registry import studies as all_studies
from headwise.studies.run import StudyRun

__all__ = ["BuildSpec", "StudyRunner", "model_for"]

CARRIED = (
    "HF_",
    "HUGGINGFACE_",
    "TRANSFORMERS_",
    "HEADWISE_",
    "AWS_",
    "GOOGLE_",
    "AZURE_",
)  # where models and atlases are
SPREADING = ("device_map", "offload_folder", "max_memory")  # of a model that runs; one that stays on disk needs none
PLACED = ("device", "device_map", "max_memory")  # any of these says where the model goes


@dataclass(frozen=True)
class BuildSpec:
    """What to build."""

    model: Any  # what `load` takes or gave
    studies: tuple[str, ...]
    inputs: StudyInputs = field(default_factory=StudyInputs)
    options: Mapping[str, Any] = field(default_factory=dict)  # by study
    loading: Mapping[str, Any] = field(default_factory=dict)  # what `load` takes in addition to the model
    worker_env: WorkerEnv | None = None  # of a worker on a cluster
    quick: bool = False  # marks everything that is measured as that of a quick build

    def open(self) -> StudyRunner:
        """Load the model that these studies need."""
        if self.worker_env is not None:
            self.worker_env.apply()
        loaded = self.model
        if not isinstance(loaded, Model | StoredModel):
            loaded = model_for(self.studies, self.model, **self.loading)
        if isinstance(loaded, Model):
            check_finite(loaded.hf)
        return StudyRunner(self, loaded)

    @property
    def on_cpu(self) -> bool:
        """Whether the model was requested on the CPU."""
        return str(self.loading.get("device") or "").startswith("cpu")

    @property
    def threads(self) -> ThreadCounts:
        """As many as this process has, unless a worker was given another number."""
        if self.worker_env is not None:
            return self.worker_env.threads
        torches = torch.get_num_threads()
        blas = (one["num_threads"] for one in threadpool_info() if one.get("user_api") == "blas")
        return ThreadCounts(torches, max(blas, default=torches))

    @property
    def environment(self) -> dict[str, str]:
        """Variables that loading and generation depend on, including the API keys of endpoints among the options."""
        keys = {
            value.key_variable
            for chosen in self.options.values()
            for value in vars(chosen).values()
            if isinstance(value, Endpoint)
        }
        return {name: text for name, text in os.environ.items() if name.startswith(CARRIED) or name in keys}

    def for_workers(self, gpus: float | None, threads: int | None) -> BuildSpec:
        """The same for other processes: names and data only, with the model placed on so many GPUs."""
        for what, given in (("model", self.model), ("model to compare with (reference)", self.inputs.reference)):
            if given is not None and not isinstance(given, str | Path):
                raise EngineError(
                    f"Workers load the {what} themselves, and a {type(given).__name__} in the memory of this process "
                    "cannot be sent to them; give its name or folder (with loading={...} for dtype and the like), or save "
                    "it with save_pretrained and give that folder."
                )
        loading = dict(self.loading)
        if gpus is not None and all(loading.get(name) is None for name in PLACED):
            loading |= {"device_map": "auto"} if gpus > 1 else {"device": "cpu"} if gpus == 0 else {}
        counts = self.threads if threads is None else ThreadCounts(threads, threads)
        names = [self.model, self.inputs.reference, loading.get("adapter")]
        local = tuple(str(name) for name in names if name is not None and Path(name).expanduser().exists())
        env = WorkerEnv(os.getcwd(), local, counts)
        return replace(self, inputs=self.inputs.with_files_read(), loading=loading, worker_env=env)


@dataclass(frozen=True)
class WorkerEnv:
    """The parts of the driver's environment that a worker reproduces."""

    folder: str  # the driver's working directory, which relative names refer to
    local: tuple[str, ...]  # names that are files or folders on the driver's machine
    threads: ThreadCounts

    def apply(self) -> None:
        """Change to the driver's directory and set the threads; ModelError if a file is not on this machine."""
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        for name in self.local:
            if not Path(name).expanduser().exists():
                raise ModelError(
                    f"{name} is a folder where the build was started, and is not on the machine {platform.node()} of "
                    f"the cluster (looked for from {os.getcwd()}); put it on a disk that all nodes see, or give a hub name."
                )
        torch.set_num_threads(self.threads.torch)
        threadpool_limits(self.threads.blas, user_api="blas")


class StudyRunner:
    """A loaded model with one study prepared on it."""

    def __init__(self, spec: BuildSpec, model: Model | StoredModel) -> None:
        self._spec, self._model = spec, model
        self._work: StudyRun | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the model runs on a GPU."""
        return isinstance(self._model, Model) and self._model.device.type == "cuda"

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Prepare a study, or several that share their forward passes; what was prepared before is released."""
        self._work = None

        def prepared(study: str, maps: Mapping[str, xr.Dataset]) -> StudyRun:
            given = replace(self._spec.inputs, maps={**inputs, **maps})
            run: StudyRun = all_studies()[study].load_prepare()(self._model, given, self._spec.options.get(study))
            return self._marked(run)

        run = prepared(studies[0], {}) if len(studies) == 1 else self._marked(join_runs(studies, prepared))
        self._work = run
        parts = {name: part.provenance for name, part in run.parts.items()}
        return StudyJob(run.provenance.study, run.provenance, run.examples, run.shard_size, parts)

    def _marked(self, run: StudyRun) -> StudyRun:
        """The same, with the mark of a quick build where this is one."""
        return replace(run, provenance=run.provenance.of_quick_build()) if self._spec.quick else run

    def measure(self, shard: Shard) -> xr.Dataset:
        """Measure the examples of one shard."""
        return self._ready().measure(shard)

    def finalize(self, parts: Sequence[xr.Dataset]) -> StudyResult:
        """Reduce all shards to the study's maps and artifacts."""
        work = self._ready()
        datasets = work.finalize(parts)
        if work.write_artifacts is None:
            return StudyResult(datasets, {})
        with tempfile.TemporaryDirectory() as folder:
            work.write_artifacts(Path(folder), datasets, parts)
            left = [path for path in Path(folder).rglob("*") if path.is_file()]
            files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(left)}
        return StudyResult(datasets, files)

    def _ready(self) -> StudyRun:
        assert self._work is not None  # engines prepare before they measure
        return self._work


def model_for(studies: Sequence[str] | None, model: Any = None, **loading: Any) -> Model | StoredModel:
    """The model that these studies need: loaded; or left on disk, where all of them read nothing but weights.

    What cannot be read from disk (packed weights, no safetensors, an adapter) is loaded after all. ``loading``: what
    `load` takes in addition to the model.
    """
    only_weights = bool(studies) and all(all_studies()[name].weights_only for name in studies or ())
    explicit = {name: value for name, value in loading.items() if value not in (None, "auto", False)}
    explicit = {name: value for name, value in explicit.items() if not only_weights or name not in SPREADING}
    on_disk = set(explicit) <= {"device", "revision", "trust_remote_code"}
    if only_weights and on_disk and (model is None or isinstance(model, str | Path)):
        try:
            stored = open_stored(model, **explicit)
            HeadWeights(stored).check()
            return stored
        except ModelError:
            pass
    return load(model, **loading)
