"""`headwise plan`: the cost of a build, estimated without loading the model. `headwise studies`: what there is to build."""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from typing import TYPE_CHECKING, Annotated, Any

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
from headwise.cli.settings import is_object, kind_of, refuse_unknown, set_with, typed
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.studies.registry import default_studies, producers, with_dependencies
from headwise.studies.registry import studies as all_studies
from headwise.studies.spec import StudySpec

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
        echo(json.dumps(result.to_dict()))
    else:
        echo(f"{card.describe()}\n\nIn {result.dtype} on {result.device}:")
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
        echo(f"  {kind:<7} {name:<24} {value:>9}   {about}".rstrip())
    echo(result.verdict())


plan.examples = examples(  # type: ignore[attr-defined]
    ("headwise plan", "the default model, all studies"),
    "headwise plan ./my-model --dtype bfloat16 --json",
    ("headwise plan --studies spectral --limit 2000", "one study and the studies it depends on"),
    ("headwise plan ./llama-70b --engine ray --address auto", "how many workers fit on a cluster"),
)


def studies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            help="A study, whose options and defaults are printed. Default: all studies, without options.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List all studies, including those of installed packages; with STUDY, the options of one study.

    Set an option with headwise build --set STUDY.OPTION=VALUE.
    """
    chosen = all_studies().values() if name is None else [all_studies()[one] for one in producers([name])]
    rows = [_facts(spec) for spec in chosen]
    if as_json:
        echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        note = f" (only with --studies {row['name']})" if row["opt_in"] else ""
        echo(f"{row['name']:<20} {row['question']}{note}")
        if name is not None:
            _print_details(row)


def _facts(spec: StudySpec) -> dict[str, Any]:
    hints = typing.get_type_hints(spec.options)
    options = [
        {
            "name": one.name,
            "type": kind_of(hints[one.name]),
            "default": one.default,
            "help": one.metadata["help"],
            "set_with": set_with(one) if is_object(hints[one.name]) else f"--set {spec.name}.{one.name}=VALUE",
        }
        for one in dataclasses.fields(spec.options)
    ]
    return {
        "name": spec.name,
        "question": spec.dataset.question,
        "produces": [one.name for one in spec.produces],
        "depends_on": list(spec.depends_on),
        "opt_in": spec.opt_in,
        "source": spec.dataset.method.source,
        "options": options,
    }


def _print_details(row: dict[str, Any]) -> None:
    for key, what in (("produces", "Produces"), ("depends_on", "Depends on")):
        if row[key]:
            echo(f"{what}: {', '.join(row[key])}")
    if row["source"]:
        echo(f"Method: {row['source']}")
    for one in row["options"]:
        written = one["set_with"].replace("=VALUE", f"=<{one['type']}>")
        meaning = one["help"].replace("None:", "none:")  # as it is typed here
        echo(f"\n  {written}  (default: {typed(one['default'])})\n      {meaning}")


studies.examples = examples(  # type: ignore[attr-defined]
    ("headwise studies", "all studies, with the question each answers"),
    ("headwise studies spectral", "its options, their defaults and what they mean"),
)
