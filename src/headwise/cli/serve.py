"""`headwise serve`: the explorer for one or more atlases, with a live page if a model is loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.options import DeviceOption, DtypeOption
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError, HeadwiseError
from headwise.core.provenance import public_name

if TYPE_CHECKING:
    from headwise.server.model_host import LiveModel

HOST, PORT = "127.0.0.1", 8000


def serve(
    atlases: Annotated[list[Path], typer.Argument(metavar="ATLAS", help="Folders or URLs that headwise build wrote.")],
    model: Annotated[
        str | None,
        typer.Option("--model", help="Load this model for the live page: a hub id or a folder.", show_default=False),
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
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="The port; 0 chooses a free one.")] = PORT,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the pages in a browser.")] = False,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
) -> None:
    """Explore atlases in a browser; with a model, enter a prompt and inspect every head on it.

    Pages are available at once; the live page shows when the model is loaded. Ctrl-C stops the server.
    """
    from headwise.server import bind_socket, create_app, is_loopback, run, url_of
    from headwise.server.guard import LOOPBACK

    hosts = tuple(name.lower() for name in allow_host or ()) + (LOOPBACK if is_loopback(host) else ())
    if not is_loopback(host) and host not in ("0.0.0.0", "::"):
        hosts = (*hosts, host.lower())
    if not hosts:
        raise DataError(
            f"--host {host} is every address of this machine, so a page of another site could reach the server under a name "
            "of its own; give the names that count with --allow-host, such as --allow-host mybox.local."
        )
    socket = bind_socket(host, port)
    try:
        model = model or (_model_of(atlases[0]) if live else None)
        opener = None if model is None else partial(_session, model, dtype, device)
        app = create_app(atlases, open_session=opener, hosts=hosts)
        if not is_loopback(host):
            echo(
                f"headwise: anyone who can reach {host} can read these atlases"
                f"{' and run the model' if model else ''}; there is no password.",
                colour="yellow",
                err=True,
            )
        run(app, socket, open_browser=open_browser, on_start=lambda: echo(f"{url_of(socket)}   (Ctrl-C stops)"))
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


def _session(model: str, dtype: str, device: str | None) -> LiveModel:
    from headwise.live import LiveSession
    from headwise.model import load

    name = public_name(model)
    try:
        loaded = load(model, dtype=dtype, device=device)
    except HeadwiseError as error:  # shown on the page, which may not tell where the model is
        raise type(error)(str(error).replace(model, name)) from error
    return LiveSession(replace(loaded, id=name, card=replace(loaded.card, id=name)))


serve.examples = examples(  # type: ignore[attr-defined]
    "headwise serve atlas --open",
    ("headwise serve atlas --live", "with a live page for the model of the atlas"),
    "headwise serve dense-atlas sparse-atlas --port 8080",
)
