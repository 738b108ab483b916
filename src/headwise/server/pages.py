"""Pages that one can link to: which addresses there are, and the HTML behind them.

    /                      the atlases that are served
    /NAME/                 an atlas; and under it study/KEY, heads, head/L12H3, agreement, compare/OTHER, print, live
    /assets/figure.js      the front end's files

The page is the same for every address of an atlas: its modules read the address and ask /api for what stands there. So
an address can be pasted and reloaded; one that leads nowhere is 404, with the page around it that says so.

A file is served if its name is among those of the folder of assets when the server started; no address is ever joined to
a path.
"""

from __future__ import annotations

import hashlib
import html
import re

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headwise.core.dims import parse_head
from headwise.server.answers import Missing, same
from headwise.server.plain_page import plain_page
from headwise.server.shelf import Shelf, Shelved
from headwise.web.content import UNDRAWN
from headwise.web.page import ASSETS, served_page

__all__ = ["Assets", "is_page", "listing", "shell"]

KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
PLAIN = ("", "heads", "agreement", "print", "live")
POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


class Assets:
    """The files of the front end."""

    def __init__(self) -> None:
        self._files = {file.name: file for file in ASSETS.iterdir() if file.suffix in KINDS}

    def answer(self, name: str, request: Request) -> Response:
        """One file, by its name alone."""
        if name not in self._files:
            raise Missing("there is no such file here")
        body = self._files[name].read_bytes()
        etag = hashlib.blake2b(body, digest_size=8).hexdigest()
        headers = {"cache-control": "no-cache", "etag": f'"{etag}"'}
        return same(request, etag) or Response(body, media_type=KINDS[self._files[name].suffix], headers=headers)


def is_page(shelf: Shelf, atlas: Shelved, path: str) -> bool:
    """Whether an atlas has such a page."""
    page, _, rest = path.strip("/").partition("/")
    if page in PLAIN:
        return not rest
    if page == "study":
        return rest in atlas.content()[0].chapters
    if page == "compare":
        return shelf.get(rest) is not None
    return page == "head" and _has_head(atlas, rest)


def shell(shelf: Shelf, atlas: Shelved, *, live: bool, status: int = 200) -> Response:
    """The page of an atlas, whatever its address."""
    settings = {"mode": "served", "atlas": atlas.name, "atlases": list(shelf.all), "live": live}
    text = served_page(settings, f"{atlas.name} · Headwise")
    found = POLICY.search(text)
    policy = f"{html.unescape(found[1])}; frame-ancestors 'none'" if found else "default-src 'none'"
    return HTMLResponse(text, status, headers={"content-security-policy": policy, "cache-control": "no-cache"})


def listing(shelf: Shelf) -> Response:
    """The atlases; a server with one goes straight to it."""
    if len(shelf.all) == 1:
        return RedirectResponse(f"/{shelf.first.name}/", 307)
    return plain_page("Atlases", "".join(_entry(one, shelf.folder(one)) for one in shelf.all.values()))


def _entry(one: Shelved, folder: str) -> str:
    """One atlas: its name, where it lies, what it is of, when it was measured, and its studies."""
    name, origins = html.escape(one.name), {study: one.atlas.provenance(study) for study in one.atlas.studies}
    told = [folder, "nothing was measured yet"]
    if origins:
        model = next(iter(origins.values())).model
        last = max(origin.created for origin in origins.values())
        hour = last[:16].replace("T", " ")
        told[1] = f"{model.get('id')}, {model.get('layers')} layers of {model.get('heads')} heads, measured {hour} UTC"
        told.append(", ".join(study.replace("_", " ") for study in origins if study not in UNDRAWN))
    lines = "".join(f'<p class="small">{html.escape(line)}</p>' for line in told)
    return f'<div class="finding-words"><h3><a href="/{name}/">{name}</a></h3>{lines}</div>'


def _has_head(atlas: Shelved, name: str) -> bool:
    """Whether the atlas's model has this head; told from the provenance, without reading a study."""
    if not re.fullmatch(r"L\d{1,4}H\d{1,4}", name):
        return False
    layer, head = parse_head(name)
    for study in atlas.atlas.studies:
        model = atlas.atlas.provenance(study).model
        if "layers" in model and "heads" in model:
            return bool(layer < model["layers"] and head < model["heads"])
    return False
