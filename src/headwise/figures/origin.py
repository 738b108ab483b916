"""Where a figure's numbers came from, as it is written around them: the model in the title, the origin in small print.

This module does not know any study.
"""

from __future__ import annotations

import json
from typing import Any

import xarray as xr


def origin_of(dataset: xr.Dataset) -> dict[str, Any]:
    """The provenance of a Dataset; empty where it has none."""
    found: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
    return found


def with_model(title: str, origin: dict[str, Any]) -> str:
    """A title that ends with the model's own name, without who made it."""
    model = str(origin.get("model", {}).get("id", "")).rsplit("/", 1)[-1].removesuffix(".gguf")
    return f"{title}: {model}" if model else title


def small_print(origin: dict[str, Any]) -> str:
    """Model, data, seed and version on one line."""
    model, data = origin.get("model", {}), origin.get("data", {})
    size = ", ".join(_count(model, noun) for noun in ("layer", "head") if f"{noun}s" in model)
    about = ", ".join(str(part) for part in (size, model.get("dtype")) if part)
    parts = [
        f"{model['id']}{f' ({about})' if about else ''}" if "id" in model else "",
        f"data {data['name']} {str(data.get('digest', ''))[:12]}".strip() if "name" in data else "",
        f"seed {origin['seed']}" if "seed" in origin else "",
        f"headwise {origin['environment']['headwise']}" if "headwise" in origin.get("environment", {}) else "",
    ]
    return " · ".join(part for part in parts if part)


def cell_names(dataset: xr.Dataset, dim: str) -> tuple[str, ...]:
    """What is written at the cells of an axis of layers or heads."""
    places = dataset[dim].values if dim in dataset.coords else range(dataset.sizes[dim])
    return tuple(str(int(place)) for place in places)


def _count(model: dict[str, Any], noun: str) -> str:
    number = model[f"{noun}s"]
    return f"{number} {noun}{'' if number == 1 else 's'}"
