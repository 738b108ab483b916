"""Load a model from the hub, a folder, a GGUF file or memory, optionally with an adapter.

``load`` takes the arguments of ``from_pretrained``. It refuses, in one sentence, what it cannot read correctly: encoders,
checkpoints with missing weights (``transformers`` would initialise them at random), damaged files, untrusted code.
Attention is SDPA wherever the family supports it, and the model is in eval mode.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer

from headwise.core.errors import ModelError
from headwise.core.memory import in_bytes
from headwise.model.adapters import AdapterConfig, add_adapter, read_adapter_config, require_adapter, unwrap
from headwise.model.blocks import auto_class
from headwise.model.card import ModelCard
from headwise.model.gate import gate_of, put_gate
from headwise.model.library_calls import is_unreachable, silence_transformers, translate_load_errors
from headwise.model.linear import use_fastest_linear
from headwise.model.model import Model
from headwise.model.offload import is_offloaded
from headwise.model.placement import DevicePlacement, choose_device, choose_dtype, named_dtype, require_working_dtype
from headwise.model.sources import HUB_ARGUMENTS, ModelSource, find_config, find_source, hub_commit

__all__ = ["load", "read_card"]

WEIGHT_FILES = ("*.safetensors", "*.bin")
MIN_LAYER_BYTES = 50  # a layer's names alone take more in a file
HARMLESS = 10**8  # weights that any machine can allocate
MAX_WEIGHTS_PER_BYTE = 64  # 8 at one bit; the rest may be shared


def load(
    model: str | Path | nn.Module | Model | None = None,
    tokenizer: Any = None,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    device_map: Any = None,
    offload_folder: str | Path | None = None,
    max_memory: Any = None,
    revision: str | None = None,
    adapter: str | Path | None = None,
    trust_remote_code: bool = False,
    **kwargs: Any,
) -> Model:
    """Load a model for measuring.

    Args:
        model: a hub id, a folder, a ``.gguf`` file, a folder with a PEFT adapter (its base is loaded first), or a
            ``transformers`` model in memory. None: the default model, SmolLM2-135M-Instruct.
        tokenizer: a tokenizer, or its name or folder; by default the model's own.
        dtype: ``"auto"`` is the checkpoint's own dtype on a GPU, and float32 on a CPU, where half precision is slower
            and less exact. A model in memory keeps its dtype unless another one is given.
        device: by default the first CUDA device if there is one, else the CPU. A model in memory stays on its device.
        device_map: distributes the model over GPUs, CPU memory and disk (needs ``accelerate``): ``"auto"``, or module ->
            device as a dict or a ``.json`` file. Weights on disk are read in every forward pass.
        offload_folder: for weights on disk that must be rewritten; safetensors are read in place.
        max_memory: limit per device, ``{"cpu": "8GiB", 0: "20GiB"}`` or ``"cpu=8GiB,0=20GiB"``; alone it implies
            ``device_map="auto"``.
        revision: a branch, tag or commit of the hub.
        adapter: a PEFT adapter to add (not merged).
        trust_remote_code: whether code that comes with the model may run.
        **kwargs: passed to ``from_pretrained``.

    Returns:
        The model in eval mode with its tokenizer and its card, ready for `observe`, `check` and `build`.

    Examples:
        A model in memory; a hub id, a folder or a ``.gguf`` file is passed in the same way.

        >>> hw.load(model.hf, model.tokenizer)
        <Model planted: 3 layers x 6 heads, float32 on cpu>
    """
    if isinstance(model, Model):
        return model
    wanted = named_dtype(dtype)
    hub_arguments = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
    if isinstance(model, nn.Module):
        return _from_memory(model, tokenizer, wanted, device, adapter, hub_arguments)
    if adapter is not None:
        require_adapter(adapter, hub_arguments)  # before the weights, which take long
    placement = DevicePlacement.of(device_map, max_memory, offload_folder)
    where = choose_device(device, placement)
    source = find_source(model, revision, hub_arguments)
    code = {"trust_remote_code": trust_remote_code}
    hub = hub_arguments | code | {"revision": revision} | ({"local_files_only": True} if source.local else {})
    try:
        config, found = find_config(source, hub), None
    except ModelError as error:
        local = {"local_files_only": source.local or is_unreachable(error)}
        config, found = None, read_adapter_config(source.location, hub_arguments | local)
        if found is None:
            raise
    if found is not None:  # outside the handler, whose error is not a cause of what may be wrong with the adapter
        rest = {"dtype": dtype, "device": device, **placement.arguments(), **code, **kwargs}
        return _adapter_on_its_base(source, found, tokenizer, adapter, rest)
    card = ModelCard.from_config(config, source.id)
    if wanted == "auto" and not hasattr(config, "quantization_config") and where.type == "cpu":
        wanted = choose_dtype(wanted, config, where)
    require_working_dtype(wanted, where, source.id)
    _require_described(source, card)
    placement = placement.fit(card)
    hf = read_weights(
        source, config, {**attention_choice(card), **kwargs, **hub, "dtype": wanted, **placement.arguments()}
    )
    if not placement and not getattr(hf, "is_quantized", False):  # a quantised model cannot be moved
        with translate_load_errors(source.id):
            hf = hf.to(where)
    if adapter is not None:
        add_adapter(hf, adapter, hub_arguments, source.id)
    elif gate_of(hf) is not None:  # saved with the model
        put_gate(hf, gate_of(hf) or 0.0)
    if not placement:
        use_fastest_linear(hf)
    tokenizer, why = find_tokenizer(tokenizer, source.location, hub if tokenizer is None else hub_arguments | code)
    return Model(
        hf.eval(),
        tokenizer,
        card,
        source.id,
        hub_commit(source, hub),
        None if adapter is None else str(adapter),
        why,
        placement.arguments() if placement else None,
        source.dequantised_from,
    )


def attention_choice(card: ModelCard) -> dict[str, Any]:
    """The attention to load a model with, as an argument of transformers; empty where its own choice is right.

    SDPA cannot express a soft cap. transformers before 5.21 chooses SDPA all the same and drops the cap without a word; later
    versions choose eager attention, as this does for all of them.
    """
    return {"attn_implementation": "eager"} if card.softcap else {}


def _require_described(source: ModelSource, card: ModelCard) -> None:
    """Refuse a config that describes a far larger model than its files can hold: transformers would allocate it first."""
    folder = Path(source.location)
    size = sum(file.stat().st_size for kind in WEIGHT_FILES for file in folder.glob(kind)) if folder.is_dir() else 0
    if not size:
        return
    layers = card.layers > 1000 and card.layers * MIN_LAYER_BYTES > size  # building that many takes minutes
    described = card.layers if layers else card.parameters_or_none or 0
    if layers or described > max(MAX_WEIGHTS_PER_BYTE * size, HARMLESS):
        what = "layers" if layers else "weights"
        raise ModelError(
            f"The config.json of {source.id} describes {described:,} {what}, and its files have {in_bytes(size)}, which is too "
            "little for them; use the config of these weights."
        )


def read_card(
    model: str | Path | None = None, *, revision: str | None = None, trust_remote_code: bool = False
) -> ModelCard:
    """The card of a model that is not loaded; only its config is read.

    Args:
        model: a hub id, folder or ``.gguf`` file, as for `load`. None: the default model.
        revision: a branch, tag or commit of the hub.
        trust_remote_code: whether code that comes with the model may run.

    Returns:
        Layers, heads, widths, windows, and which layers have no heads and why.

    Examples:
        >>> _ = model.hf.config.save_pretrained(folder)
        >>> read_card(folder).layers, read_card(folder).heads
        (3, 6)
    """
    source = find_source(model, revision, {})
    hub = {"revision": revision, "trust_remote_code": trust_remote_code}
    hub |= {"local_files_only": True} if source.local else {}
    return ModelCard.from_config(find_config(source, hub), source.id)


def _from_memory(
    model: Any, tokenizer: Any, dtype: Any, device: Any, adapter: str | Path | None, hub: dict[str, Any]
) -> Model:
    """A loaded ``transformers`` model; moved or cast only on request."""
    hf = unwrap(model)
    if not hasattr(hf, "config") or not hasattr(hf.config, "model_type"):
        raise ModelError(
            f"A {type(model).__name__} is not a transformers model; give one, or the name or folder of one."
        )
    card = ModelCard.from_config(hf.config, hf.config._name_or_path or type(hf).__name__)
    if (dtype != "auto" or device is not None) and is_offloaded(hf):
        raise ModelError(
            f"Parts of {card.id} are offloaded, so it cannot be cast or moved; load it with the right dtype and device_map."
        )
    hf = hf if dtype == "auto" else hf.to(dtype)
    hf = hf if device is None else hf.to(choose_device(device))
    first = next(hf.parameters())
    require_working_dtype(first.dtype, first.device, card.id)
    if adapter is not None:
        add_adapter(hf, adapter, hub, card.id)
    if tokenizer is None:
        why = "it was given without a tokenizer"
    else:
        tokenizer, why = find_tokenizer(tokenizer, "", hub)
    commit = getattr(hf.config, "_commit_hash", None)
    return Model(hf.eval(), tokenizer, card, card.id, commit, None if adapter is None else str(adapter), why)


def _adapter_on_its_base(
    source: ModelSource, config: AdapterConfig, tokenizer: Any, adapter: Any, rest: dict[str, Any]
) -> Model:
    """The argument `model` is an adapter: load its base model, then add it."""
    if adapter is not None:
        raise ModelError(f"{source.id} is an adapter itself, and adapter={adapter} is another; load one of the two.")
    if not config.base:
        raise ModelError(
            f"The adapter {source.id} does not name its base model; load that model, and pass this one as adapter=."
        )
    if tokenizer is None and (Path(source.location) / "tokenizer_config.json").is_file():
        tokenizer = source.location
    return load(config.base, tokenizer, adapter=source.location, revision=config.revision, **rest)


def read_weights(source: ModelSource, config: Any, arguments: dict[str, Any]) -> Any:
    """The ``transformers`` model with its weights; refused if any are missing."""
    auto = auto_class(config)
    with silence_transformers(), translate_load_errors(source.id, arguments.get("revision")):
        hf, loaded = auto.from_pretrained(source.location, config=config, output_loading_info=True, **arguments)
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise ModelError(
            f"The checkpoint of {source.id} is incomplete: {missing[0]} and {len(missing) - 1} others are missing and "
            "would be random; use a checkpoint with all of them."
        )
    return hf


def find_tokenizer(tokenizer: Any, location: str, hub: dict[str, Any]) -> tuple[Any, str]:
    """The tokenizer, or ``None`` and the reason."""
    if tokenizer is not None and not isinstance(tokenizer, str | Path):
        return tokenizer, ""
    where = str(location if tokenizer is None else tokenizer)
    found: Any
    try:
        with silence_transformers():
            found = AutoTokenizer.from_pretrained(where, **hub)
    except Exception as error:  # without a tokenizer, token ids can still be measured
        found, why = None, f"its tokenizer could not be loaded ({(str(error).strip() or repr(error)).splitlines()[0]})"
    else:
        why = f"no tokenizer was found in {where}"
        named = {*found.all_special_tokens, *found.get_added_vocab()}
        if set(found.get_vocab()) <= named:  # transformers returns an empty one if the files are missing
            found = None
    if found is None and tokenizer is not None:
        raise ModelError(f"There is no tokenizer in {where}: {why}.")
    return found, why
