"""`headwise export`: an atlas for other tools, or for others: HeadVis' folder, a dataset of the hub, or another place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.examples import examples
from headwise.cli.options import AtlasArgument

HEADVIS, HUB = "headvis", "hub:"


def export(
    atlas: AtlasArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="headvis (its data folder), hub:OWNER/NAME (a dataset repository), or where a copy goes: s3://BUCKET/NAME, "
            "gs://, az://, file:///FOLDER.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="With headvis: a new folder. Default: headvis.", show_default=False),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="With hub: a repository that is not there yet becomes private.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option("--revision", help="With hub: the branch to commit to.", show_default=False)
    ] = None,
) -> None:
    """Write an atlas for another tool, put it on the hub (hf://datasets/OWNER/NAME), or copy it to another place."""
    from headwise.atlas import Atlas
    from headwise.core.errors import DataError, did_you_mean
    from headwise.exports import write_headvis

    if to != HEADVIS and not to.startswith(HUB) and "://" not in to:
        known = [HEADVIS, f"{HUB}OWNER/NAME", "s3://BUCKET/NAME"]
        raise DataError(f"an atlas cannot be exported to {to!r}. {did_you_mean(to, known)}")
    _refuse_idle(to, output, private, revision)
    opened = Atlas.open(atlas)
    if to == HEADVIS:
        typer.echo(write_headvis(opened, output or Path(HEADVIS)))
        if "patterns" not in opened:
            typer.echo("without sequences: the atlas has no patterns study, which keeps attention maps", err=True)
    elif "://" in to:
        typer.echo(opened.copy_to(to).location)
    else:
        typer.echo(opened.push_to_hub(to.removeprefix(HUB), private=private or None, revision=revision))


def _refuse_idle(to: str, output: Path | None, private: bool, revision: str | None) -> None:
    """Refuse options that the chosen format has no use for."""
    from headwise.core.errors import DataError

    hub = {"--private": private, "--revision": revision is not None}
    idle = (hub if not to.startswith(HUB) else {}) | ({"-o": output is not None} if to != HEADVIS else {})
    for option, given in idle.items():
        if given:
            raise DataError(f"{option} does nothing with --to {to}; leave it out")


export.examples = examples(  # type: ignore[attr-defined]
    "headwise export atlas --to headvis -o headvis/data",
    "headwise export atlas --to hub:me/smollm2-atlas --private",
    ("headwise export atlas --to s3://bucket/atlas", "a copy in an object store; file:///data/atlas gets one back"),
    ("headwise heads hf://datasets/me/smollm2-atlas", "every verb that takes ATLAS opens one of the hub"),
)
