"""`headwise check`: verify that the attention of a model is read correctly, or that an atlas finds the heads known for it."""

from __future__ import annotations

import json
from typing import Annotated, Any

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
from headwise.core.errors import DataError


def check(
    model: ModelArgument = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    device_map: DeviceMapOption = None,
    offload: OffloadOption = None,
    memory: MemoryOption = None,
    revision: RevisionOption = None,
    adapter: AdapterOption = None,
    known: Annotated[
        str | None,
        typer.Option(
            "--known",
            metavar="NAME",
            help="Compare an atlas, given in place of the model, with published lists of heads: gpt2, "
            "llama-3.1-8b-instruct, or a JSON file of your own.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that Headwise reads every layer's attention correctly, by comparison with transformers' eager attention.

    Layers that it cannot read are listed with the reason. With --known: does an atlas find the heads that were published
    for its model? Precision among the highest heads, AUROC and rank correlation, against heads permuted within layers.

    The exit code is 0 if every check passes, and 1 otherwise.
    """
    if known is not None:
        _compare_known(model, known, as_json=as_json)
        return
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


def _compare_known(atlas: str | None, known: str, *, as_json: bool) -> None:
    if atlas is None:
        raise DataError("--known compares an atlas; give its folder: headwise check ATLAS --known NAME")
    from headwise.analysis.known_heads import compare_known, known_heads
    from headwise.atlas import Atlas

    report = compare_known(Atlas.open(atlas), known_heads(known))
    echo(json.dumps(report.to_dict()) if as_json else report.text())


check.examples = examples(  # type: ignore[attr-defined]
    ("headwise check", "the default model"),
    "headwise check ./my-model --dtype bfloat16 --json",
    ("headwise check ./my-model --adapter ./my-adapter", "a model with a PEFT adapter"),
    (
        "headwise check ./llama-70b --device-map auto --memory cpu=20GiB",
        "a model larger than memory: the rest stays on disk",
    ),
    ("headwise check gpt2-atlas --known gpt2", "does the atlas find the published heads?"),
)
