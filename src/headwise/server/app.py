"""The application: pages, their data, downloads, comparisons and the live page's requests, behind the guard.

    app = create_app(["atlas"])                                              # pages only
    app = create_app(["atlas"], open_session=lambda: LiveSession(load()))    # with a model, loaded in the background
    app = create_app(["atlas"], api=ApiSettings("name", open_model))         # with OpenAI's API for it (`openai_routes`)

Everything a URL can choose is a key of a dict made at start (atlases, files) or a path that `web.content` knows. Requests are
handled in threads, so none waits for another; the model has its own thread (`model_host`).


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
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headwise.analysis.comparison import Comparison, compare
from headwise.analysis.comparison_display import comparison_figure, describe_comparison
from headwise.atlas.head_table import harmless_csv
from headwise.core.dims import parse_head
from headwise.core.errors import HeadwiseError, translate_content_errors
from headwise.figures import to_payload
from headwise.server.api_metrics import CountedRequests
from headwise.server.guard import LOOPBACK, Guard
from headwise.server.live_routes import live_routes
from headwise.server.model_host import JobQueue, LiveModel, ModelHost
from headwise.server.openai_routes import API_NAMES, Api, ApiSettings
from headwise.server.registry import AtlasRegistry, ServedAtlas
from headwise.server.responses import (
    NotFoundError,
    find_atlas,
    json_response,
    not_modified,
    plain_page,
    register_error_handlers,
)
from headwise.studies.registry import dataset_spec
from headwise.web.html_page import ASSETS, served_page

__all__ = ["StaticAssets", "app_page", "atlas_list", "create_app", "is_page"]


MAX_COMPARED_HEADS = 40  # rows of the comparison table
COMPARISON_COLUMNS = {"change": "Change", "noise": "Re-run", "times": "Ratio", "columns": "Largest in"}
DOWNLOADS = ("heads.csv", "heads.json")


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
    except HeadwiseError as error:
        _log.warning("the atlas %s cannot be read: %s", atlas.name, error)
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


def create_app(
    atlases: Iterable[str | Path], *, open_session: Callable[[], LiveModel] | None = None,
    hosts: tuple[str, ...] = LOOPBACK, queue: JobQueue | None = None, api: ApiSettings | None = None,
) -> Guard | CountedRequests:  # fmt: skip
    """The application for some atlases; ``hosts`` are the names under which it may be reached."""
    registry = AtlasRegistry(atlases, reserved=API_NAMES if api is not None else ())
    queue = queue or JobQueue()
    host = ModelHost(open_session, list(registry.atlases.values()), queue)
    served_api = None if api is None else Api(api, queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()
        if served_api is not None:
            served_api.batching.close()

    app = FastAPI(title="Headwise", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    register_error_handlers(app, registry)
    if served_api is not None:
        served_api.add_to(app)
    app.include_router(live_routes(registry, host))
    _data_routes(app, registry)
    _page_routes(app, registry, live=open_session is not None)
    if served_api is None:
        return Guard(app, hosts=hosts)
    guarded = Guard(app, hosts=hosts, max_body=served_api.settings.limits.body_bytes)
    return CountedRequests(guarded, served_api.metrics)


def _data_routes(app: FastAPI, registry: AtlasRegistry) -> None:
    comparisons = ComparisonCache()

    @app.api_route("/api/{name}/download/{file}", methods=["GET", "HEAD"])
    def file(name: str, file: str) -> Response:
        return _head_table_file(find_atlas(registry, name), file)

    @app.api_route("/api/{name}/compare/{other}", methods=["GET", "HEAD"])
    def comparison(name: str, other: str, request: Request) -> Response:
        found, etag = comparisons.between(find_atlas(registry, name), find_atlas(registry, other))
        return not_modified(request, etag) or json_response(found, etag)

    @app.api_route("/api/{name}/{path:path}", methods=["GET", "HEAD"])
    def data(name: str, path: str, request: Request) -> Response:
        content, etag = find_atlas(registry, name).content()
        unchanged = not_modified(request, etag)
        if unchanged is not None:
            return unchanged
        try:
            return json_response(content.at(path), etag)
        except HeadwiseError as error:
            raise NotFoundError(str(error)) from error


def _page_routes(app: FastAPI, registry: AtlasRegistry, *, live: bool) -> None:
    assets = StaticAssets()

    @app.api_route("/", methods=["GET", "HEAD"])
    def root() -> Response:
        return atlas_list(registry)

    @app.api_route("/assets/{name}", methods=["GET", "HEAD"])
    def asset(name: str, request: Request) -> Response:
        return assets.response(name, request)

    @app.api_route("/{name}", methods=["GET", "HEAD"])
    def without_slash(name: str) -> Response:
        return RedirectResponse(f"/{find_atlas(registry, name).name}/", 307)

    @app.api_route("/{name}/{path:path}", methods=["GET", "HEAD"])
    def page(name: str, path: str, request: Request) -> Response:
        atlas = find_atlas(registry, name)
        if atlas.name != name:  # the alias: redirect to the name that links on the page use
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"/{atlas.name}/{path}{query}", 307)
        return app_page(registry, atlas, live=live, status=200 if is_page(registry, atlas, path) else 404)


def _head_table_file(atlas: ServedAtlas, name: str) -> Response:
    """The head table of all studies as CSV or JSON, one row per head."""
    if name not in DOWNLOADS:
        raise NotFoundError(f"there is no such file; known are {', '.join(DOWNLOADS)}")
    with translate_content_errors(f"The atlas {atlas.name}"):
        table = atlas.atlas.heads().reset_index()
    if name.endswith(".csv"):
        body, kind = harmless_csv(table).to_csv(index=False), "text/csv"
    else:
        body, kind = str(table.to_json(orient="records")), "application/json"
    headers = {"content-disposition": f'attachment; filename="{atlas.name}-{name}"', "cache-control": "no-cache"}
    return Response(body, media_type=kind, headers=headers)


class ComparisonCache:
    """The content of /NAME/compare/OTHER: figures, words and the most changed heads; computed on first request."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def between(self, first: ServedAtlas, second: ServedAtlas) -> tuple[dict[str, Any], str]:
        """The comparison of two atlases, and the ETag of both."""
        etag, key = f"{first.content()[1]}-{second.content()[1]}", (first.name, second.name)
        with self._lock:
            if self._pages.get(key, ("", {}))[0] != etag:
                self._pages[key] = (etag, _comparison_page(first, second))
            return self._pages[key][1], etag


