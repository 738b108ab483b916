"""Does a GGUF file hold what its header declares? Read before any library reads it, which would allocate what is declared.

The header (version 2 or 3, little-endian) is counts, then metadata (key, type, value), then one entry per tensor (name, dims,
type, offset). A file of a kilobyte can declare an array of 10^18 entries, a text of 2^60 bytes or a tensor of petabytes; here
every length is compared with the bytes that are left, and the weights, as float32, with the free memory.

Cost: one pass over the header, about 0.01 s for a vocabulary of 50,000 tokens; no tensor is read.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

from headwise.core.errors import ModelError
from headwise.core.memory import in_bytes, room_for

VERSIONS = (2, 3)
MAX_ITEMS = 4_000_000  # of an array of metadata; the largest vocabularies have 300,000 tokens
MAX_DIMS = 8
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type -> bytes
TEXT, ARRAY = 8, 9
# type of a tensor -> weights and bytes of a block
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip


TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
_LENGTH = struct.Struct("<Q")
PLAIN_TYPES = (0, 1, 24, 25, 26, 27, 28, 30)  # of one number per weight: nothing was quantised


class GgufHeader(NamedTuple):
    """What a file declares, and holds."""

    tensors: int
    weights: int  # in all tensors
    quantised: str = ""  # the quantised type of most of its weights, such as Q4_1; empty where none is quantised


def check_gguf(path: Path) -> GgufHeader:
    """Refuse, in one sentence, a file that is cut off, damaged, or declares more than it holds."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _Cursor(content).header()
    except (ValueError, struct.error) as error:
        why = "it is cut off" if isinstance(error, struct.error) else str(error)
        raise ModelError(
            f"{path} is damaged, or no GGUF file that can be read ({why}); copy it again, or use the model's safetensors."
        ) from error
    needed = 2 * 4 * found.weights  # as float32, read and in the model
    if not room_for(needed):
        raise ModelError(
            f"{path} holds {found.weights:,} weights, which take {in_bytes(needed)} when they are de-quantised, more than "
            "there is memory; use a smaller model, or a larger machine."
        )
    return found


class _Cursor:
    """Reads from the front; every length is compared with what is left."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.at, self.size = content, 4, len(content)

    def header(self) -> GgufHeader:
        version = self.number("<I")
        if version not in VERSIONS:
            raise ValueError(f"it has version {version}, and versions 2 and 3 are read")
        tensors, entries = self.number("<Q"), self.number("<Q")
        self.fits(tensors, 24, "tensors")  # the shortest entries there can be
        self.fits(entries, 13, "entries of metadata")
        for _ in range(entries):
            self.text()
            self.value(self.number("<I"))
        ends = [self.tensor() for _ in range(tensors)]
        left = self.size - self.at
        for name, _, end, _ in ends:
            if end > left:
                raise ValueError(f"its tensor {name!r} ends {in_bytes(end - left)} after the file")
        sizes: dict[int, int] = {}
        for _, weights, _, kind in ends:
            sizes[kind] = sizes.get(kind, 0) + weights
        packed = {kind: weights for kind, weights in sizes.items() if kind not in PLAIN_TYPES}
        most = max(packed, key=packed.__getitem__, default=None)
        return GgufHeader(tensors, sum(sizes.values()), "" if most is None else TYPE_NAMES[most])

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return int(found)

    def text(self) -> str:
        start = self.at + 8
        self.skip_text()
        return bytes(self.content[start : min(self.at, start + 100)]).decode("utf-8", "replace")

    def skip_text(self) -> None:
        (length,) = _LENGTH.unpack_from(self.content, self.at)
        self.at += 8
        if length > self.size - self.at:
            self.fits(length, 1, "bytes of text")
        self.at += length

    def value(self, kind: int, depth: int = 0) -> None:
        if kind in SCALARS:
            self.skip(SCALARS[kind])
        elif kind == TEXT:
            self.text()
        elif kind == ARRAY and depth < 2:
            inner, count = self.number("<I"), self.number("<Q")
            if count > MAX_ITEMS:
                raise ValueError(f"it declares a list of {count:,} entries")
            if inner in SCALARS:
                self.fits(count, SCALARS[inner], "entries of a list")
                self.skip(count * SCALARS[inner])
                return
            self.fits(count, 8, "entries of a list")
            for _ in range(count):
                self.skip_text() if inner == TEXT else self.value(inner, depth + 1)
        else:
            raise ValueError(f"it has metadata of the unknown type {kind}")

    def tensor(self) -> tuple[str, int, int, int]:
        """Its name, how many weights it has, where it ends behind the header, and its type."""
        name, dims = self.text(), self.number("<I")
        if dims > MAX_DIMS:
            raise ValueError(f"its tensor {name!r} declares {dims:,} dims")
        weights = math.prod(self.number("<Q") for _ in range(dims))
        kind, offset = self.number("<I"), self.number("<Q")
        if kind not in BLOCKS:
            raise ValueError(f"its tensor {name!r} has the unknown type {kind}")
        per_block, size = BLOCKS[kind]
        return name, weights, offset + weights * size // per_block, kind

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > self.size:
            raise ValueError("it is cut off")

    def fits(self, count: int, size: int, what: str) -> None:
        if count * size > self.size - self.at:
            raise ValueError(f"it declares {count:,} {what} and has {in_bytes(self.size - self.at)} left")
