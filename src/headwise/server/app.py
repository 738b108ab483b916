"""The application: pages, their data, and the live page's requests, behind the guard.

    app = create_app(["atlas"])                                          # pages alone
    app = create_app(["atlas"], open_session=lambda: Session(load()))    # with a model, loaded in the background

Everything an address can choose is a key of a dict made at the start (atlases, files) or a path that `web.content`
knows. Work is done in threads, so that no request waits for another's; the model has a thread of its own (`desk`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from headwise.core.errors import HeadwiseError
from headwise.server.answers import Missing, atlas_of, register, same
from headwise.server.comparisons import Comparisons
from headwise.server.desk import Desk
from headwise.server.downloads import download
from headwise.server.guard import LOOPBACK, Guard
from headwise.server.live_routes import live_routes
from headwise.server.pages import Assets, is_page, listing, shell
from headwise.server.room import Room, Session
from headwise.server.shelf import Shelf

__all__ = ["create_app"]


def create_app(
    atlases: Iterable[str | Path], *, open_session: Callable[[], Session] | None = None,
    hosts: tuple[str, ...] | None = LOOPBACK, desk: Desk | None = None,
) -> Guard:  # fmt: skip
    """The application for some atlases; `hosts` None where it is to be reached from elsewhere."""
    shelf, desk = Shelf(atlases), desk or Desk()
    room = Room(open_session, list(shelf.all.values()), desk)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(title="Headwise", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    register(app, shelf)
    app.include_router(live_routes(shelf, room))
    _data(app, shelf)
    _pages(app, shelf, live=open_session is not None)
    return Guard(app, hosts=hosts)


def _data(app: FastAPI, shelf: Shelf) -> None:
    comparisons = Comparisons()

    @app.api_route("/api/{name}/download/{file}", methods=["GET", "HEAD"])
    def file(name: str, file: str) -> Response:
        return download(atlas_of(shelf, name), file)

    @app.api_route("/api/{name}/compare/{other}", methods=["GET", "HEAD"])
    def compare(name: str, other: str, request: Request) -> Response:
        found, state = comparisons.between(atlas_of(shelf, name), atlas_of(shelf, other))
        return same(request, state) or _json(found, state)

    @app.api_route("/api/{name}/{path:path}", methods=["GET", "HEAD"])
    def data(name: str, path: str, request: Request) -> Response:
        content, state = atlas_of(shelf, name).content()
        found = same(request, state)
        if found is not None:
            return found
        try:
            return _json(content.at(path), state)
        except HeadwiseError as error:
            raise Missing(str(error)) from error


def _pages(app: FastAPI, shelf: Shelf, *, live: bool) -> None:
    assets = Assets()

    @app.api_route("/", methods=["GET", "HEAD"])
    def opening() -> Response:
        return listing(shelf)

    @app.api_route("/assets/{name}", methods=["GET", "HEAD"])
    def asset(name: str, request: Request) -> Response:
        return assets.answer(name, request)

    @app.api_route("/{name}", methods=["GET", "HEAD"])
    def bare(name: str) -> Response:
        return RedirectResponse(f"/{atlas_of(shelf, name).name}/", 307)

    @app.api_route("/{name}/{path:path}", methods=["GET", "HEAD"])
    def page(name: str, path: str, request: Request) -> Response:
        atlas = atlas_of(shelf, name)
        if atlas.name != name:  # an alias: the name that links on the page use
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"/{atlas.name}/{path}{query}", 307)
        return shell(shelf, atlas, live=live, status=200 if is_page(shelf, atlas, path) else 404)


def _json(value: Any, state: str) -> Response:
    body = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, media_type="application/json", headers={"cache-control": "no-cache", "etag": f'"{state}"'})
