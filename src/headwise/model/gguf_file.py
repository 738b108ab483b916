"""Convert a GGUF file, once, into a folder that ``transformers`` loads in a second.

De-quantising takes tens of seconds, so the result (float32 safetensors, config, tokenizer) is cached under the digest of
the file's bytes. Errors of the ``transformers`` reader are repaired:

- **Digits.** A byte-level vocabulary in which no token joins a digit to anything was learned on text with digits split
  off first. The reader omits that step for some files (SmolLM2's among them), and whitespace before a digit is then
  tokenized differently: ``"\\n\\n1"`` would be three tokens instead of two.
- **BOS.** Whether the tokenizer adds one is ``add_bos_token`` in the file.
- **Length.** ``model_max_length`` is the config's, not 10^30.
- **Rounding.** Numbers in a GGUF are float32: 9.999999747378752e-06 becomes 1e-05 again.

A tokenizer that cannot be repaired is refused: transformers 5.17 reads that of Gemma 3's files so that every word is split
into letters, without an error, which would make every measurement wrong.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import logging
import re
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from safetensors import SafetensorError, safe_open
from tokenizers import pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from headwise.core.errors import ModelError
from headwise.model.cache import cache_folder, get_or_create
from headwise.model.library_calls import silence_transformers

__all__ = ["DequantisedCopy", "dequantised"]

GPT2_RULES = (None, "default", "gpt-2", "jais", "mpt", "olmo")  # llama.cpp's names for GPT-2's pre-tokenizer
FORMAT = 1  # raise it when the written files change
CHECKED_WORDS = 200  # of the vocabulary
WORD = re.compile("[Ġ▁]?[A-Za-z]{3,}")  # in byte-level and sentencepiece vocabularies, with or without a leading space
log = logging.getLogger("headwise")


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
    log.info("De-quantising %s; this is done once.", path.name)
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with silence_transformers(), redirect_stderr(io.StringIO()):  # the reader's progress bar cannot be disabled
        try:
            config = AutoConfig.from_pretrained(**source)
            model, loaded = AutoModelForCausalLM.from_pretrained(
                **source, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(**source)
        except Exception as error:  # the reader raises anything, from KeyError to struct.error
            raise ModelError(
                f"transformers could not read {path} ({type(error).__name__}: {error}); the file is damaged or its type "
                "is not supported: copy it again, or use the model's safetensors."
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
    """Words of the vocabulary must tokenize to themselves; three correct tokenizers do so for 201 of 201 words."""
    words = sorted(index for token, index in tokenizer.get_vocab().items() if WORD.fullmatch(token))
    some = words[:: max(len(words) // CHECKED_WORDS, 1)]
    intact = sum(tokenizer(tokenizer.decode([one]), add_special_tokens=False).input_ids == [one] for one in some)
    if 2 * intact < len(some):
        raise ModelError(
            f"transformers {transformers.__version__} reads the tokenizer of {path.name} wrongly: of {len(some)} words of "
            f"its vocabulary, only {intact} are tokenized as one token; use a newer transformers, or the model's "
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