def _comparison_page(first: ServedAtlas, second: ServedAtlas) -> dict[str, Any]:
    """Atlases that cannot be compared give a page with the reason, not an error."""
    try:
        with translate_content_errors(f"One of the atlases {first.name} and {second.name}"):
            found = compare(first.atlas, second.atlas)
            words = describe_comparison(found)
            figures = _comparison_figures(found, words.short())
    except HeadwiseError as error:
        text = second.redact(first.redact(str(error)))
        return {"short": text, "figures": [], "words": {}, "table": None, "warnings": []}
    return {
        "short": words.short(),
        "figures": figures,
        "words": words.sections(),
        "table": None if found.within_noise else _comparison_table(found.heads.head(MAX_COMPARED_HEADS)),
        "warnings": list(found.warnings),
    }


def _comparison_figures(found: Comparison, alt: str) -> list[dict[str, Any]]:
    """The columns that changed most, then those of every study."""
    studies = dict.fromkeys(found.dataset["study"].values.tolist())
    figures = [("most", "Largest changes", comparison_figure(found))]
    figures += [(name, name.replace("_", " ").capitalize(), comparison_figure(found, study=name)) for name in studies]
    return [{"key": key, "label": label, "payload": to_payload(figure.with_alt(alt))} for key, label, figure in figures]


def _comparison_table(heads: pd.DataFrame) -> dict[str, Any] | None:
    """Columns with the heads' names; None where heads are not compared one by one."""
    if heads.empty:
        return None
    columns = [
        {"name": label, "values": [None if pd.isna(value) else value for value in heads[name].tolist()]}
        for name, label in COMPARISON_COLUMNS.items()
        if name in heads
    ]
    return {"names": [str(name) for name in heads.index], "columns": columns}
