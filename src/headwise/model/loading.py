"""Loads a model from wherever it is: hub, folder, GGUF file, or memory; with an adapter on top if asked.

``load`` takes what ``from_pretrained`` takes, and refuses in one sentence what it cannot read right: encoders, weights
that do not cover the model (``transformers`` fills them in at random), damaged files, code that would have to be run.
Attention is SDPA wherever the family supports it, and the model is in eval mode.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from torch import nn
from transformers import AutoConfig, AutoTokenizer

from headwise.core.errors import ModelError
from headwise.model.adapters import AdapterNote, adapter_note, add_adapter, require_adapter, unwrap
from headwise.model.card import ModelCard, auto_class
from headwise.model.default import DEFAULT, Source, default_source, gguf_source, no_default
from headwise.model.failures import in_words, is_path, unreachable
from headwise.model.gate import gate_of, put_gate
from headwise.model.model import Model
from headwise.model.offload import is_offloaded
from headwise.model.placement import choose_device, choose_dtype, named_dtype, require_working_dtype
from headwise.model.quiet import quiet
from headwise.model.spread import Spread

__all__ = ["load", "read_card"]

FINDING = ("cache_dir", "force_download", "local_files_only", "proxies", "subfolder", "token")


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
    """Loads a model for reading.

    Args:
        model: a hub id, a folder, a ``.gguf`` file, a folder with a PEFT adapter (its base is loaded first), or a
            ``transformers`` model that is loaded already. Nothing: the default model, SmolLM2-135M-Instruct.
        tokenizer: a tokenizer, or where to find one; by default the model's own.
        dtype: ``"auto"`` is the checkpoint's own dtype on a GPU, and float32 on a CPU, where half precision is slower
            and less exact. A loaded model keeps its dtype unless another one is named.
        device: by default the first CUDA device if there is one, else the CPU. A loaded model stays where it is.
        device_map: spreads the model over GPUs, the CPU's memory and disk (needs ``accelerate``): ``"auto"``, or module ->
            device as a dict or a ``.json`` file. Weights on disk are read for every pass.
        offload_folder: where weights on disk are put if they must be rewritten; safetensors are read where they lie.
        max_memory: what each device may hold, ``{"cpu": "8GiB", 0: "20GiB"}`` or ``"cpu=8GiB,0=20GiB"``; alone it means
            ``device_map="auto"``.
        revision: a branch, tag or commit of the hub.
        adapter: a PEFT adapter to put on top (not merged).
        trust_remote_code: whether code that comes with the model may run.
        **kwargs: go to ``from_pretrained``.

    Returns:
        The model in eval mode with its tokenizer and its card, ready for `observe`, `check` and `build`.

    Examples:
        A model that is in memory already; a hub id, a folder or a ``.gguf`` file is given in the same place.

        >>> hw.load(model.hf, model.tokenizer)
        <Model planted: 3 layers x 6 heads, float32 on cpu>
    """
    if isinstance(model, Model):
        return model
    wanted = named_dtype(dtype)
    found = {name: kwargs[name] for name in FINDING if name in kwargs}
    if isinstance(model, nn.Module):
        return _given(model, tokenizer, wanted, device, adapter, found)
    if adapter is not None:
        require_adapter(adapter, found)  # before the weights, which take long
    spread = Spread.of(device_map, max_memory, offload_folder)
    where = choose_device(device, spread)
    source = find_source(model, revision, found)
    code = {"trust_remote_code": trust_remote_code}
    finding = found | code | {"revision": revision} | ({"local_files_only": True} if source.local else {})
    try:
        config = find_config(source, finding)
    except ModelError as error:
        note = adapter_note(source.location, found | {"local_files_only": source.local or unreachable(error)})
        if note is None:
            raise
        rest = {"dtype": dtype, "device": device, **spread.arguments(), **code, **kwargs}
        return _on_its_base(source, note, tokenizer, adapter, rest)
    card = ModelCard.from_config(config, source.id)
    if wanted == "auto" and not hasattr(config, "quantization_config") and where.type == "cpu":
        wanted = choose_dtype(wanted, config, where)
    require_working_dtype(wanted, where, source.id)
    spread = spread.fit(card)
    hf = read_weights(source, config, {**kwargs, **finding, "dtype": wanted, **spread.arguments()})
    if not spread and not getattr(hf, "is_quantized", False):  # a quantised model is where it was put
        with in_words(source.id):
            hf = hf.to(where)
    if adapter is not None:
        add_adapter(hf, adapter, found, source.id)
    elif gate_of(hf) is not None:  # saved with the model
        put_gate(hf, gate_of(hf) or 0.0)
    tokenizer, why = find_tokenizer(tokenizer, source.location, finding if tokenizer is None else found | code)
    commit = hub_commit(source, finding)
    adapter = None if adapter is None else str(adapter)
    return Model(hf.eval(), tokenizer, card, source.id, commit, adapter, why, spread.arguments() if spread else None)


def read_card(
    model: str | Path | None = None, *, revision: str | None = None, trust_remote_code: bool = False
) -> ModelCard:
    """The card of a model that is not loaded: only its config is read.

    Args:
        model: a name that `load` takes: hub id, folder or ``.gguf`` file. Nothing: the default model.
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
    finding = {"revision": revision, "trust_remote_code": trust_remote_code}
    finding |= {"local_files_only": True} if source.local else {}
    return ModelCard.from_config(find_config(source, finding), source.id)


