"""The HTML around the front end: one page that holds the modules by name, the style, the settings, and, in a report, the data.

Modules import each other by bare names ("headwise/figure"); an import map gives each name an address: in a report a data: URL
with the module's own text, served an address under /assets. So the same files run in both, and nothing is built. A policy
(Content-Security-Policy) lets only these scripts run and nothing be fetched that is not ours.
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

__all__ = ["ASSETS", "block", "embedded_page", "modules_of", "safe_json", "served_page"]

ASSETS = Path(__file__).parent / "assets"
START = "app"
_IMPORT = re.compile(r"""(?:from|import)\s+["']headwise/([\w]+)["']""")
_STYLES = ("style.css", "print.css")
_BOOT = 'import "headwise/app";'
_THEME = (
    'try { const kept = localStorage.getItem("headwise-theme"); '
    "if (kept) document.documentElement.dataset.theme = kept; } catch {}"
)


def safe_json(value: Any) -> str:
    r"""JSON that can stand inside a script element: no ``<`` in it, so nothing in the data can end the element.

    >>> safe_json({"token": "</script>"})
    '{"token":"\\u003c/script>"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def modules_of(start: str = START) -> list[str]:
    """The modules that one needs, by following its imports; those loaded only on demand are not among them."""
    found, waiting = [], [start]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += _IMPORT.findall(_asset(f"{name}.js"))
    return sorted(found)


def embedded_page(settings: Mapping[str, Any], title: str, data: Iterable[str]) -> Iterable[str]:
    """A page that needs nothing beside itself, in pieces; ``data`` are blocks made by `block`."""
    names = {f"headwise/{name}": _data_url(_asset(f"{name}.js")) for name in modules_of()}
    imports = safe_json({"imports": names})
    scripts = " ".join(f"'sha256-{_hash(text)}'" for text in (_THEME, imports, _BOOT))
    policy = (
        f"default-src 'none'; script-src {scripts} data:; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
    head, _, rest = _filled(settings, title, imports, _inline_style(), policy).partition("<!-- data -->")
    yield head
    yield from data
    yield rest


def served_page(settings: Mapping[str, Any], title: str, *, names: Iterable[str] | None = None) -> str:
    """A page whose modules and data a server has: every module under /assets, all of them by default."""
    every = sorted(path.stem for path in ASSETS.glob("*.js")) if names is None else names
    imports = safe_json({"imports": {f"headwise/{name}": f"/assets/{name}.js" for name in every}})
    style = "\n".join(f'<link rel="stylesheet" href="/assets/{name}">' for name in _STYLES)
    scripts = " ".join(f"'sha256-{_hash(text)}'" for text in (_THEME, imports, _BOOT))
    policy = (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'"
    )
    return _filled(settings, title, imports, style, policy).replace("<!-- data -->", "")


def block(path: str, text: str, *, packed: bool = False) -> str:
    """A block of data in a report, found by its path."""
    kind = ' data-packed="deflate"' if packed else ""
    return f'<script type="application/json" data-path="{html.escape(path, quote=True)}"{kind}>{text}</script>\n'


def _filled(settings: Mapping[str, Any], title: str, imports: str, style: str, policy: str) -> str:
    told = safe_json({"version": __version__, **settings})
    parts = {
        "{{title}}": html.escape(title),
        "<!-- policy -->": f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=True)}">',
        "<!-- style -->": style,
        "<!-- modules -->": f'<script>{_THEME}</script>\n<script type="importmap">{imports}</script>',
        "<!-- boot -->": f'<script type="application/json" id="settings">{told}</script>\n'
        f'<script type="module">{_BOOT}</script>',
    }
    text = _asset("index.html")
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], text)


def _inline_style() -> str:
    return "".join(f"<style>\n{_asset(name)}</style>\n" for name in _STYLES)


def _data_url(text: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
