"""Text to token ids and back to something a person can read.

Two things go wrong elsewhere and are done with care here:

- **One first token, never two.** Many tokenizers put a first token (BOS) in front, and many chat templates write it
  too. A chat is tokenized without additions, since its template is the whole text; a plain text that already begins
  with the first token gets no second one.
- **Readable tokens.** Byte-level vocabularies spell a blank ``Ġ`` and a newline ``Ċ``, SentencePiece spells a blank
  ``▁`` and a byte ``<0x0A>``. All become the text they stand for; bytes that are only a part of a character are shown
  as ``\\\\xe6``. Special tokens keep their names. There is one string per id, so equal tokens stay separate items.

This module does not know models, only tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from headwise.core.errors import DataError

__all__ = ["Chat", "is_chat", "readable", "token_ids"]

Chat = Sequence[Mapping[str, str]]  # [{"role": "user", "content": "..."}, ...]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def is_chat(item: Any) -> bool:
    """Whether this is one list of messages."""
    return isinstance(item, Sequence) and not isinstance(item, str) and bool(item) and isinstance(item[0], Mapping)


def token_ids(tokenizer: Any, item: str | Chat, *, generation_prompt: bool | None = None) -> list[int]:
    """The ids of one text or one chat. A chat ends with the assistant's turn opened unless the assistant spoke last."""
    if isinstance(item, str):
        return _text_ids(tokenizer, item)
    if not is_chat(item):
        raise DataError(
            f"A text or a chat (a list of {{'role': ..., 'content': ...}}) is expected, not a {type(item).__name__}."
        )
    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            "This model's tokenizer has no chat template, so it cannot be shown a chat; give a plain text instead."
        )
    if generation_prompt is None:
        generation_prompt = item[-1].get("role") != "assistant"
    text = tokenizer.apply_chat_template(list(item), tokenize=False, add_generation_prompt=generation_prompt)
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _text_ids(tokenizer: Any, text: str) -> list[int]:
    ids = list(tokenizer(text, verbose=False)["input_ids"])
    bos, bos_id = tokenizer.bos_token, tokenizer.bos_token_id
    if bos and text.startswith(bos):
        own = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if ids[:2] == [bos_id, bos_id] and own[:2] != [bos_id, bos_id]:
            return ids[1:]
    return ids


def readable(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """One readable string per id."""
    names = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
    pieces = tokenizer.convert_ids_to_tokens([int(i) for i in ids])
    spelling = _spelling(tokenizer)
    out = []
    for i, piece in zip(ids, pieces, strict=True):
        if piece is None:  # the embedding has rows that the tokenizer has no word for
            out.append(f"<{int(i)}>")
        elif int(i) in names:
            out.append(str(piece))
        else:
            out.append(spelling(str(piece)))
    return out


def _spelling(tokenizer: Any) -> Any:
    """How this tokenizer's pieces are spelled, told by its decoder; a tokenizer without one decodes for itself."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = str(backend.decoder) if backend is not None and backend.decoder is not None else ""
    if "ByteLevel" in decoder:
        return _from_byte_level
    if any(mark in decoder for mark in ("Metaspace", "▁", "ByteFallback")):
        return _from_sentencepiece
    if backend is None:
        return lambda piece: (
            tokenizer.convert_tokens_to_string([piece]) if "▁" not in piece else piece.replace("▁", " ")
        )
    return str


def _from_byte_level(piece: str) -> str:
    alphabet = _byte_alphabet()
    if any(letter not in alphabet for letter in piece):
        return piece
    return bytes(alphabet[letter] for letter in piece).decode("utf-8", errors="backslashreplace")


def _from_sentencepiece(piece: str) -> str:
    byte = _BYTE.fullmatch(piece)
    if byte is not None:
        return bytes([int(byte[1], 16)]).decode("utf-8", errors="backslashreplace")
    return piece.replace("▁", " ")


@cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable ones stand for themselves, the other 68 are moved up from 256 in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(moved)}
