"""PEFT adapters: a few trained matrices beside a model's own, kept apart and never merged here.

An adapter is injected into the ``transformers`` model itself (its layers gain side branches), so the model keeps its
class and everything that reads it goes on working. Adapters that add virtual tokens are refused: every position of a
text would be shifted. An adapter that does not fit is refused too; ``peft`` would leave it at its random start. One that
was trained with gates (`headwise sparsify`) makes the model's attention gated, too.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from transformers.utils.peft_utils import find_adapter_config_file

from headwise.core.errors import ModelError
from headwise.model.base import refuse_other_base
from headwise.model.failures import in_words
from headwise.model.gate import gate_note, put_gate
from headwise.model.offload import is_offloaded
from headwise.model.quiet import quiet

__all__ = ["AdapterNote", "adapter_note", "add_adapter", "require_adapter", "unwrap"]


class AdapterNote(dict[str, Any]):
    """What an ``adapter_config.json`` says."""

    @property
    def base(self) -> str | None:
        return self.get("base_model_name_or_path")


def adapter_note(name: str | Path, finding: dict[str, Any]) -> AdapterNote | None:
    """The note of a folder or hub repository that holds an adapter; ``None`` where there is none."""
    with quiet(), in_words(str(name)):
        try:
            file = find_adapter_config_file(str(name), **finding)
        except OSError:
            return None
        return None if file is None else AdapterNote(json.loads(Path(file).read_text()))


def require_adapter(adapter: str | Path, finding: dict[str, Any]) -> AdapterNote:
    """The note of an adapter; refuses what is none, at once where it can be neither a folder nor a name on the hub."""
    if importlib.util.find_spec("peft") is None:
        raise ModelError(f'The adapter {adapter} needs the package peft; run `pip install "headwise[peft]"`.')
    there = Path(adapter).expanduser().is_dir()
    if not there and str(adapter).count("/") != 1:
        raise ModelError(
            f"There is no folder {str(adapter)!r}; give a PEFT adapter's folder, or its hub id as owner/name."
        )
    note = adapter_note(adapter, finding)
    if note is None:
        where = "" if there else " and is no folder here"
        raise ModelError(
            f"{adapter} holds no adapter (no adapter_config.json was found){where}; give a PEFT adapter's folder, or its hub "
            "id as owner/name."
        )
    return note


def add_adapter(hf: Any, adapter: str | Path, finding: dict[str, Any], name: str) -> None:
    """Puts an adapter on top of a loaded model, in place; ``name``: what the model is called."""
    note, gate = require_adapter(adapter, finding), gate_note(adapter, finding)
    if is_offloaded(hf):  # peft would leave the adapter's own matrices there without values
        raise ModelError(
            f"The adapter {adapter} cannot be put on {name}, parts of which are offloaded; merge it (merge_and_unload), save "
            "the result with save_pretrained, and load that."
        )
    refuse_other_base(hf, name, adapter, gate)
    with quiet(), in_words(str(adapter)):
        try:
            loaded = hf.load_adapter(str(adapter), adapter_kwargs=dict(finding))
        except (ValueError, RuntimeError) as error:
            if "prompt learning" in str(error):
                raise ModelError(_virtual_tokens(f"The adapter {adapter}")) from error
            why = (
                "its matrices have other shapes"
                if "ignore_mismatched_sizes" in str(error)
                else str(error).splitlines()[0]
            )
            raise ModelError(
                f"The adapter {adapter} could not be put on this model ({why}); use it with the "
                f"model that it was trained on ({note.base})."
            ) from error
    missing = sorted(getattr(loaded, "missing_keys", None) or ())
    if missing:
        raise ModelError(
            f"The adapter {adapter} does not fit this model: it has nothing for {missing[0]} and {len(missing) - 1} "
            f"others; use it with the model that it was trained on ({note.base})."
        )
    if gate is not None:
        put_gate(hf, gate["bias"])


def unwrap(model: Any) -> Any:
    """The ``transformers`` model inside a ``PeftModel``, with its adapter in place; any other model as it is."""
    if not (hasattr(model, "peft_config") and hasattr(model, "get_base_model")):
        return model
    if model.active_peft_config.is_prompt_learning:
        raise ModelError(_virtual_tokens("This model's adapter"))
    return model.get_base_model()


def _virtual_tokens(who: str) -> str:
    return f"{who} adds virtual tokens in front of every text, which would shift all positions; use a LoRA adapter."
