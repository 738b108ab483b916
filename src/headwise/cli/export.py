"""`headwise export`: copy an atlas to HeadVis, to a dataset on the Hugging Face hub, or to another location."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import AtlasArgument
from headwise.cli.terminal import echo
from headwise.cli.usage import examples

HEADVIS, HUB = "headvis", "hub:"


def export(
    atlas: AtlasArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="headvis (its data folder), hub:OWNER/NAME (a dataset repository), or a copy of the atlas: ./FOLDER, "
            "s3://BUCKET/NAME, gs://, az://.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="With headvis: a new folder. Default: headvis.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="With hub: create the repository as private.")] = False,
    revision: Annotated[str | None, typer.Option("--revision", help="With hub: the branch to commit to.")] = None,
) -> None:
    """Export an atlas to another tool, upload it to the hub (hf://datasets/OWNER/NAME), or copy it to a folder or URL."""
    from headwise.atlas import Atlas
    from headwise.core.errors import DataError, did_you_mean
    from headwise.exports import write_headvis

    copied = not to.startswith(HUB) and "/" in to  # a folder or a URL
    if to != HEADVIS and not to.startswith(HUB) and not copied:
        known = [HEADVIS, f"{HUB}OWNER/NAME", "./FOLDER", "s3://BUCKET/NAME"]
        raise DataError(f"an atlas cannot be exported to {to!r}. {did_you_mean(to, known)}")
    _refuse_ignored(to, output, private, revision)
    opened = Atlas.open(atlas)
    if copied and opened.location.folder is not None and Path(to).resolve() == opened.location.folder.resolve():
        raise DataError(f"{to} is the atlas itself; choose another folder with --to.")
    if to == HEADVIS:
        echo(write_headvis(opened, output or Path(HEADVIS)))
        if "patterns" not in opened:
            echo(
                "exported without sequences, because the atlas has no study patterns, which stores attention maps",
                err=True,
            )
    elif copied:
        echo(opened.copy_to(to).location)
    else:
        echo(opened.push_to_hub(to.removeprefix(HUB), private=private or None, revision=revision))


def _refuse_ignored(to: str, output: Path | None, private: bool, revision: str | None) -> None:
    """Refuse options that have no effect on the chosen format."""
    from headwise.core.errors import DataError

    hub = {"--private": private, "--revision": revision is not None}
    ignored = (hub if not to.startswith(HUB) else {}) | ({"-o": output is not None} if to != HEADVIS else {})
    for option, given in ignored.items():
        if given:
            raise DataError(f"{option} has no effect with --to {to}; omit it.")


export.examples = examples(  # type: ignore[attr-defined]
    "headwise export atlas --to headvis -o headvis/data",
    "headwise export atlas --to hub:me/smollm2-atlas --private",
    ("headwise export atlas --to s3://bucket/atlas", "copy to an object store"),
    ("headwise export s3://bucket/atlas --to ./atlas", "copy to a folder"),
    (
        "headwise heads hf://datasets/me/smollm2-atlas",
        "every verb with an ATLAS argument also opens atlases on the hub",
    ),
)
