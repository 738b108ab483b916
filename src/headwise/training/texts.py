"""Training texts: kinds of text, each one long sequence of tokens from which rows are drawn.

A kind is a file: JSONL with one ``text`` per line, or plain text as one document. Documents are joined by the end-of-text
token. Token ids are cached (``tokens/``) by the digest of file and tokenizer. Rows depend on (seed, step) alone, so a
resumed run draws the same rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwise.core.errors import DataError
from headwise.core.files import make_folder, output_file
from headwise.corpora.passages import parse_text_line
from headwise.model import Model, tokenizer_digest
from headwise.model.library_calls import silence_transformers

Tokens = NDArray[np.int32]
DOCUMENTS_PER_CALL = 512  # of the tokenizer


@dataclass(frozen=True)
class Texts:
    """Token ids by kind; made by `read_texts`.

    Examples:
        >>> texts = Texts({"counting": np.arange(100, dtype=np.int32)})
        >>> texts.evenly_spaced("counting", rows=2, length=4)
        array([[ 0,  1,  2,  3],
               [96, 97, 98, 99]], dtype=int32)
    """

    kinds: dict[str, Tokens]  # kind of text -> one long sequence of token ids

    @property
    def tokens(self) -> int:
        """The total number of tokens."""
        return sum(len(ids) for ids in self.kinds.values())

    def digest(self) -> str:
        """The digest of all tokens."""
        found = hashlib.sha256()
        for name, ids in sorted(self.kinds.items()):
            found.update(name.encode() + np.ascontiguousarray(ids).tobytes())
        return found.hexdigest()[:16]

    def draw(self, rows: int, length: int, *, seed: int, step: int) -> Tokens:
        """(rows, length): random rows, kinds weighted by their size."""
        rng = np.random.default_rng([seed, step])
        names = list(self.kinds)
        room = np.array([len(self.kinds[name]) - length for name in names], dtype=float)
        chosen = rng.choice(len(names), size=rows, p=room / room.sum())
        return np.stack([self._cut(names[n], int(rng.integers(room[n] + 1)), length) for n in chosen])

    def evenly_spaced(self, kind: str, rows: int, length: int) -> Tokens:
        """(rows, length): evenly spaced rows of one kind, always the same."""
        room = len(self.kinds[kind]) - length
        rows = max(1, min(rows, len(self.kinds[kind]) // length))
        return np.stack([self._cut(kind, round(n * room / max(1, rows - 1)), length) for n in range(rows)])

    def check(self, length: int) -> None:
        """Refuse kinds too short for one row."""
        for name, ids in self.kinds.items():
            if len(ids) < length + 1:
                raise DataError(
                    f"The text {name!r} has {len(ids)} tokens and a row needs {length}; give longer text, or a smaller "
                    f"length (--set length=...)."
                )

    def _cut(self, kind: str, start: int, length: int) -> Tokens:
        return np.asarray(self.kinds[kind][start : start + length])


def read_texts(paths: Sequence[str | Path], model: Model, cache: Path | None = None) -> Texts:
    """Read and tokenise files; each file is a kind of text, named after it.

    Args:
        paths: .txt files, .jsonl files (one ``text`` per line), or folders of them.
        model: the model whose tokenizer is used.
        cache: a folder for token ids, so that a file is tokenised once; None: no cache.

    Returns:
        Token ids by kind.

    Examples:
        >>> _ = (folder / "prose.txt").write_text("the old river was under the old house . " * 20)
        >>> texts = read_texts([folder], model)
        >>> list(texts.kinds), texts.tokens
        (['prose'], 181)
    """
    return Texts({file.stem: _tokens(file, model, cache) for file in _kinds(paths)})


def require_readable(paths: Sequence[str | Path]) -> None:
    """Refuse unreadable files and files without text, before a model is loaded.

    Args:
        paths: as for `read_texts`; only the first text of a file is read.

    Examples:
        >>> _ = (folder / "prose.txt").write_text("the old river was under the old house . " * 20)
        >>> require_readable([folder])
    """
    for file in _kinds(paths):
        with file.open("rb") as lines:
            _documents(file, next((line for line in lines if line.strip()), b""))


def _kinds(paths: Sequence[str | Path]) -> list[Path]:
    """The files of some paths, with unique names."""
    files = [file for path in paths for file in _files(Path(path))]
    names = [file.stem for file in files]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"Two files are named {name}; a kind of text is named after its file, so rename one.")
    return files


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in (".txt", ".jsonl"))
        if not found:
            raise DataError(f"The folder {path} contains no .txt or .jsonl file; give a folder that does.")
        return found
    if not path.is_file():
        raise DataError(f"There is no file {path}; give a .txt or .jsonl file, or a folder of them.")
    return [path]


def _tokens(file: Path, model: Model, cache: Path | None) -> Tokens:
    raw = file.read_bytes()
    known = hashlib.sha256(raw + str(tokenizer_digest(model.tokenizer)).encode()).hexdigest()[:16]
    cached = None if cache is None else cache / f"{file.stem}-{known}.npy"
    if cached is not None and cached.is_file():
        return np.load(cached, allow_pickle=False)
    documents = _documents(file, raw)
    tokenizer = model.tokenizer
    assert tokenizer is not None
    ids: list[int] = []
    with silence_transformers():  # documents may be longer than the context
        for start in range(0, len(documents), DOCUMENTS_PER_CALL):
            batch = documents[start : start + DOCUMENTS_PER_CALL]
            for row in tokenizer(batch, add_special_tokens=False)["input_ids"]:
                ids += [*row, tokenizer.eos_token_id]
    found = np.array(ids, dtype=np.int32)
    if cached is not None:
        make_folder(cached.parent)
        with output_file(cached) as temporary:
            np.save(temporary, found, allow_pickle=False)
    return found


def _documents(file: Path, raw: bytes) -> list[str]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text ({error}); save it as UTF-8.") from error
    if file.suffix == ".jsonl":
        numbered = ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip())
        found = [parse_text_line(file, number, line)["text"] for number, line in numbered]
    else:
        found = [text] if text.strip() else []
    if not found:
        raise DataError(f"{file} contains no text; give text to train on.")
    return found
