"""PEFT adapters: a few trained matrices on top of a model's own, never merged here.

An adapter is injected into the ``transformers`` model itself (its layers gain side branches), so the model keeps its class.
Refused: adapters that add virtual tokens (all positions would shift), and adapters that do not fit (``peft`` would leave
them at their random initialisation). An adapter trained with gates (`headwise sparsify`) makes the attention gated, too.

Is this the model the adapter was trained on? An adapter fits many models by shape and is meaningless on most. A sparse
adapter's gate file records the base model's name and a digest of its weights. The same name suffices: a quantised copy has
other weights and is a legitimate base. Under another name the weights must match; the digest is of weights cast to
bfloat16, so it does not depend on the loaded dtype. Adapters without a gate file are not checked.
"""

from __future__ import annotations

import importlib.util
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from safetensors import safe_open
from transformers.utils.peft_utils import find_adapter_config_file

from headwise.core.errors import ModelError
from headwise.core.parsing import parse
from headwise.model.digest import named_weights, tensors_digest
from headwise.model.gate import FILE, GateNote, gate_note, gate_of, put_gate
from headwise.model.library_calls import silence_transformers, translate_load_errors
from headwise.model.model import Model
from headwise.model.offload import is_offloaded
from headwise.model.sources import DEFAULT

WEIGHTS = "adapter_model.safetensors"
Rank = Annotated[int, msgspec.Meta(ge=0, le=2**16)]


class AdapterConfig(msgspec.Struct):
    """What is read of an ``adapter_config.json``."""

    base: str | None = msgspec.field(default=None, name="base_model_name_or_path")  # the name of the base model
    revision: str | None = None  # of the base model
    rank: Rank | None = msgspec.field(default=None, name="r")
    rank_pattern: dict[str, Rank] | None = None  # module -> rank, where it is another


def read_adapter_config(name: str | Path, hub: dict[str, Any]) -> AdapterConfig | None:
    """The config of the adapter in a folder or hub repository; ``None`` if there is none."""
    with silence_transformers(), translate_load_errors(str(name)):
        try:
            file = find_adapter_config_file(str(name), **hub)
        except OSError:
            return None
        if file is None:
            return None
    try:
        return parse(Path(file).read_bytes(), AdapterConfig)
    except ValueError as error:
        raise ModelError(f"{file} is not the config of an adapter ({error}); copy or download it again.") from error


def require_adapter(adapter: str | Path, hub: dict[str, Any]) -> AdapterConfig:
    """The config of an adapter; refuses anything else, without a request if it cannot be a name on the hub."""
    if importlib.util.find_spec("peft") is None:
        raise ModelError(f'The adapter {adapter} needs the package peft; run `pip install "headwise[peft]"`.')
    is_folder = Path(adapter).expanduser().is_dir()
    if not is_folder and str(adapter).count("/") != 1:
        raise ModelError(
            f"There is no folder {str(adapter)!r}; give a PEFT adapter's folder, or its hub id as owner/name."
        )
    config = read_adapter_config(adapter, hub)
    if config is None:
        where = "" if is_folder else " and is not a local folder"
        raise ModelError(
            f"{adapter} contains no adapter (no adapter_config.json was found){where}; give a PEFT adapter's folder, or its "
            "hub id as owner/name."
        )
    return config


