"""The page that an atlas has on the Hugging Face hub: README.md, with the YAML block that the hub reads.

It says of which model the atlas is, what each study found (the same words as everywhere), where the numbers come from, and
how to open it with Headwise and with plain xarray. Nothing in it was not computed or read from the atlas; what the data of
the studies allow others to do with it is not known here, so no licence is claimed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from headwise.core.provenance import Provenance

__all__ = ["hub_card"]


def hub_card(repo_id: str, origins: Mapping[str, Provenance], headlines: Mapping[str, str]) -> str:
    """Markdown with front matter. ``headlines`` are the studies' short words; a study may have none."""
    model = next(iter(origins.values())).model if origins else {}
    name = str(model.get("id", "a language model"))
    blocks = [
        _front_matter(name),
        f"# Atlas of {name}",
        f"What each attention head of {name} ({model.get('layers')} layers x {model.get('heads')} heads) does, measured "
        f"with Headwise. Weights digest: `{model.get('digest')}`.",
        "## What was found",
        "\n".join(f"- **{study}**: {_line(headlines.get(study) or 'a table')}" for study in origins),
        "## Open it",
        _opening(repo_id, next((study for study in origins if headlines.get(study)), "profile")),
        "## Where the numbers come from",
        _origins(origins),
    ]
    return "\n\n".join(blocks) + "\n"


def _front_matter(model: str) -> str:
    """Texts are quoted as JSON, which YAML reads."""
    lines = ["---", f"pretty_name: {json.dumps(f'Atlas of {model}', ensure_ascii=False)}"]
    lines += ["tags:", *(f"- {tag}" for tag in ("headwise", "attention", "interpretability", "zarr"))]
    return "\n".join([*lines, "viewer: false", "---"])


def _opening(repo_id: str, study: str) -> str:
    return f"""```python
import headwise as hw

atlas = hw.Atlas.open("hf://datasets/{repo_id}")
atlas.heads()                       # one row a head
atlas.figure("{study}")             # in a notebook, the picture
```

Without Headwise, it is a Zarr group:

```python
import huggingface_hub, xarray

folder = huggingface_hub.snapshot_download("{repo_id}", repo_type="dataset")
tree = xarray.open_datatree(folder, engine="zarr")
```"""


def _origins(origins: Mapping[str, Provenance]) -> str:
    head = ["| study | data | seed | measured | Headwise |", "|---|---|---|---|---|"]
    rows = [
        f"| {study} | {_cell(origin.data.get('name'))} ({origin.data.get('size')}) | {origin.seed} | {origin.created} "
        f"| {_cell(origin.environment.get('headwise'))} |"
        for study, origin in origins.items()
    ]
    return "\n".join(head + rows)


def _line(words: str) -> str:
    return " ".join(words.split())


def _cell(words: object) -> str:
    return _line(str(words)).replace("|", "\\|")
