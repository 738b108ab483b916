"""`report`: a whole atlas in one HTML file that needs no network and opens from disk.

    write(Atlas.open("atlas"), "report.html")

Steps: write every path of `content` as a block of JSON, compressed (zlib, base64) where it is long; heads are bundled by
layer, so that opening one does not decompress all; add the front end (`html_page`). The file is written under a temporary
name and renamed, so that an existing report is replaced atomically.

Cost: a second or two for a small model, about a minute for 5,120 heads; memory for the studies and one layer's heads.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from headwise.atlas import Atlas
from headwise.core.dims import parse_head
from headwise.core.errors import AtlasError
from headwise.core.files import output_file
from headwise.web.content import Content
from headwise.web.html_page import data_block, embedded_page, safe_json

MIN_COMPRESSED_CHARACTERS = 2000  # shorter blocks stay plain JSON
Progress = Callable[[int, int], None]


def write(atlas: Atlas, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Write an atlas's report: one HTML file with all figures, words and heads.

    Args:
        atlas: with at least one study.
        path: the .html file.
        progress: called with the number of blocks done and the total.

    Returns:
        The file.

    Examples:
        >>> page = write(atlas, folder / "report.html")
        >>> page.name, page.stat().st_size > 100_000
        ('report.html', True)
    """
    target = Path(path)
    _refuse_empty(atlas)
    content = Content(atlas)
    model = content.at("atlas")["model"]["short"]
    settings = {"mode": "report", "atlas": atlas.location.name}
    with output_file(target) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for piece in embedded_page(
            settings, f"{model} · Headwise", _blocks(content, progress or (lambda done, total: None))
        ):
            file.write(piece)
    return target


def _refuse_empty(atlas: Atlas) -> None:
    if not atlas.studies:
        raise AtlasError(
            f"The atlas {atlas.location} has no study yet; fill it with headwise build -o {atlas.location}."
        )


def _blocks(content: Content, progress: Progress) -> Iterator[str]:
    """Every path as a block; the heads of a layer in one, at the path layer/N."""
    paths = list(content.paths())
    single = [path for path in paths if not path.startswith("head/")]
    heads = [path for path in paths if path.startswith("head/")]
    for done, path in enumerate(single):
        progress(done, len(paths))
        yield _encoded(path, safe_json(content.at(path)))
    done = len(single)
    for layer, group in groupby(heads, key=lambda path: parse_head(path.removeprefix("head/"))[0]):
        bundle = {path: content.at(path) for path in group}
        done += len(bundle)
        progress(done, len(paths))
        yield _encoded(f"layer/{layer}", safe_json(bundle))


def _encoded(path: str, text: str) -> str:
    if len(text) < MIN_COMPRESSED_CHARACTERS:
        return data_block(path, text)
    return data_block(path, base64.b64encode(zlib.compress(text.encode(), 6)).decode(), packed=True)
