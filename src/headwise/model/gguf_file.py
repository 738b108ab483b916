"""Turns a GGUF file into a folder that ``transformers`` loads in a second, once.

De-quantising takes tens of seconds, so the result (float32 safetensors, config, tokenizer) is kept in the cache folder
under the digest of the file's bytes. Where the copy would not be the model that was packed, it is mended:

- **Digits.** A byte-level vocabulary in which no token joins a digit to anything was learned on text whose digits were
  split off first. The GGUF reader of ``transformers`` forgets that step for some such files (SmolLM2's among them), and
  blanks before a digit are then cut differently: ``"\\n\\n1"`` would be three tokens where the model knows two.
- **First token.** Whether the tokenizer puts one in front is what ``add_bos_token`` in the file says.
- **Length.** ``model_max_length`` is the config's, not 10^30.
- **Rounding.** Numbers in a GGUF are float32: 9.999999747378752e-06 is written 1e-05 again.

Where it cannot be mended, it is refused: transformers 5.17 reads the tokenizer of Gemma 3's files so that every word is
spelt in letters, which raises nothing and makes every number wrong.

This module does not know which file is the default model's.
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
from headwise.model.cache import cache_folder, keep
from headwise.model.quiet import quiet

__all__ = ["Copy", "dequantised"]

PLAIN = (None, "default", "gpt-2", "jais", "mpt", "olmo")  # llama.cpp's names for GPT-2's way to split a text
FORMAT = 1  # raise it when what is written changes
WORDS = 200  # of the vocabulary, that are read back
WORD = re.compile("[Ġ▁]?[A-Za-z]{3,}")  # how byte-level and sentencepiece vocabularies write one, after a blank or not
log = logging.getLogger("headwise")


class Copy(NamedTuple):
    folder: Path  # with the float32 weights, the config and the tokenizer
    digest: str  # of the GGUF file's bytes


def dequantised(path: Path) -> Copy:
    """The float32 copy of a GGUF file; made on the first call, found on later ones (about a second a gigabyte)."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(
                f"{path} is not a GGUF file (it does not begin with the letters GGUF); give a .gguf file, or the "
                "folder of a model."
            )
        file.seek(0)
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    name = re.sub(r"[^\w.-]", "_", path.stem)
    folder = cache_folder() / "gguf" / f"{name}-{digest}-{FORMAT}"
    return Copy(keep(folder, lambda unfinished: _convert(path, unfinished), _is_whole), digest)


def _is_whole(folder: Path) -> bool:
    weights = sorted(folder.glob("*.safetensors"))
    if not weights or not (folder / "config.json").is_file():
        return False
    try:
        for file in weights:
            with safe_open(file, framework="pt"):  # reads the header, and compares it with the file's length
                pass
    except (SafetensorError, OSError):
        return False
    return True


def _convert(path: Path, folder: Path) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f'Reading {path.name} needs the package gguf; run `pip install "headwise[gguf]"`.')
    log.info("De-quantising %s; this is done once.", path.name)
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with quiet(), redirect_stderr(io.StringIO()):  # its progress bar cannot be switched off
        try:
            config = AutoConfig.from_pretrained(**source)
            model, loaded = AutoModelForCausalLM.from_pretrained(
                **source, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(**source)
        except Exception as error:  # the reader raises anything, from KeyError to struct.error
            raise ModelError(
                f"transformers could not read {path} ({type(error).__name__}: {error}); the file is damaged, or of a "
                "kind that it does not know: copy it again, or use the model's safetensors."
            ) from error
        if loaded["missing_keys"]:
            raise ModelError(
                f"{path} lacks weights of its model ({sorted(loaded['missing_keys'])[0]}, ...); copy it again."
            )
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.hf_quantizer = None  # what is saved is plain float32
        _round(model.config)
        _mend(tokenizer, path, getattr(config.get_text_config(), "max_position_embeddings", None))
        _refuse_spelling(tokenizer, path)
        try:
            model.save_pretrained(folder)
        except SafetensorError as error:  # how safetensors says that the disk is full
            raise OSError(str(error)) from error
        tokenizer.save_pretrained(folder)


def _round(config: Any) -> None:
    for name, value in vars(config).items():
        if isinstance(value, float):
            setattr(config, name, float(str(np.float32(value))))


def _mend(tokenizer: Any, path: Path, max_positions: int | None) -> None:
    if max_positions:
        tokenizer.model_max_length = max_positions
    metadata = _metadata(path)
    _mend_digits(tokenizer, metadata.get("tokenizer.ggml.pre"))
    _mend_first_token(tokenizer, metadata.get("tokenizer.ggml.add_bos_token"))


def _mend_digits(tokenizer: Any, rule: str | None) -> None:
    backend = tokenizer.backend_tokenizer
    byte_level = backend.pre_tokenizer
    if not (str(byte_level).startswith("ByteLevel(") and "use_regex=True" in str(byte_level)):
        return  # not byte-level, or the reader knew the file's own rule
    added = set(tokenizer.get_added_vocab())
    if not any(len(token) > 1 and re.search("[0-9]", token) for token in tokenizer.get_vocab() if token not in added):
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    elif rule not in PLAIN:
        log.warning("transformers does not know the rule %r that splits this GGUF file's texts; it uses GPT-2's.", rule)


def _mend_first_token(tokenizer: Any, wanted: bool | None) -> None:
    bos = tokenizer.bos_token
    has = bool(tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id])
    if wanted is None or bos is None or bool(wanted) == has:
        return
    single, pair = ("$A", "$A $B:1") if not wanted else (f"{bos} $A", f"{bos} $A {bos}:1 $B:1")
    specials = [(bos, tokenizer.bos_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=specials
    )


def _refuse_spelling(tokenizer: Any, path: Path) -> None:
    """A word of the vocabulary is that one token when it is read; three tokenizers at hand do so for 201 of 201."""
    words = sorted(place for token, place in tokenizer.get_vocab().items() if WORD.fullmatch(token))
    some = words[:: max(len(words) // WORDS, 1)]
    kept = sum(tokenizer(tokenizer.decode([one]), add_special_tokens=False).input_ids == [one] for one in some)
    if 2 * kept < len(some):
        raise ModelError(
            f"transformers {transformers.__version__} reads the tokenizer of {path.name} wrongly: of {len(some)} words of "
            f"its vocabulary, {kept} come back as the one token that they are; use a newer transformers, or the model's "
            "safetensors."
        )


def _metadata(path: Path) -> dict[str, Any]:
    """The file's single values; its lists (the vocabulary) are left alone."""
    import gguf  # an extra

    fields = gguf.GGUFReader(path).fields
    return {
        name: field.contents()
        for name, field in fields.items()
        if field.types and field.types[0] != gguf.GGUFValueType.ARRAY
    }
