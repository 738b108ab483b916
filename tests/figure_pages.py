"""A page with figures on it, drawn by the front end alone: no site around it, opened from a file, as the report is."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.figures import Figure, to_payload

ASSETS = Path(__file__).parents[1] / "src" / "headwise" / "web" / "assets"
PAPER = {"light": "--paper: #ffffff; --ink: #1c1c1e", "dark": "--paper: #16171a; --ink: #ececea"}
SCRIPT = """
import {drawFigure} from "headwise/figure";
window.heads = [];
window.picks = [];
window.payloads = JSON.parse(document.getElementById("payloads").textContent);
window.took = {};
for (const [name, payload] of Object.entries(payloads)) {
  const box = document.body.appendChild(document.createElement("div"));
  box.id = name;
  const start = performance.now();
  drawFigure(box, payload, {onhead: (head) => heads.push(head), onpick: (pick) => picks.push(pick)});
  took[name] = performance.now() - start;
}
window.drawn = true;
"""


def open_figures(page: Any, file: Path, figures: Mapping[str, Figure], *, theme: str = "light") -> Any:
    """Write the figures, by name, into a page at `file`, and open it."""
    payloads = {name: to_payload(figure) for name, figure in figures.items()}
    embedded = json.dumps(payloads, allow_nan=False).replace("<", "\\u003c")
    file.write_text(
        f'<!doctype html><html lang="en" data-theme="{theme}"><meta charset="utf-8"><title>Figures</title>'
        f"<style>:root {{ {PAPER[theme]} }} body {{ margin: 20px; background: var(--paper) }}</style>"
        f'<script type="importmap">{json.dumps({"imports": modules("figure", "svg_export")})}</script><body>'
        f'<script type="application/json" id="payloads">{embedded}</script>'
        f'<script type="module">{SCRIPT}</script></body></html>',
        encoding="utf-8",
    )
    page.goto(file.as_uri())
    page.wait_for_function("window.drawn === true")
    return page


def modules(*names: str) -> dict[str, str]:
    """These modules and all that they import, as data: addresses."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if f"headwise/{name}" not in found:
            code = (ASSETS / f"{name}.js").read_bytes()
            found[f"headwise/{name}"] = f"data:text/javascript;base64,{base64.b64encode(code).decode()}"
            waiting += re.findall(r'from "headwise/(\w+)"', code.decode())
    return found
