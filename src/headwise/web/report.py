"""`report`: a whole atlas in one HTML file that needs no network and opens from a disk.

    write(Atlas.open("atlas"), "report.html")

Steps: ask `content` for every path; write it as a block of JSON, packed (zlib, base64) where it is long; heads a layer
at a time, so that opening one does not open all; then the front end around it (`page`). The file is written beside its place
and renamed, so a report that was there stays whole until the new one is.

Cost: a second or two for a small model, about a minute for 5,120 heads; memory of one layer's heads beside the studies.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from headwise.atlas import Atlas
from headwise.atlas.disk import translate_os_errors
from headwise.core.dims import parse_head
from headwise.core.errors import AtlasError, DataError
from headwise.web.content import Content
from headwise.web.page import block, embedded_page, safe_json

__all__ = ["write"]

LONG = 2000  # characters from which on a block is packed
Progress = Callable[[int, int], None]


def write(atlas: Atlas, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Write the report of an atlas: one page that opens from disk, with all figures, words and heads.

    Args:
        atlas: with at least one study.
        path: the .html file.
        progress: called with the parts done and the parts in all.

    Returns:
        The file.

    Examples:
        >>> page = write(atlas, folder / "report.html")
        >>> page.name, page.stat().st_size > 100_000
        ('report.html', True)
    """
    target = Path(path)
    _refuse(atlas, target)
    content = Content(atlas)
    model = content.at("atlas")["model"]["short"]
    settings = {"mode": "report", "atlas": atlas.location.name}
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with translate_os_errors(target):
        try:
            with open(beside, "w", encoding="utf-8", newline="\n") as file:
                for piece in embedded_page(settings, f"{model} · Headwise", _blocks(content, progress or _silent)):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    return target


def _refuse(atlas: Atlas, target: Path) -> None:
    if not atlas.studies:
        raise AtlasError(
            f"The atlas {atlas.location} has no study yet; fill it with headwise build -o {atlas.location}."
        )
    if target.is_dir():
        raise DataError(f"{target} is a folder; give the report a name of its own, such as {target / 'report.html'}.")
    if not target.parent.is_dir():
        raise DataError(f"There is no folder {target.parent}; make it first, or choose another place with -o.")


def _blocks(content: Content, progress: Progress) -> Iterator[str]:
    """Every path as a block; the heads of a layer in one, which the front end knows as layer/N."""
    paths = list(content.paths())
    single = [path for path in paths if not path.startswith("head/")]
    heads = [path for path in paths if path.startswith("head/")]
    for done, path in enumerate(single):
        progress(done, len(paths))
        yield _packed(path, safe_json(content.at(path)))
    done = len(single)
    for layer, group in groupby(heads, key=lambda path: parse_head(path.removeprefix("head/"))[0]):
        bundle = {path: content.at(path) for path in group}
        done += len(bundle)
        progress(done, len(paths))
        yield _packed(f"layer/{layer}", safe_json(bundle))


def _packed(path: str, text: str) -> str:
    if len(text) < LONG:
        return block(path, text)
    return block(path, base64.b64encode(zlib.compress(text.encode(), 9)).decode(), packed=True)


def _silent(done: int, total: int) -> None:
    """Nobody listens."""
