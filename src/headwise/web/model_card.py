"""The model card, the data and the versions of an atlas, as labelled facts for the home page.

Everything is read from the studies' provenance. Missing facts are omitted; a model loaded from a folder is named by the
folder's last part (`figures.provenance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwise.atlas import Provenance
from headwise.core.provenance import public_name
from headwise.figures.provenance import UNKNOWN, model_name
from headwise.studies.registry import dataset_spec

MODEL_LABELS = {
    "family": "Family", "layers": "Layers", "heads": "Heads per layer", "kv_heads": "Key-value heads",
    "parameters": "Parameters", "dtype": "Dtype", "dequantised_from": "De-quantised from",
    "device": "Device", "adapter": "Adapter", "revision": "Revision",
    "digest": "Weights digest", "tokenizer": "Tokenizer digest",
}  # fmt: skip
VERSION_LABELS = {
    "headwise": "Headwise",
    "torch": "PyTorch",
    "transformers": "Transformers",
    "numpy": "NumPy",
    "python": "Python",
}

Fact = dict[str, Any]  # label, value


def model_card(provenances: Iterable[Provenance]) -> dict[str, Any]:
    """The first study's model: id, shape, and facts by label."""
    first = next(iter(provenances), None)
    model = dict(first.model) if first is not None else {}
    if model.get("adapter"):
        model["adapter"] = public_name(str(model["adapter"]))
    name = model_name({"model": model}) or "a model"
    return {
        **{key: model[key] for key in ("layers", "heads", "kv_heads", "digest", "dtype") if model.get(key) is not None},
        "id": name,
        "short": name.rsplit("/", 1)[-1],
        "facts": _facts(MODEL_LABELS, model),
    }


def data_facts(provenances: Mapping[str, Provenance]) -> list[Fact]:
    """The data of the studies, each once with its studies; a different size is a separate entry."""
    found: dict[tuple[str, ...], Fact] = {}
    for study, provenance in provenances.items():
        data = provenance.data
        entry = {key: data.get(key) for key in ("name", "size", "digest")} | {"counted": _counted(study)}
        found.setdefault(tuple(map(str, entry.values())), {**entry, "studies": []})["studies"].append(study)
    return list(found.values())


def version_facts(provenances: Iterable[Provenance]) -> list[Fact]:
    """Software versions; several where the studies differ."""
    found: dict[str, list[str]] = {}
    for provenance in provenances:
        for key, label in VERSION_LABELS.items():
            version = str(provenance.environment.get(key, UNKNOWN))
            if version != UNKNOWN and version not in found.setdefault(label, []):
                found[label].append(version)
    return [{"label": label, "value": ", ".join(versions)} for label, versions in found.items() if versions]


def provenance_facts(provenance: Provenance) -> list[Fact]:
    """One study's provenance as labelled facts."""
    data = provenance.data
    facts = [
        {"label": "Model", "value": model_name({"model": provenance.model})},
        {"label": "Weights", "value": str(provenance.model.get("digest", ""))},
        {"label": "Data", "value": f"{data.get('name', 'unnamed')} ({_count(provenance)})"},
        {"label": "Data digest", "value": str(data.get("digest", ""))},
        {"label": "Seed", "value": str(provenance.seed)},
        {
            "label": "Parameters",
            "value": ", ".join(f"{key} {_plain(value)}" for key, value in provenance.parameters.items()),
        },
        {"label": "Measured", "value": provenance.created},
    ]
    return [fact for fact in facts if fact["value"]] + version_facts([provenance])


def _count(provenance: Provenance) -> str:
    """The size of the data, as "84 passages"."""
    size = provenance.data.get("size")
    return "size unknown" if size is None else f"{size:,} {_counted(provenance.study)}".strip()


def _counted(study: str) -> str:
    """What the size of a study's data counts; empty for a study that is not installed."""
    spec = dataset_spec(study)
    return "" if spec is None else spec.examples


def _facts(labels: Mapping[str, str], values: Mapping[str, Any]) -> list[Fact]:
    return [
        {"label": label, "value": f"{values[key]:,}" if isinstance(values[key], int) else str(values[key])}
        for key, label in labels.items()
        if values.get(key) is not None
    ]


def _plain(value: Any) -> str:
    """A parameter as text; a model by its name."""
    if isinstance(value, Mapping):
        named = model_name({"model": value})
        return named or ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    if isinstance(value, list):
        return " ".join(map(_plain, value)) or "none"
    return "none" if value is None else str(value)
