"""Files to take away: the table of all heads, as a spreadsheet or a program reads it."""

from __future__ import annotations

from fastapi.responses import Response

from headwise.server.answers import Missing
from headwise.server.shelf import Shelved

__all__ = ["download"]

NAMES = ("heads.csv", "heads.json")


def download(atlas: Shelved, name: str) -> Response:
    """One row a head, all studies joined."""
    if name not in NAMES:
        raise Missing(f"there is no such file; known are {', '.join(NAMES)}")
    table = atlas.atlas.heads().reset_index()
    if name.endswith(".csv"):
        body, kind = table.to_csv(index=False), "text/csv"
    else:
        body, kind = str(table.to_json(orient="records")), "application/json"
    headers = {"content-disposition": f'attachment; filename="{atlas.name}-{name}"', "cache-control": "no-cache"}
    return Response(body, media_type=kind, headers=headers)
