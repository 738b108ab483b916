"""An atlas in a notebook's cell: whose it is, which studies it holds, and what each found, with a small picture.

Steps, a study: read it once; its short words (`describe`); its first map as a thumbnail; its data from the provenance. A
study that is read as a table (answers) has neither words nor picture, and one that is damaged says so instead.

Cost: reading and describing every study, a few seconds for the whole atlas of a small model; kept for the process, so that
the same atlas shown again is there at once (an atlas that changed is read anew).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headwise.core.errors import HeadwiseError
from headwise.core.markup import Html, card, image, paragraph, table
from headwise.core.provenance import Provenance
from headwise.describe import describe
from headwise.figures import figure_of, has_figure
from headwise.figures.thumbnail import thumbnail

if TYPE_CHECKING:
    from headwise.atlas.atlas import Atlas

KEPT = 128  # studies
WIDTH, CELL = 150, 9  # CSS pixels of a thumbnail, and of one of its cells, at most


def atlas_html(atlas: Atlas) -> Html:
    """The card."""
    origins = atlas.origins()
    if not origins:
        return card("Atlas", paragraph("It is empty; fill it with headwise build."), note=atlas.place)
    model = next(iter(origins.values())).model
    size = f"{model.get('layers')} layers x {model.get('heads')} heads"
    rows = [_row(atlas, study, origin) for study, origin in origins.items()]
    return card(f"Atlas of {model.get('id')}", table(rows), note=f"{size} · {atlas.place}")


def headlines(atlas: Atlas) -> dict[str, str]:
    """Each study's short words; none for a study that is read as a table."""
    return {study: _shown(atlas, study, _state(atlas, origin))[0] for study, origin in atlas.origins().items()}


def _row(atlas: Atlas, study: str, origin: Provenance) -> tuple[object, ...]:
    words, picture = _shown(atlas, study, _state(atlas, origin))
    data = paragraph(f"{origin.data.get('name')} ({origin.data.get('size')})", quiet=True)
    small: object = ""
    if picture:
        small = image(picture, "image/png", "", width=min(WIDTH, CELL * _columns(picture)), pixels=True)
    return paragraph(study.replace("_", " ")), Html((paragraph(words) if words else "") + data), small


def _columns(picture: bytes) -> int:
    return int.from_bytes(picture[16:20], "big")  # of a PNG


def _state(atlas: Atlas, origin: Provenance) -> str:
    """Where the atlas is and what the study was: what is shown is kept by it."""
    return f"{atlas.place.address} {origin.key()} {origin.created}"


@lru_cache(maxsize=KEPT)
def _shown(atlas: Atlas, study: str, state: str) -> tuple[str, bytes | None]:
    """The short words and the thumbnail."""
    if not has_figure(study):
        return "", None
    try:
        dataset = atlas[study]
        return describe(study, dataset).short(), thumbnail(figure_of(study, dataset))
    except HeadwiseError as error:
        return str(error), None
