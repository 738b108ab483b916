"""Pages and their URLs.

    /                      the served atlases
    /NAME/                 an atlas; and under it study/KEY, heads, head/L12H3, agreement, compare/OTHER, print, live
    /assets/figure.js      the front end's files

All URLs of an atlas return the same page: its modules read the URL and request the data from /api. So a URL can be shared and
reloaded; an unknown one is 404, with the page around the message.

A file is served if its name was in the assets folder when the server started; no URL is ever joined to a path.
"""

from __future__ import annotations

import hashlib
import html
import logging
import re

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headwise.core.dims import parse_head
from headwise.core.errors import HeadwiseError
from headwise.server.registry import AtlasRegistry, ServedAtlas
from headwise.server.responses import NotFoundError, not_modified, plain_page
from headwise.studies.registry import dataset_spec
from headwise.web.html_page import ASSETS, served_page

__all__ = ["StaticAssets", "app_page", "atlas_list", "is_page"]

_log = logging.getLogger(__name__)
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
FIXED_PAGES = ("", "heads", "agreement", "print", "live")
POLICY_META = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


class StaticAssets:
    """The files of the front end."""

    def __init__(self) -> None:
        self._files = {file.name: file for file in ASSETS.iterdir() if file.suffix in MEDIA_TYPES}

    def response(self, name: str, request: Request) -> Response:
        """One file, by its name alone."""
        if name not in self._files:
            raise NotFoundError("there is no such file here")
        body = self._files[name].read_bytes()
        etag = hashlib.blake2b(body, digest_size=8).hexdigest()
        headers = {"cache-control": "no-cache", "etag": f'"{etag}"'}
        return not_modified(request, etag) or Response(
            body, media_type=MEDIA_TYPES[self._files[name].suffix], headers=headers
        )


def is_page(registry: AtlasRegistry, atlas: ServedAtlas, path: str) -> bool:
    """Whether an atlas has such a page."""
    page, _, rest = path.strip("/").partition("/")
    if page in FIXED_PAGES:
        return not rest
    if page == "study":
        return rest in atlas.content()[0].chapters
    if page == "compare":
        return registry.get(rest) is not None
    return page == "head" and _has_head(atlas, rest)


def app_page(registry: AtlasRegistry, atlas: ServedAtlas, *, live: bool, status: int = 200) -> Response:
    """The page of an atlas, the same for all its URLs."""
    settings = {"mode": "served", "atlas": atlas.name, "atlases": list(registry.atlases), "live": live}
    text = served_page(settings, f"{atlas.name} · Headwise")
    found = POLICY_META.search(text)
    policy = f"{html.unescape(found[1])}; frame-ancestors 'none'" if found else "default-src 'none'"
    return HTMLResponse(text, status, headers={"content-security-policy": policy, "cache-control": "no-cache"})


def atlas_list(registry: AtlasRegistry) -> Response:
    """The served atlases; a redirect where there is only one."""
    if len(registry.atlases) == 1:
        return RedirectResponse(f"/{registry.first.name}/", 307)
    entries = (_list_entry(atlas, registry.short_path(atlas)) for atlas in registry.atlases.values())
    return plain_page("Atlases", "".join(entries))


def _list_entry(atlas: ServedAtlas, folder: str) -> str:
    """One atlas: its name, path, model, time of measurement and studies."""
    name = html.escape(atlas.name)
    try:
        origins = atlas.atlas.provenances()
    except HeadwiseError:
        _log.exception("the atlas %s cannot be read", atlas.name)
        return f'<div class="finding-words"><h3>{name}</h3><p class="small">It cannot be read; see the log.</p></div>'
    lines = [folder, "no study yet"]
    if origins:
        model = next(iter(origins.values())).model
        last = max(origin.created for origin in origins.values())
        time = last[:16].replace("T", " ")
        lines[1] = f"{model.get('id')}, {model.get('layers')} layers of {model.get('heads')} heads, measured {time} UTC"
        shown = (study for study in origins if (spec := dataset_spec(study)) is None or spec.has_page)
        lines.append(", ".join(study.replace("_", " ") for study in shown))
    body = "".join(f'<p class="small">{html.escape(line)}</p>' for line in lines)
    return f'<div class="finding-words"><h3><a href="/{name}/">{name}</a></h3>{body}</div>'


def _has_head(atlas: ServedAtlas, name: str) -> bool:
    """Whether the atlas's model has this head; from the provenance, without reading a study."""
    if not re.fullmatch(r"L\d{1,4}H\d{1,4}", name):
        return False
    layer, head = parse_head(name)
    for study in atlas.atlas.studies:
        model = atlas.atlas.provenance(study).model
        if "layers" in model and "heads" in model:
            return bool(layer < model["layers"] and head < model["heads"])
    return False
