"""An atlas introduced on one page: as a card in a notebook cell, and as the README.md of its repository on the hub.

Both state the model, what each study found (the words of `describe`), and the provenance; the notebook adds a thumbnail of
each study's first figure, the README how to open the atlas with Headwise and with plain xarray. A study without a figure
(answers) is read as a table; a corrupt study shows its error. The README claims no licence: the licence of the data that
the studies used is unknown here.

Cost: reading and describing every study, a few seconds for a small model; cached per process until a study changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from headwise.core.errors import HeadwiseError
from headwise.core.markup import Html, card, image, paragraph, table
from headwise.core.provenance import Provenance, public_name
from headwise.figures.thumbnail import thumbnail
from headwise.studies.present import describe, figure_of, has_figure

if TYPE_CHECKING:
    from headwise.atlas.atlas import Atlas

CACHED_STUDIES = 128
MAX_WIDTH, CELL_WIDTH = 150, 9  # CSS pixels of a thumbnail, and of one of its cells


def atlas_html(atlas: Atlas) -> Html:
    """The card for a notebook."""
    provenances = atlas.provenances()
    if not provenances:
        return card("Atlas", paragraph("It is empty; fill it with headwise build."), note=atlas.location)
    model = next(iter(provenances.values())).model
    size = f"{model.get('layers')} layers x {model.get('heads')} heads"
    rows = [_row(atlas, study, provenance) for study, provenance in provenances.items()]
    return card(f"Atlas of {model.get('id')}", table(rows), note=f"{size} · {atlas.location}")


def headlines(atlas: Atlas) -> dict[str, str]:
    """Study -> its description in one line; empty for a study that is read as a table."""
    return {study: _summary(atlas, study, _version(atlas, one))[0] for study, one in atlas.provenances().items()}


def _row(atlas: Atlas, study: str, provenance: Provenance) -> tuple[object, ...]:
    words, png = _summary(atlas, study, _version(atlas, provenance))
    data = paragraph(f"{provenance.data.get('name')} ({provenance.data.get('size')})", quiet=True)
    small: object = ""
    if png:
        columns = int.from_bytes(png[16:20], "big")  # the width field of a PNG header
        small = image(png, "image/png", "", width=min(MAX_WIDTH, CELL_WIDTH * columns), pixels=True)
    return paragraph(study.replace("_", " ")), Html((paragraph(words) if words else "") + data), small


def _version(atlas: Atlas, provenance: Provenance) -> str:
    """The cache key of a study's summary."""
    return f"{atlas.location.address} {provenance.key()} {provenance.created}"


@lru_cache(maxsize=CACHED_STUDIES)
def _summary(atlas: Atlas, study: str, version: str) -> tuple[str, bytes | None]:
    """The description in one line, and the thumbnail."""
    if not has_figure(study):
        return "", None
    try:
        dataset = atlas[study]
        return describe(study, dataset).short(), thumbnail(figure_of(study, dataset))
    except HeadwiseError as error:
        return str(error), None


def hub_readme(repo_id: str, provenances: Mapping[str, Provenance], headlines: Mapping[str, str]) -> str:
    """Markdown with the YAML front matter that the hub reads."""
    model = next(iter(provenances.values())).model if provenances else {}
    name = public_name(str(model.get("id") or "")) or "a language model"
    title = json.dumps(f"Atlas of {name}", ensure_ascii=False)  # YAML reads JSON strings
    tags = "\n".join(f"- {tag}" for tag in ("headwise", "attention", "interpretability", "zarr"))
    found = "\n".join(f"- **{study}**: {_one_line(headlines.get(study) or 'a table')}" for study in provenances)
    rows = "\n".join(
        f"| {study} | {_cell(one.data.get('name'))} ({one.data.get('size')}) | {one.seed} | {one.created} "
        f"| {_cell(one.environment.get('headwise'))} |"
        for study, one in provenances.items()
    )
    example = next((study for study in provenances if headlines.get(study)), "profile")
    return f"""---
pretty_name: {title}
tags:
{tags}
viewer: false
---

# Atlas of {name}

What each attention head of {name} ({model.get("layers")} layers x {model.get("heads")} heads) does, measured with Headwise. \
Weights digest: `{model.get("digest")}`.

## What was found

{found}

## Open it

```python
import headwise as hw

atlas = hw.Atlas.open("hf://datasets/{repo_id}")
atlas.heads()                       # one row per head
atlas.figure("{example}")             # in a notebook, the figure
```

Without Headwise, it is a Zarr group:

```python
import huggingface_hub, xarray

folder = huggingface_hub.snapshot_download("{repo_id}", repo_type="dataset")
tree = xarray.open_datatree(folder, engine="zarr")
```

## Where the numbers come from

| study | data | seed | measured | Headwise |
|---|---|---|---|---|
{rows}
"""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(value: object) -> str:
    return _one_line(str(value)).replace("|", "\\|")
