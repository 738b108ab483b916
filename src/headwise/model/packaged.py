"""The sparse adapter that comes with Headwise, for the default model (docs/studies/sparse.md says how it was trained)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from headwise.model.default import DEFAULT
from headwise.model.gate import FILE, gate_of
from headwise.model.model import Model

__all__ = ["packaged_adapter"]


def packaged_adapter(model: Model) -> Path | None:
    """The folder of the adapter that was trained on this very model; None for other models, and for sparse ones."""
    folder = Path(str(files("headwise.model") / "data" / "sparse"))
    if model.id != DEFAULT or model.adapter is not None or gate_of(model.hf) is not None:
        return None
    return folder if (folder / FILE).is_file() else None
