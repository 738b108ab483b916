"""The provenance of a figure as text: the model in the title, model, data, seed and version in a caption.

Figures are shown to others, so folder names stay private: a model loaded from a path is named by its last part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from headwise.core.parsing import parse_attribute
from headwise.core.provenance import ATTRIBUTE, QUICK, StoredProvenance, public_name
from headwise.studies.registry import dataset_spec

UNKNOWN = "not installed"  # the recorded version where it was unknown
QUICK_MARK = "QUICK BUILD, for a first look"


def provenance_of(dataset: xr.Dataset) -> dict[str, Any]:
    """The provenance of a Dataset; empty where it has none."""
    return dict(parse_attribute(dataset.attrs, ATTRIBUTE, StoredProvenance, "{}"))


def model_name(origin: dict[str, Any]) -> str:
    """The model's id as others may read it (`public_name`); empty where it was not recorded."""
    return public_name(str(origin.get("model", {}).get("id", "")))


def is_quick(origin: Mapping[str, Any]) -> bool:
    """Whether a quick build measured it."""
    return bool(origin.get("parameters", {}).get(QUICK))


def with_model(title: str, origin: dict[str, Any]) -> str:
    """A title that ends with the model's own name, without who made it."""
    model = model_name(origin).rsplit("/", 1)[-1].removesuffix(".gguf")
    return f"{title}: {model}" if model else title


def provenance_caption(origin: dict[str, Any]) -> str:
    """Model, data, seed and version on one line; first whether a quick build measured it."""
    model, data = origin.get("model", {}), origin.get("data", {})
    version = origin.get("environment", {}).get("headwise", UNKNOWN)
    size = ", ".join(_count(model, noun) for noun in ("layer", "head") if f"{noun}s" in model)
    about = ", ".join(str(part) for part in (size, model.get("dtype")) if part)
    parts = [
        QUICK_MARK if is_quick(origin) else "",
        f"{model_name(origin)}{f' ({about})' if about else ''}" if "id" in model else "",
        f"weights de-quantised from {model['dequantised_from']}" if model.get("dequantised_from") else "",
        _data(data, _made_from(str(origin.get("study")))) if "name" in data else "",
        f"seed {origin['seed']}" if "seed" in origin else "",
        "" if version == UNKNOWN else f"headwise {version}",
    ]
    return " · ".join(part for part in parts if part)


def _made_from(study: str) -> str | None:
    """The study whose map this one starts from, where that map's digest identifies the data."""
    spec = dataset_spec(study)
    return spec.made_from or None if spec is not None else None


def _data(data: dict[str, Any], made_from: str | None) -> str:
    """The data with their digest; of a study that starts from another's map, the digest of that, and whose it is.

    >>> _data({"name": "steps", "digest": "c13a6ded74682317"}, None), _data({"name": "steps", "digest": "ba64"}, "functions")
    ('data steps c13a6ded7468', 'data steps · made from the functions map ba64')
    """
    digest = str(data.get("digest", ""))[:12]
    if made_from is None:
        return f"data {data['name']} {digest}".strip()
    return f"data {data['name']} · made from the {made_from} map {digest}".strip()


def cell_names(dataset: xr.Dataset, dim: str) -> tuple[str, ...]:
    """What is written at the cells of an axis of layers or heads."""
    indices = dataset[dim].values if dim in dataset.coords else range(dataset.sizes[dim])
    return tuple(str(int(index)) for index in indices)


def _count(model: dict[str, Any], noun: str) -> str:
    number = model[f"{noun}s"]
    return f"{number} {noun}{'' if number == 1 else 's'}"
