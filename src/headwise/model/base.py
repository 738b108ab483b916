"""Is this the model that an adapter was trained on? An adapter of the right shape fits many models and means nothing on most.

Two things tell: the model's name, as the adapter's gate file (`gate.FILE`) has it, and a digest of the weights that lay
under the adapter while it was trained. The same name is enough, wherever the model lies: a quantised copy has other
weights, and is what the adapter is for. Under another name the weights must be the same.

The digest is of the weights cast to bfloat16, so that it does not depend on the dtype a model is loaded in. Adapters of
other makers have no gate file, and are not looked at: the names in theirs are often of a folder that is long gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from headwise.core.errors import ModelError
from headwise.model.digest import named_weights, tensors_digest

__all__ = ["base_digest", "refuse_other_base"]


def base_digest(hf: Any) -> str:
    """Of a model without an adapter; milliseconds."""
    return tensors_digest(named_weights(hf), hf.config, torch.bfloat16)


def refuse_other_base(hf: Any, name: str, adapter: str | Path, gate: Mapping[str, Any] | None) -> None:
    """Refuse a sparse adapter on a model that it was not trained on; ``name``: what the model is called here."""
    trained_on = str((gate or {}).get("model") or "")
    if gate is None or not trained_on or _own_name(name) == _own_name(trained_on):
        return
    if gate.get("digest"):
        if gate["digest"] == base_digest(hf):
            return
    elif name == type(hf).__name__:  # in memory, without a name: nothing to tell by
        return
    raise ModelError(
        f"The sparse adapter {adapter} was trained on {trained_on}, and this model is {name}, with other weights; use it with "
        f"{trained_on}, or train one for this model with headwise sparsify."
    )


def _own_name(name: str) -> str:
    """Without who made it, or the folder it lies in.

    >>> _own_name("who/Model-1"), _own_name("/models/Model-1/")
    ('model-1', 'model-1')
    """
    return name.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf").lower()
