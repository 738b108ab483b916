"""Where did these numbers come from? No Dataset goes into an atlas without the answer.

A ``Provenance`` names everything that fixes a map: the study and its version, the model (with a digest of its weights),
the data (with a digest of its content), the parameters and the seed. Those parts are its *identity*, and ``key()`` is a
short digest of them: two runs with the same key may share work, two with different keys never do. The environment and
the time are stored too, but they are not part of the key.

Cost: negligible. The digests of model and data are passed in.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import PureWindowsPath
from typing import Any, TypedDict

import msgspec

from headwise import __version__
from headwise.core.errors import AtlasError
from headwise.core.parsing import Count, convert, parse_attribute

__all__ = ["QUICK", "Provenance", "StoredProvenance", "difference", "environment", "public_name"]

ATTRIBUTE = "provenance"
QUICK = "quick"  # the parameter that marks what a quick build measured
_IDENTITY = ("study", "study_version", "model", "data", "parameters", "seed")
_DERIVED = ("parameters", "dequantised_from")  # of a model: follows from the rest, for readers; older atlases lack it


def environment() -> dict[str, str]:
    """Versions of what computes: our own, and those of installed packages, read without importing them."""
    found = {"headwise": __version__}
    for package in ("torch", "transformers", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found | {"python": platform.python_version(), "platform": platform.platform()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def public_name(model: str) -> str:
    r"""A model or adapter as others may read it: a hub id as it is, of a path the last part only.

    An atlas stores what `load` was given, because `detect` and `serve --live` load the model by it. Pages, figures, words,
    exports, cards and answers of the server name it by this function, so that they do not tell where it is on a machine.

    >>> [public_name(one) for one in ("who/model", "/home/me/model.gguf", "../model", r"C:\me\model", "a/b/c", "")]
    ['who/model', 'model.gguf', 'model', 'model', 'c', '']
    """
    path = PureWindowsPath(model)  # takes both kinds of stroke
    hub_id = len(path.parts) <= 2 and not (path.root or path.drive or {".", "..", "~"} & set(path.parts))
    return model if hub_id and not model.startswith(".") else path.name or "model"


class _Model(msgspec.Struct):
    """What is read of a model; None where an older Headwise did not record it."""

    id: str | None = None
    revision: str | None = None
    adapter: str | None = None
    digest: str | None = None
    tokenizer: str | None = None
    layers: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    parameters: Count | None = None
    dtype: str | None = None
    device: str | None = None
    dequantised_from: str | None = None


class _Data(msgspec.Struct):
    name: str | None = None
    size: Count | None = None


class StoredProvenance(TypedDict, total=False):
    """The attribute as it is in an atlas."""

    study: str
    study_version: Count
    model: dict[str, Any]
    data: dict[str, Any]
    parameters: dict[str, Any]
    seed: int
    environment: dict[str, Any]
    created: str


@dataclass(frozen=True)
class Provenance:
    """The origin of one study's numbers. Every field is JSON: what is not (a tuple, say) is made so or refused.

    Examples:
        >>> origin = Provenance("profile", 1, {"id": "m"}, {"name": "mine", "size": 2}, {"period": 16}, seed=0)
        >>> origin.key()  # the same for the same study of the same model, data, parameters and seed
        '954035616efc93d6'
        >>> Provenance.from_attrs(origin.to_attrs()) == origin
        True
    """

    study: str  # its name
    study_version: int  # raised when the study computes other numbers from the same readings
    model: dict[str, Any]
    """id, revision, digest, tokenizer (its digest), layers, heads, kv_heads, parameters, dtype, device, dequantised_from"""
    data: dict[str, Any]
    """name, digest, size (the number of examples)"""
    parameters: dict[str, Any]  # the study's options
    seed: int  # of everything that is drawn
    environment: dict[str, Any] = field(default_factory=environment)  # versions of what computed it
    created: str = field(default_factory=_now)
    """ISO 8601, UTC"""

    def __post_init__(self) -> None:
        for name in ("model", "data", "parameters", "environment"):
            value = getattr(self, name)
            try:
                plain = json.loads(_canonical(value))
            except (TypeError, ValueError) as cause:
                raise AtlasError(
                    f"The {name} of a provenance must be plain JSON (text, finite numbers, lists, mappings), "
                    f"but {value!r} is not: {cause}."
                ) from cause
            object.__setattr__(self, name, plain)

    def of_quick_build(self) -> Provenance:
        """The same, marked as measured by a quick build."""
        return replace(self, parameters=self.parameters | {QUICK: True})

    @property
    def quick(self) -> bool:
        """Whether a quick build measured it."""
        return bool(self.parameters.get(QUICK))

    def identity(self) -> dict[str, Any]:
        """The parts that fix the numbers: all but the environment, the time, and what the model's other facts imply."""
        found = {name: getattr(self, name) for name in _IDENTITY}
        return found | {"model": {part: value for part, value in self.model.items() if part not in _DERIVED}}

    def key(self) -> str:
        """A digest of the identity, 16 hex digits; the order of mappings does not matter."""
        return hashlib.blake2b(_canonical(self.identity()).encode(), digest_size=8).hexdigest()

    def to_attrs(self) -> dict[str, str]:
        """For a Dataset: ``dataset.attrs.update(provenance.to_attrs())``."""
        return {ATTRIBUTE: _canonical(asdict(self))}

    @classmethod
    def from_attrs(cls, attrs: Mapping[Any, Any]) -> Provenance:
        """Back from a Dataset's attrs."""
        if attrs.get(ATTRIBUTE) is None:
            raise AtlasError(
                f"This Dataset has no attribute {ATTRIBUTE!r}, so its numbers have no origin; "
                "add it with dataset.attrs.update(provenance.to_attrs())."
            )
        stored: StoredProvenance = parse_attribute(attrs, ATTRIBUTE, StoredProvenance)
        try:
            missing = [name for name in _IDENTITY if name not in stored]
            if missing:
                raise ValueError(f"it has no {missing[0]}")
            convert(stored["model"], _Model)
            convert(stored["data"], _Data)
        except ValueError as cause:
            raise AtlasError(f"The attribute {ATTRIBUTE!r} is not one Headwise wrote: {cause}.") from cause
        return cls(**stored)


