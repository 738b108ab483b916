"""A whole atlas made up: the studies of the other files here, stored as `build` would store them.

Texts can be planted: ``named`` becomes the model's id, and with ``hostile`` words that a careless page would run as HTML stand
in titles, tokens, questions and answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from headwise.atlas import Atlas
from synthetic.causal import causal_dataset
from synthetic.causal_answers import causal_answers_dataset
from synthetic.detection import detection_dataset
from synthetic.function_masking import function_masking_dataset
from synthetic.functions import functions_dataset
from synthetic.origin import provenance
from synthetic.patterns import patterns_dataset
from synthetic.probing import probing_dataset
from synthetic.profile import profile_dataset
from synthetic.relation_validation import relation_validation_dataset
from synthetic.relations import relations_dataset
from synthetic.spectral import spectral_dataset
from synthetic.streaming import streaming_dataset
from synthetic.uncertainty import uncertainty_dataset

HOSTILE = '</script><img src=x onerror="window.broken=1"><script>window.broken=1</script>'
MAKERS = {
    "profile": profile_dataset,
    "patterns": patterns_dataset,
    "causal": causal_dataset,
    "causal_answers": causal_answers_dataset,
    "spectral": spectral_dataset,
    "detection": lambda layers, heads: detection_dataset(layers),
    "streaming": streaming_dataset,
    "uncertainty": uncertainty_dataset,
    "probing": probing_dataset,
    "relations": relations_dataset,
    "relation_validation": relation_validation_dataset,
    "functions": functions_dataset,
    "function_masking": lambda layers, heads: function_masking_dataset(),
}
RECORD = {  # what goes into the head table, where a synthetic study does not say so itself
    "profile": ["value"],
    "spectral": ["p", "q", "effect"],
    "probing": ["head_auroc", "head_q"],
    "relations": ["categories", "best", "best_score"],
    "functions": ["importance", "best"],
}
SMALL = ("profile", "patterns", "spectral", "detection", "relations", "functions")


def synthetic_atlas(
    path: Path, layers: int = 8, heads: int = 6, studies: Sequence[str] = SMALL, *, hostile: bool = False
) -> Atlas:
    """An atlas of these studies in a new folder."""
    atlas = Atlas.create(path)
    for study in studies:
        dataset = salience_dataset(layers, heads) if study == "salience" else MAKERS[study](layers, heads)
        dataset = dataset.assign_attrs({"record": json.dumps(RECORD.get(study, [])), "title": study, **dataset.attrs})
        atlas.add(study, _planted(dataset) if hostile else dataset)
    return atlas


def salience_dataset(layers: int, heads: int, *, size: int = 40) -> xr.Dataset:
    """The tokens each head acts on most: token ``(layer + head + rank) % size`` at each rank."""
    rank, target = 6, 2
    place = np.add.outer(np.add.outer(np.arange(layers), np.arange(heads)), np.arange(rank)) % size
    text = np.array([f" word{number}" for number in range(size)], dtype=object)
    return xr.Dataset(
        {
            "strength": (("layer", "head", "rank"), (10.0 - place / 10).astype(np.float32)),
            "token": (("layer", "head", "rank"), place.astype(np.int32)),
            "targets": (("layer", "head", "rank", "target"), np.stack([place, (place + 1) % size], -1).astype(np.int32)),
            "text": (("vocabulary",), text),
            "tokens": (("layer", "head"), np.full((layers, heads), "word", dtype=object)),
        },
        coords={
            "layer": np.arange(layers), "head": np.arange(heads), "rank": np.arange(rank), "target": np.arange(target),
            "vocabulary": np.arange(size, dtype=np.int32),
        },
        attrs={
            "title": "The tokens each head acts on most", "record": '["tokens"]', "left_out": 0,
            "provenance": provenance("salience", layers, heads, data="packaged relations", size=4455),
        },
    )  # fmt: skip


def _planted(dataset: xr.Dataset) -> xr.Dataset:
    """The same with hostile text wherever a page shows text of the data."""
    planted = dataset.assign_attrs(title=f"{dataset.attrs.get('title', '')} {HOSTILE}".strip())
    for name in ("token_text", "text", "label"):
        if name in planted and planted[name].ndim == 1:
            planted[name] = planted[name].copy(
                data=np.array([f"{one}{HOSTILE}" for one in planted[name].values], dtype=object)
            )
    return planted
