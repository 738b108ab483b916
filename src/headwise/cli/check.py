"""`headwise check`: verify that the attention of a model is read correctly."""

from __future__ import annotations

import json
from typing import Any

import typer

from headwise.cli.options import (
    AdapterOption,
    DeviceMapOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    MemoryOption,
    ModelArgument,
    OffloadOption,
    RevisionOption,
    refuse_unused_offload,
)
from headwise.cli.preflight import refuse_missing_model
from headwise.cli.terminal import echo
from headwise.cli.usage import examples


def check(
    model: ModelArgument = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    device_map: DeviceMapOption = None,
    offload: OffloadOption = None,
    memory: MemoryOption = None,
    revision: RevisionOption = None,
    adapter: AdapterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that Headwise reads every layer's attention correctly, by comparison with transformers' eager attention.

    Layers that it cannot read are listed with the reason.

    The exit code is 0 if every check passes, and 1 otherwise.
    """
    refuse_unused_offload(offload, device_map, memory)
    refuse_missing_model("--adapter", adapter, ("adapter_config.json",))
    from headwise.model import load
    from headwise.seam import check as run_checks

    placement: dict[str, Any] = {"device_map": device_map, "offload_folder": offload, "max_memory": memory}
    report = run_checks(load(model, dtype=dtype, device=device, **placement, revision=revision, adapter=adapter))
    if as_json:
        echo(json.dumps(report.to_dict()))
    else:
        echo(f"{report.model}: {'ok' if report.passed else 'NOT OK'}")
        for one in report.checks:
            number = "" if one.error is None else f"  error {one.error:.1e} (limit {one.limit:.0e})"
            echo(f"  {'ok ' if one.passed else 'NOT'} {one.name:<11} {one.message}{number}")
        for layer, reason in report.refused.items():
            echo(f"  --- layer {layer}: {reason}")
    if not report.passed:
        raise typer.Exit(1)


check.examples = examples(  # type: ignore[attr-defined]
    ("headwise check", "the default model"),
    "headwise check ./my-model --dtype bfloat16 --json",
    ("headwise check ./my-model --adapter ./my-adapter", "a model with a PEFT adapter"),
    (
        "headwise check ./llama-70b --device-map auto --memory cpu=20GiB",
        "a model larger than memory: the rest stays on disk",
    ),
)
