"""The HTML around the front end: import map, styles, settings, and, in a report, the data.

Modules import each other by bare names ("headwise/figure"); an import map resolves them: in a report to data: URLs with the
module's text, in the explorer to URLs under /assets. So the same files run in both, without a build step. A
Content-Security-Policy allows only these scripts, and requests to our own server only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from headwise import __version__

ASSETS = Path(__file__).parent / "assets"
ENTRY_MODULE = "app"
_IMPORT = re.compile(r"""(?:from|import)\s+["']headwise/([\w]+)["']""")
_STYLES = ("style.css", "print.css")
_SERVED_STYLES = (*_STYLES, "live.css")  # only a server has the live page
_BOOT = 'import "headwise/app";'
_THEME = (
    'try { const stored = localStorage.getItem("headwise-theme"); '
    "if (stored) document.documentElement.dataset.theme = stored; } catch {}"
)


def safe_json(value: Any) -> str:
    r"""JSON for a script element: without ``<``, so that nothing in the data can close the element.

    >>> safe_json({"token": "</script>"})
    '{"token":"\\u003c/script>"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def module_closure(entry: str = ENTRY_MODULE) -> list[str]:
    """A module and all it imports statically; dynamic imports are not followed."""
    found, waiting = [], [entry]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += _IMPORT.findall(_asset(f"{name}.js"))
    return sorted(found)


def embedded_page(settings: Mapping[str, Any], title: str, data: Iterable[str]) -> Iterable[str]:
    """A self-contained page, in pieces; ``data`` are blocks made by `data_block`."""
    names = {f"headwise/{name}": _data_url(_asset(f"{name}.js")) for name in module_closure()}
    imports = safe_json({"imports": names})
    scripts = " ".join(f"'sha256-{_hash(text)}'" for text in (_THEME, imports, _BOOT))
    policy = (
        f"default-src 'none'; script-src {scripts} data:; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
    styles = "".join(f"<style>\n{_asset(name)}</style>\n" for name in _STYLES)
    head, _, rest = _fill_template(settings, title, imports, styles, policy).partition("<!-- data -->")
    yield head
    yield from data
    yield rest


def served_page(settings: Mapping[str, Any], title: str, *, names: Iterable[str] | None = None) -> str:
    """A page whose modules (all by default) and data come from the server."""
    every = sorted(path.stem for path in ASSETS.glob("*.js")) if names is None else names
    imports = safe_json({"imports": {f"headwise/{name}": f"/assets/{name}.js" for name in every}})
    style = "\n".join(f'<link rel="stylesheet" href="/assets/{name}">' for name in _SERVED_STYLES)
    scripts = " ".join(f"'sha256-{_hash(text)}'" for text in (_THEME, imports, _BOOT))
    policy = (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'"
    )
    return _fill_template(settings, title, imports, style, policy).replace("<!-- data -->", "")


def data_block(path: str, text: str, *, packed: bool = False) -> str:
    """A data element of a report, found by its path."""
    kind = ' data-packed="deflate"' if packed else ""
    return f'<script type="application/json" data-path="{html.escape(path, quote=True)}"{kind}>{text}</script>\n'


def _fill_template(settings: Mapping[str, Any], title: str, imports: str, style: str, policy: str) -> str:
    page_settings = safe_json({"version": __version__, **settings})
    parts = {
        "{{title}}": html.escape(title),
        "<!-- policy -->": f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=True)}">',
        "<!-- style -->": style,
        "<!-- modules -->": f'<script>{_THEME}</script>\n<script type="importmap">{imports}</script>',
        "<!-- boot -->": f'<script type="application/json" id="settings">{page_settings}</script>\n'
        f'<script type="module">{_BOOT}</script>',
    }
    text = _asset("index.html")
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], text)


def _data_url(text: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
