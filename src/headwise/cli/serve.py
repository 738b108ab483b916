"""`headwise serve`: the explorer, for one or several atlases, with a live page where a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.options import DeviceOption, DtypeOption

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
    host: Annotated[str, typer.Option("--host", help="The address to listen at; others can reach you there.")] = HOST,
    port: Annotated[int, typer.Option("--port", help="The port; 0 takes any that is free.")] = PORT,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the pages in a browser.")] = False,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
) -> None:
    """Look at atlases in a browser; with a model, type a prompt and look at its heads.

    Pages are there at once; the live page says when the model is loaded. Ends with Ctrl-C.
    """
    from headwise.server import bind_socket, create_app, is_loopback, run, url_of
    from headwise.server.guard import LOOPBACK

    taken = bind_socket(host, port)
    try:
        wanted = model or (_model_of(atlases[0]) if live else None)
        opener = None if wanted is None else lambda: _session(wanted, dtype, device)
        app = create_app(atlases, open_session=opener, hosts=LOOPBACK if is_loopback(host) else None)
        if not is_loopback(host):
            typer.secho(
                f"headwise: everyone who can reach {host} can read these atlases"
                f"{' and run the model' if wanted else ''}; there is no password.",
                fg="yellow",
                err=True,
            )
        run(app, taken, open_browser=open_browser, on_start=lambda: typer.echo(f"{url_of(taken)}   (Ctrl-C ends)"))
    finally:
        taken.close()


def _model_of(atlas: Path) -> str:
    """The model that an atlas names."""
    from headwise.atlas import Atlas
    from headwise.core.errors import AtlasError

    opened = Atlas.open(atlas)
    if not opened.studies:
        raise AtlasError(f"{opened.location} is empty and names no model; give one with --model")
    return str(opened.provenance(opened.studies[0]).model["id"])


def _session(model: str, dtype: str, device: str | None) -> LiveModel:
    from headwise.live import LiveSession
    from headwise.model import load

    return LiveSession(load(model, dtype=dtype, device=device))


serve.examples = (  # type: ignore[attr-defined]
    "[b]Examples[/b]\n\nheadwise serve atlas --open\n\nheadwise serve atlas --live\n\n"
    "headwise serve dense-atlas sparse-atlas --port 8080"
)
