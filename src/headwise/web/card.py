"""The model's card: what an atlas knows of its model and its data, as labelled facts for the opening page.

Everything is read from the provenance of the studies. A fact that nobody wrote down is left out, and a model that was
loaded from a folder is named by the folder's last part (`figures.origin`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwise.atlas import Provenance
from headwise.figures.origin import UNKNOWN, model_name

__all__ = ["data_facts", "model_card", "origin_facts", "version_facts"]

_MODEL = {
    "family": "Family", "layers": "Layers", "heads": "Heads a layer", "kv_heads": "Key-value heads", "parameters": "Parameters",
    "dtype": "Numbers", "device": "Device", "adapter": "Adapter", "revision": "Revision", "digest": "Digest of the weights",
    "tokenizer": "Digest of the tokenizer",
}  # fmt: skip
_VERSIONS = {
    "headwise": "Headwise",
    "torch": "PyTorch",
    "transformers": "Transformers",
    "numpy": "NumPy",
    "python": "Python",
}

_COUNTED = {
    "profile": "passages", "patterns": "prompts", "sparsity": "prompts", "answers": "questions", "samples": "questions",
    "spectral": "answers", "detection": "answers", "probing": "answers", "functions": "steps",
    "function_masking": "functions", "relations": "pairs", "salience": "pairs", "relation_validation": "relations",
    "circuits": "pairs of prompts",
}  # fmt: skip  # what the size of a study's data counts; of a user's own study nobody knows

Fact = dict[str, Any]  # label, value


def model_card(origins: Iterable[Provenance]) -> dict[str, Any]:
    """Of the first study, with the id as others may read it, and the facts by label."""
    first = next(iter(origins), None)
    model = dict(first.model) if first is not None else {}
    name = model_name({"model": model}) or "a model"
    return {
        **{key: model[key] for key in ("layers", "heads", "kv_heads", "digest", "dtype") if model.get(key) is not None},
        "id": name,
        "short": name.rsplit("/", 1)[-1],
        "facts": _facts(_MODEL, model),
    }


def data_facts(origins: Mapping[str, Provenance]) -> list[Fact]:
    """The data the studies were measured on, each once, with the studies; another count of other things is another line."""
    found: dict[tuple[str, ...], Fact] = {}
    for study, origin in origins.items():
        data = origin.data
        told = {key: data.get(key) for key in ("name", "size", "digest")} | {"counted": _COUNTED.get(study, "")}
        found.setdefault(tuple(map(str, told.values())), {**told, "studies": []})["studies"].append(study)
    return list(found.values())


def version_facts(origins: Iterable[Provenance]) -> list[Fact]:
    """The versions that computed, each once; several where studies were measured by several."""
    found: dict[str, list[str]] = {}
    for origin in origins:
        for key, label in _VERSIONS.items():
            version = str(origin.environment.get(key, UNKNOWN))
            if version != UNKNOWN and version not in found.setdefault(label, []):
                found[label].append(version)
    return [{"label": label, "value": ", ".join(versions)} for label, versions in found.items() if versions]


def origin_facts(origin: Provenance) -> list[Fact]:
    """Where one study's numbers come from, as labelled facts."""
    data = origin.data
    facts = [
        {"label": "Model", "value": model_name({"model": origin.model})},
        {"label": "Weights", "value": str(origin.model.get("digest", ""))},
        {"label": "Data", "value": f"{data.get('name', 'unnamed')} ({_count(origin)})"},
        {"label": "Data digest", "value": str(data.get("digest", ""))},
        {"label": "Seed", "value": str(origin.seed)},
        {
            "label": "Parameters",
            "value": ", ".join(f"{key} {_plain(value)}" for key, value in origin.parameters.items()),
        },
        {"label": "Measured", "value": origin.created},
    ]
    return [fact for fact in facts if fact["value"]] + version_facts([origin])


def _count(origin: Provenance) -> str:
    """How many of what were measured, as "84 passages"."""
    size = origin.data.get("size")
    return "size unknown" if size is None else f"{size:,} {_COUNTED.get(origin.study, '')}".strip()


def _facts(labels: Mapping[str, str], values: Mapping[str, Any]) -> list[Fact]:
    return [
        {"label": label, "value": f"{values[key]:,}" if isinstance(values[key], int) else str(values[key])}
        for key, label in labels.items()
        if values.get(key) is not None
    ]


def _plain(value: Any) -> str:
    """A parameter for a reader; a model that is one is named, not spelt out."""
    if isinstance(value, Mapping):
        named = model_name({"model": value})
        return named or ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    if isinstance(value, list):
        return " ".join(map(_plain, value)) or "none"
    return "none" if value is None else str(value)