def _given(
    model: Any, tokenizer: Any, dtype: Any, device: Any, adapter: str | Path | None, found: dict[str, Any]
) -> Model:
    """A model that is loaded already; it is moved or cast only if that was asked for."""
    hf = unwrap(model)
    if not hasattr(hf, "config") or not hasattr(hf.config, "model_type"):
        raise ModelError(
            f"A {type(model).__name__} is not a transformers model; give one, or the name or folder of one."
        )
    card = ModelCard.from_config(hf.config, hf.config._name_or_path or type(hf).__name__)
    if (dtype != "auto" or device is not None) and is_offloaded(hf):
        raise ModelError(
            f"Parts of {card.id} are offloaded, so it cannot be cast or moved; load it with the dtype and device_map wanted."
        )
    hf = hf if dtype == "auto" else hf.to(dtype)
    hf = hf if device is None else hf.to(choose_device(device))
    first = next(hf.parameters())
    require_working_dtype(first.dtype, first.device, card.id)
    if adapter is not None:
        add_adapter(hf, adapter, found, card.id)
    if tokenizer is None:
        why = "it was given without a tokenizer"
    else:
        tokenizer, why = find_tokenizer(tokenizer, "", found)
    commit = getattr(hf.config, "_commit_hash", None)
    return Model(hf.eval(), tokenizer, card, card.id, commit, None if adapter is None else str(adapter), why)


def _on_its_base(source: Source, note: AdapterNote, tokenizer: Any, adapter: Any, rest: dict[str, Any]) -> Model:
    """What was given as the model is an adapter: loads what it was trained on, then puts it on top."""
    if adapter is not None:
        raise ModelError(f"{source.id} is an adapter itself, and {adapter} was to go on top; load one of the two.")
    if not note.base:
        raise ModelError(f"The adapter {source.id} does not say which model it is for; load that, with adapter=.")
    if tokenizer is None and (Path(source.location) / "tokenizer_config.json").is_file():
        tokenizer = source.location
    return load(note.base, tokenizer, adapter=source.location, revision=note.get("revision"), **rest)


def find_source(model: str | Path | None, revision: str | None, finding: dict[str, Any]) -> Source:
    path = Path(model or DEFAULT).expanduser()
    if str(model or DEFAULT) == DEFAULT and not path.is_dir():
        return default_source(revision, finding.get("cache_dir"))
    if path.is_file():
        return gguf_source(path)
    if path.is_dir():
        if not (path / "config.json").is_file() and not (path / "adapter_config.json").is_file():
            raise ModelError(
                f"The folder {path} has no config.json, so it does not hold a transformers model; give the folder that "
                "save_pretrained wrote, or a .gguf file."
            )
        return Source(str(path), str(model))
    if is_path(str(model)):
        raise ModelError(f"There is no folder or file {str(model)!r}; check the path.")
    return Source(str(model), str(model), revision, local=False)


def hub_commit(source: Source, finding: dict[str, Any]) -> str | None:
    """The commit of the hub that was loaded, told by where its config lies in the cache; else the source's own."""
    if Path(source.location).is_dir():
        return source.revision
    where = {name: finding[name] for name in ("cache_dir", "revision") if finding.get(name) is not None}
    file = try_to_load_from_cache(source.location, "config.json", **where)
    return Path(file).parent.name if isinstance(file, str) else source.revision


def find_config(source: Source, finding: dict[str, Any]) -> Any:
    try:
        with quiet(), in_words(source.id, finding.get("revision")):
            return AutoConfig.from_pretrained(source.location, **finding)
    except ModelError as error:
        if source.id == DEFAULT and unreachable(error):
            raise no_default() from error
        raise


def read_weights(source: Source, config: Any, arguments: dict[str, Any]) -> Any:
    auto = auto_class(config)
    with quiet(), in_words(source.id, arguments.get("revision")):
        hf, loaded = auto.from_pretrained(source.location, config=config, output_loading_info=True, **arguments)
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise ModelError(
            f"The weights of {source.id} do not cover the model: {missing[0]} and {len(missing) - 1} others are "
            "missing and would be random; use a checkpoint with all of them."
        )
    return hf


def find_tokenizer(tokenizer: Any, location: str, finding: dict[str, Any]) -> tuple[Any, str]:
    """The tokenizer, or ``None`` and why there is none."""
    if tokenizer is not None and not isinstance(tokenizer, str | Path):
        return tokenizer, ""
    where = str(location if tokenizer is None else tokenizer)
    found: Any
    try:
        with quiet():
            found = AutoTokenizer.from_pretrained(where, **finding)
    except Exception as error:  # a broken tokenizer must not keep anyone from measuring on token ids
        found, why = None, f"its tokenizer could not be loaded ({(str(error).strip() or repr(error)).splitlines()[0]})"
    else:
        why = f"no tokenizer was found in {where}"
        named = {*found.all_special_tokens, *found.get_added_vocab()}
        if set(found.get_vocab()) <= named:  # transformers makes an empty one where the files are missing
            found = None
    if found is None and tokenizer is not None:
        raise ModelError(f"There is no tokenizer in {where}: {why}.")
    return found, why
