"""What can happen to a file while nobody looks. Each verb is given a path and hurts it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path


def cut(path: Path, share: float = 0.5) -> None:
    """Keep only the beginning."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def empty(path: Path) -> None:
    """A length, and nothing in it: what some file systems leave after a power cut."""
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    """The right length, all zeros: what others leave."""
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path, bit: int | None = None, *, seed: int = 0) -> int:
    """Turn one bit over; a random one unless told. Tells which."""
    content = bytearray(path.read_bytes())
    bit = random.Random(seed).randrange(8 * len(content)) if bit is None else bit
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return bit


def lose(path: Path) -> None:
    """Gone, be it a file or a folder."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def block(path: Path) -> None:
    """A file where a folder was."""
    lose(path)
    path.write_text("in the way")
