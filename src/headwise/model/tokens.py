"""Texts to token ids, and token ids to readable strings.

- **One BOS, never two.** Many tokenizers add a BOS token, and many chat templates write it too. A chat is tokenised
  without additions, because its template is the complete text; a plain text that begins with BOS gets no second one.
- **Readable tokens.** Byte-level vocabularies write a space as ``Ġ`` and a newline as ``Ċ``, SentencePiece a space as
  ``▁`` and a byte as ``<0x0A>``. All are decoded; incomplete characters are shown as ``\\\\xe6``. Special tokens keep their
  names. There is one string per id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from headwise.core.errors import DataError

Chat = Sequence[Mapping[str, str]]  # [{"role": "user", "content": "..."}, ...]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def is_chat(item: Any) -> bool:
    """Whether this is one list of messages."""
    return isinstance(item, Sequence) and not isinstance(item, str) and bool(item) and isinstance(item[0], Mapping)


def token_ids(tokenizer: Any, item: str | Chat, *, generation_prompt: bool | None = None) -> list[int]:
    """The ids of one text or chat. A chat ends with the beginning of the assistant's turn unless the last turn is its."""
    if isinstance(item, str):
        return _text_ids(tokenizer, item)
    if not is_chat(item):
        raise DataError(
            f"A text or a chat (a list of {{'role': ..., 'content': ...}}) is expected, not a {type(item).__name__}."
        )
    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            "This model's tokenizer has no chat template, so it cannot encode a chat; give a plain text instead."
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


def readable_tokens(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """One readable_tokens string per id."""
    names = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
    pieces = tokenizer.convert_ids_to_tokens([int(i) for i in ids])
    spelling = _spelling(tokenizer)
    out = []
    for i, piece in zip(ids, pieces, strict=True):
        if piece is None:  # a row of the embedding without a token
            out.append(f"<{int(i)}>")
        elif int(i) in names:
            out.append(str(piece))
        else:
            out.append(spelling(str(piece)))
    return out


def _spelling(tokenizer: Any) -> Any:
    """The decoding of this tokenizer's pieces, from its decoder; a tokenizer without one decodes itself."""
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
    """GPT-2's encoding of bytes: printable ones are themselves, the other 68 are mapped to 256 and up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(moved)}