def add_adapter(hf: Any, adapter: str | Path, hub: dict[str, Any], name: str) -> None:
    """Add an adapter to a loaded model, in place; ``name``: the model's name."""
    config, gate = require_adapter(adapter, hub), gate_note(adapter, hub)
    if is_offloaded(hf):  # peft would leave the adapter's own matrices without values
        raise ModelError(
            f"The adapter {adapter} cannot be added to {name}, parts of which are offloaded; merge it (merge_and_unload), "
            "save the result with save_pretrained, and load that."
        )
    require_base_model(hf, name, adapter, gate)
    _require_rank(adapter, config)
    with silence_transformers(), translate_load_errors(str(adapter)):
        try:
            loaded = hf.load_adapter(str(adapter), adapter_kwargs=dict(hub))
        except (ValueError, RuntimeError) as error:
            if "prompt learning" in str(error):
                raise ModelError(_virtual_tokens(f"The adapter {adapter}")) from error
            why = (
                "its matrices have other shapes"
                if "ignore_mismatched_sizes" in str(error)
                else str(error).splitlines()[0]
            )
            raise ModelError(
                f"The adapter {adapter} could not be added to this model ({why}); use it with the model it was trained on "
                f"({config.base})."
            ) from error
        except FileNotFoundError as error:
            raise ModelError(f"The adapter {adapter} has no weights ({WEIGHTS}); copy or download them too.") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, re.error) as error:  # of values in its config
            raise ModelError(
                f"The adapter {adapter} could not be added to this model: its adapter_config.json has a value that peft cannot "
                "use; copy or download it again."
            ) from error
    missing = sorted(getattr(loaded, "missing_keys", None) or ())
    if missing:
        raise ModelError(
            f"The adapter {adapter} does not fit this model: it has no matrices for {missing[0]} and {len(missing) - 1} "
            f"others; use it with the model it was trained on ({config.base})."
        )
    if gate is not None:
        put_gate(hf, gate.bias)


def _require_rank(adapter: str | Path, config: AdapterConfig) -> None:
    """Refuse a config that declares a higher rank than its matrices have: peft would allocate it first."""
    declared = max([config.rank or 0, *(config.rank_pattern or {}).values()])
    file = Path(adapter).expanduser() / WEIGHTS
    if not file.is_file():
        return
    with translate_load_errors(str(adapter)), safe_open(file, framework="pt") as tensors:
        first = [name for name in tensors.keys() if "lora_" in name and "_A" in name]  # noqa: SIM118 (it is not a dict)
        found = max((tensors.get_slice(name).get_shape()[0] for name in first), default=declared)
    if declared > found:
        raise ModelError(
            f"The adapter {adapter} declares matrices of rank {declared}, and holds some of rank {found}; copy or download it "
            "again."
        )


def unwrap(model: Any) -> Any:
    """The ``transformers`` model inside a ``PeftModel``, with its adapter in place; any other model as it is."""
    if not (hasattr(model, "peft_config") and hasattr(model, "get_base_model")):
        return model
    if model.active_peft_config.is_prompt_learning:
        raise ModelError(_virtual_tokens("This model's adapter"))
    return model.get_base_model()


def _virtual_tokens(adapter: str) -> str:
    return f"{adapter} adds virtual tokens in front of every text, which would shift all positions; use a LoRA adapter."


def base_digest(hf: Any) -> str:
    """The digest of a base model's weights; milliseconds."""
    return tensors_digest(named_weights(hf), hf.config, torch.bfloat16)


def require_base_model(hf: Any, name: str, adapter: str | Path, gate: GateNote | None) -> None:
    """Refuse a sparse adapter on a model it was not trained on; ``name``: the model's name."""
    trained_on = (gate.model if gate is not None else None) or ""
    if gate is None or not trained_on or _own_name(name) == _own_name(trained_on):
        return
    if gate.digest:
        if gate.digest == base_digest(hf):
            return
    elif name == type(hf).__name__:  # a model in memory without a name cannot be checked
        return
    raise ModelError(
        f"The sparse adapter {adapter} was trained on {trained_on}, but this model is {name}, with other weights; use it "
        f"with {trained_on}, or train one for this model with headwise sparsify."
    )


def _own_name(name: str) -> str:
    """Without the owner or the folder.

    >>> _own_name("who/Model-1"), _own_name("/models/Model-1/")
    ('model-1', 'model-1')
    """
    return name.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf").lower()


def packaged_adapter(model: Model) -> Path | None:
    """The folder of the sparse adapter packaged for the default model (docs/studies/sparse.md); None for other models."""
    folder = Path(str(files("headwise.model") / "data" / "sparse"))
    if model.id != DEFAULT or model.adapter is not None or gate_of(model.hf) is not None:
        return None
    return folder if (folder / FILE).is_file() else None
