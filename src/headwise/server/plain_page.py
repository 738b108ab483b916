"""A page without the front end: a heading and some lines, for what stands outside of every atlas.

The list of atlases and "not here" are such pages. They need no script and take the style of all others. What is put into
them is HTML already: who calls escapes the text.
"""

from __future__ import annotations

import html

from fastapi.responses import HTMLResponse, Response

__all__ = ["plain_page"]


def plain_page(title: str, body: str, *, status: int = 200) -> Response:
    """A title (text) over a body (HTML)."""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Headwise</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/assets/style.css"></head>'
        '<body><main><div class="page page-atlases"><header class="study-header"><p class="label">Headwise</p>'
        f'<h1>{html.escape(title)}</h1></header><div class="column">{body}</div></div></main></body></html>'
    )
    return HTMLResponse(text, status, headers={"cache-control": "no-cache"})
