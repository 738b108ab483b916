"""Options that say who does the work: this process, or the workers of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwise.core.errors import EngineError, did_you_mean

if TYPE_CHECKING:
    from headwise.engines import Engine

__all__ = [
    "AddressOption",
    "EngineOption",
    "GpusOption",
    "ThreadsOption",
    "WorkersOption",
    "engine_for",
    "refuse_without_ray",
]

PANEL = "Who does the work"
ENGINES = ("local", "ray")

EngineOption = Annotated[
    str,
    typer.Option("--engine", help="local: this process. ray: workers that each load the model.", rich_help_panel=PANEL),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="A Ray that runs: auto, HOST:6379, or ray://HOST:10001. Default: this machine alone.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="At most so many workers. Default: as many as there is room for.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        help="2 and more spread a large model over several GPUs, 0.5 lets two workers share one. Default: build takes 1 "
        "where there are any, plan as few as hold the model.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads-per-worker",
        help="How many threads a worker computes with. Default: as many as this process would, so that the last digits "
        "are the same.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]


def refuse_without_ray(engine: str, given: dict[str, object]) -> None:
    """An engine that is not there, or options of Ray's without it; asked before anything heavy is loaded."""
    if engine not in ENGINES:
        raise EngineError(f"There is no engine {engine!r}. {did_you_mean(engine, ENGINES)}")
    named = [option for option, value in given.items() if value is not None]
    if engine == "local" and named:
        raise EngineError(f"{named[0]} is for workers, and --engine local has none; add --engine ray, or leave it out.")


def engine_for(
    engine: str,
    *,
    address: str | None = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    threads_per_worker: int | None = None,
) -> Engine:
    """The engine that was asked for."""
    from headwise.engines import LocalEngine, RayEngine
    from headwise.engines.ray.connection import import_ray

    if engine == "local":
        return LocalEngine()
    import_ray()  # a missing package is reported now
    return RayEngine(address, workers, gpus_per_worker, threads_per_worker)