def difference(a: Provenance, b: Provenance) -> list[str]:
    """How two origins differ.

    Args:
        a: one.
        b: the other.

    Returns:
        One sentence per difference; empty where they agree (the time is ignored).

    Examples:
        >>> a = Provenance("profile", 1, {"id": "m"}, {"name": "passages", "size": 72}, {"block": 64}, 0)
        >>> b = Provenance("profile", 1, {"id": "m"}, {"name": "my.jsonl", "size": 10}, {}, 0)
        >>> difference(a, b)
        ['data: passages (72) against my.jsonl (10)', 'parameters: block 64 against not set']
    """
    found = [
        f"{name.replace('_', ' ')}: {getattr(a, name)} against {getattr(b, name)}"
        for name in ("study", "study_version", "seed")
        if getattr(a, name) != getattr(b, name)
    ]
    if a.data != b.data:
        one, other = _data_name(a.data), _data_name(b.data)
        found.append(f"data: {one} against {other}" + (", of the same name but other content" if one == other else ""))
    for name in ("model", "parameters", "environment"):
        one, other = getattr(a, name), getattr(b, name)
        found += [
            f"{name}: {part} {_shown(one, part)} against {_shown(other, part)}"
            for part in sorted(one.keys() | other.keys())
            if _shown(one, part) != _shown(other, part) and not (name == "model" and part in _DERIVED)
        ]
    return sorted(found)


def _data_name(data: Mapping[str, Any]) -> str:
    return f"{data.get('name', 'unnamed')} ({data.get('size', 'size unknown')})"


def _shown(values: Mapping[str, Any], part: str) -> str:
    return str(values[part]) if part in values else "not set"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
