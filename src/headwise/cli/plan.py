"""`headwise plan`: the cost of a build, estimated without loading the model."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import typer

from headwise.cli.options import (
    AddressOption,
    DataOption,
    DeviceOption,
    DtypeOption,
    EngineOption,
    GpusOption,
    JsonOption,
    LimitOption,
    ModelArgument,
    QuestionsOption,
    RevisionOption,
    StepsOption,
    StudiesOption,
    ThreadsOption,
    WorkersOption,
    at_most,
    refuse_without_ray,
    split,
)
from headwise.cli.preflight import refuse_ignored_options, refuse_missing_file
from headwise.cli.settings import refuse_unknown
from headwise.cli.usage import examples
from headwise.studies.registry import default_studies, with_dependencies

if TYPE_CHECKING:
    from headwise.engines.cluster import Cluster
    from headwise.studies.planning import Plan


def plan(
    model: ModelArgument = None,
    studies: StudiesOption = None,
    data: DataOption = None,
    questions: QuestionsOption = None,
    limit: LimitOption = None,
    steps: StepsOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    revision: RevisionOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = None,
    threads_per_worker: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the memory, disk space and time of a build from the model's config, and suggest options if it does not fit.

    With --engine ray, also the number of workers that fit on the cluster (or this machine). The exit code is 1 if the memory
    does not suffice.
    """
    refuse_unknown(split(studies) or [])
    given: dict[str, Any] = {"--data": data, "--questions": questions, "--limit": limit, "--steps": steps}
    refuse_ignored_options(split(studies), given)
    for option, path in (("--data", data), ("--steps", steps)):
        refuse_missing_file(option, path)
    per_worker: dict[str, Any] = {"workers": workers, "gpus": gpus_per_worker, "threads": threads_per_worker}
    ray_options = {"--address": address, "--workers": workers, "--gpus-per-worker": gpus_per_worker}
    refuse_without_ray(engine, {**ray_options, "--threads-per-worker": threads_per_worker})
    import torch

    from headwise.model import DEFAULT, choose_device, choose_dtype, read_card
    from headwise.studies.inputs import StudyInputs
    from headwise.studies.planning import estimate, planned_inputs

    inputs = StudyInputs(data, questions, at_most(limit), steps_source=steps)
    names = with_dependencies(split(studies) or default_studies())
    sizes = planned_inputs(
        inputs, reference=True
    )  # read first: a fault in a file is reported before the model is looked up
    card = read_card(model, revision=revision)
    cluster = _cluster(address) if engine == "ray" else None
    on_cluster = cluster is not None and cluster.gpus >= 1 and device is None and gpus_per_worker != 0
    where = torch.device("cuda") if on_cluster else choose_device(device)
    sizes = sizes._replace(
        reference=card.id == DEFAULT
    )  # only the default model has a packaged sparse adapter to compare with
    wanted = choose_dtype(dtype, card.config, where)
    per_worker |= {"gpus": gpus_per_worker if on_cluster or gpus_per_worker is not None else 0}
    more: dict[str, Any] = {} if cluster is None else {"cluster": cluster, **per_worker}
    result = estimate(card, sizes, names, dtype=wanted, device=where, **more)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    else:
        typer.echo(f"{card.describe()}\n\nIn {result.dtype} on {result.device}:")
        _print(result)
    if not result.fits:
        raise typer.Exit(1)


def _cluster(address: str | None) -> Cluster:
    """The machines that would measure: this one, or those of a running Ray cluster."""
    from headwise.engines.cluster import local_cluster

    if address is None and not os.environ.get("RAY_ADDRESS"):
        return local_cluster()
    from headwise.engines.ray.connection import connect, connected_cluster, with_gpu_memory

    with connect(address):
        return with_gpu_memory(connected_cluster())


def _print(result: Plan) -> None:
    for kind, name, value, about in result.rows():
        typer.echo(f"  {kind:<7} {name:<24} {value:>9}   {about}".rstrip())
    typer.echo(result.verdict())


plan.examples = examples(  # type: ignore[attr-defined]
    ("headwise plan", "the default model, all studies"),
    "headwise plan ./my-model --dtype bfloat16 --json",
    ("headwise plan --studies spectral --limit 2000", "one study and the studies it depends on"),
    ("headwise plan ./llama-70b --engine ray --address auto", "how many workers fit on a cluster"),
)
