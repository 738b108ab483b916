"""`headwise serve`: the explorer for one or more atlases, with a live page and OpenAI's API if a model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli.options import DeviceOption, DtypeOption, parse_rate
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError, HeadwiseError, did_you_mean
from headwise.core.provenance import public_name

if TYPE_CHECKING:
    from headwise.atlas import Atlas
    from headwise.model import Model
    from headwise.server import ApiModel
    from headwise.server.model_host import LiveModel

HOST, PORT = "127.0.0.1", 8000
FALSE_ALARMS = 0.1
API = "API"  # panel of the help


def serve(
    atlases: Annotated[list[Path], typer.Argument(metavar="ATLAS", help="Folders or URLs that headwise build wrote.")],
    model: Annotated[
        str | None,
        typer.Option("--model", help="Load this model for the live page (or for --api): a hub id or a folder."),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Load the model of the first atlas for the live page.")] = False,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; 0.0.0.0 makes it reachable from other machines.")
    ] = HOST,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            help="With --host: a name or address under which browsers reach this server; may be repeated.",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="The port; 0 chooses a free one.")] = PORT,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the pages in a browser.")] = False,
    api: Annotated[
        bool,
        typer.Option(
            "--api",
            help="Serve the model of the first atlas to OpenAI's clients, with a score for each token: /v1/chat/completions, "
            "/v1/completions, /v1/models; also /metrics and /health.",
            rich_help_panel=API,
        ),
    ] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="RATE",
            help=f"The share of correct answers that may raise an alarm: 10%, or 0.1. Default: {FALSE_ALARMS}.",
            rich_help_panel=API,
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            "--score",
            help="The score to watch: one of the atlas's study streaming, which names a default; without that study one "
            'that needs no fit, such as RAUQ or "Log-probability, min"; then there are no probabilities and no alarms.',
            rich_help_panel=API,
        ),
    ] = None,
    stop_at_alarm: Annotated[
        bool, typer.Option("--stop-at-alarm", help="An alarm ends the answer.", rich_help_panel=API)
    ] = False,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            help="A file with the key that requests must send; else HEADWISE_API_KEY of the environment. Needed with --host.",
            rich_help_panel=API,
        ),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option("--max-batch", min=1, help="Answers generated at once. Default: 8.", rich_help_panel=API),
    ] = None,
    max_queue: Annotated[
        int | None,
        typer.Option(
            "--max-queue",
            min=0,
            help="Answers that may wait; more are refused with status 429. Default: 32.",
            rich_help_panel=API,
        ),
    ] = None,
    max_prompt_tokens: Annotated[
        int | None,
        typer.Option("--max-prompt-tokens", min=1, help="Tokens of a prompt. Default: 4096.", rich_help_panel=API),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Tokens of an answer. Default: 1024.", rich_help_panel=API)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.1,
            help="Seconds that a request may take, its time in the queue included. Default: 300.",
            rich_help_panel=API,
        ),
    ] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
) -> None:
    """Explore atlases in a browser; with a model, enter a prompt and inspect every head on it.

    Pages are available at once; the live page and the API when the model is loaded. Ctrl-C stops the server. The API is a
    reference for one machine; for scale there is vLLM.
    """
    limits = {
        "prompt_tokens": max_prompt_tokens, "new_tokens": max_tokens, "batch": max_batch, "waiting": max_queue,
        "seconds": timeout,
    }  # fmt: skip
    alarm_rate = parse_rate("--at", at)
    if not api and (stop_at_alarm or any(value is not None for value in (at, score, api_key_file, *limits.values()))):
        raise DataError(
            "--at, --score, --stop-at-alarm, --api-key-file, --timeout and the --max options are for the API; add --api."
        )
    from headwise.server import ApiLimits, ApiSettings, bind_socket, create_app, is_loopback, read_api_key, run, url_of
    from headwise.server.guard import LOOPBACK

    hosts = tuple(name.lower() for name in allow_host or ()) + (LOOPBACK if is_loopback(host) else ())
    if not is_loopback(host) and host not in ("0.0.0.0", "::"):
        hosts = (*hosts, host.lower())
    if not hosts:
        raise DataError(
            f"--host {host} is every address of this machine, so a page of another site could reach the server under a name "
            "of its own; give the names that count with --allow-host, such as --allow-host mybox.local."
        )
    key = read_api_key(api_key_file) if api else None
    if api and key is None and not is_loopback(host):
        raise DataError(
            f"--api with --host {host} lets other machines run the model, so it needs a key: give --api-key-file FILE, or set "
            "HEADWISE_API_KEY; make one with openssl rand -hex 32."
        )
    socket = bind_socket(host, port)
    try:
        live = live or (model is not None and not api)
        model = model or (_model_of(atlases[0]) if live or api else None)
        open_session = settings = None
        if model is not None:
            name, load = public_name(model), cache(partial(_load, model, dtype, device))  # one model for both
            open_session = partial(_session, load) if live else None
            if api:
                given = {what: value for what, value in limits.items() if value is not None}
                open_model = partial(
                    _api_model, load, *_watched(atlases[0], score, alarm_rate), stop_at_alarm=stop_at_alarm
                )
                settings = ApiSettings(name, open_model, key, ApiLimits(**given))  # type: ignore[arg-type]
        app = create_app(atlases, open_session=open_session, hosts=hosts, api=settings)
        if not is_loopback(host):
            echo(
                f"headwise: anyone who can reach {host} can read these atlases"
                f"{' and run the model' if live else ''}; there is no password{' but for the API' if api else ''}.",
                colour="yellow",
                err=True,
            )
        where = url_of(socket)
        about = f"   (OpenAI's API at {where}v1; Ctrl-C stops)" if api else "   (Ctrl-C stops)"
        run(app, socket, open_browser=open_browser, on_start=lambda: echo(where + about))
    finally:
        socket.close()


def _model_of(atlas: Path) -> str:
    """The id of the model of an atlas."""
    from headwise.atlas import Atlas
    from headwise.core.errors import AtlasError

    opened = Atlas.open(atlas)
    if not opened.studies:
        raise AtlasError(f"{opened.location} is empty and names no model; give one with --model.")
    return str(opened.provenance(opened.studies[0]).model["id"])


def _load(model: str, dtype: str, device: str | None) -> Model:
    """The model under its public name."""
    from headwise.model import load

    name = public_name(model)
    try:
        loaded = load(model, dtype=dtype, device=device)
    except HeadwiseError as error:  # shown on the page, which may not tell where the model is
        raise type(error)(str(error).replace(model, name)) from error
    return replace(loaded, id=name, card=replace(loaded.card, id=name))


def _session(load: Callable[[], Model]) -> LiveModel:
    from headwise.live import LiveSession

    return LiveSession(load())


def _watched(atlas: Path, score: str | None, at: float | None) -> tuple[str | Atlas, dict[str, Any]]:
    """What `watch` is given, checked before the model is loaded: the atlas, or a score that needs none."""
    from headwise.atlas import Atlas
    from headwise.watching import known_scores, watchable

    opened = Atlas.open(atlas)
    if score is not None and "streaming" not in opened.studies:
        if at is not None:
            raise DataError(
                f"--at needs answers to calibrate a threshold on, and {opened.location} has no study streaming; omit --at, or "
                f"build the study with headwise build --studies streaming -o {opened.location}"
            )
        return watchable(score).name, {}
    known = known_scores(opened)
    if score is not None and score not in known:
        raise DataError(f"The atlas has no score {score!r} that can be watched. {did_you_mean(score, known)}")
    return opened, {"score": score, "at": FALSE_ALARMS if at is None else at}


def _api_model(
    load: Callable[[], Model], watched: str | Atlas, options: dict[str, Any], *, stop_at_alarm: bool
) -> ApiModel:
    from headwise.server import ApiModel
    from headwise.watching import Prompt, watch

    model = load()
    watching = watch(model, watched, action="stop" if stop_at_alarm else "flag", **options)
    about = {"score": watching.watched.name, "threshold": watching.threshold, "note": watching.note}
    return ApiModel(model.id, model, watching, Prompt, about)


serve.examples = examples(  # type: ignore[attr-defined]
    "headwise serve atlas --open",
    ("headwise serve atlas --live", "with a live page for the model of the atlas"),
    ("headwise serve atlas --api", 'with OpenAI\'s API: openai.OpenAI(base_url="http://127.0.0.1:8000/v1", ...)'),
    "headwise serve atlas --api --at 0.05 --max-batch 16 --api-key-file key.txt",
    "headwise serve dense-atlas sparse-atlas --port 8080",
)
