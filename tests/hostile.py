"""Atlases that somebody might send: each is made from a good one, with valid checksums wherever there are checksums."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numcodecs
import numpy as np
import zarr
from numcodecs.abc import Codec

from headwise.atlas import Atlas

RAN: list[str] = []


class Spy(Codec):
    """Stands for a codec that runs code when it decodes, as a pickle does."""

    codec_id = "headwise_spy"

    def encode(self, buf):
        return bytes(buf)

    def decode(self, buf, out=None):
        RAN.append("decoded")
        return buf


numcodecs.register_codec(Spy)


def relist(atlas: Path) -> None:
    """Let the consolidated metadata agree with the studies' own, so that only the content is wrong."""
    root = json.loads((atlas / "zarr.json").read_text())
    nodes = {}
    for path in sorted(atlas.glob("*/**/zarr.json")):
        if not path.relative_to(atlas).parts[0].startswith("."):
            nodes[path.parent.relative_to(atlas).as_posix()] = json.loads(path.read_text())
    root["consolidated_metadata"]["metadata"] = nodes
    root["attributes"].pop("versions", None)
    (atlas / "zarr.json").write_text(json.dumps(root))


def with_zarr2_array(study: Path) -> None:
    """A Zarr 2 array beside the others, whose codec is chosen by its metadata."""
    array = zarr.create_array(
        study / "evil", shape=(2,), chunks=(2,), dtype="int64", zarr_format=2, compressors=[Spy()]
    )
    array[:] = [1, 2]


def as_zarr2(study: Path) -> None:
    """The whole study as Zarr 2."""
    (study / "zarr.json").rename(study / "was.json")
    (study / ".zgroup").write_text('{"zarr_format": 2}')
    (study / ".zattrs").write_text(json.dumps(json.loads((study / "was.json").read_text())["attributes"]))
    with_zarr2_array(study)


def change_array(study: Path, change: Callable[[dict], object], variable: str = "value") -> None:
    path = study / variable / "zarr.json"
    node = json.loads(path.read_text())
    change(node)
    path.write_text(json.dumps(node))


def with_codec(name: str) -> Callable[[Path], None]:
    return lambda study: change_array(study, lambda node: node["codecs"].append({"name": name, "configuration": {}}))


def with_data_type(name: object) -> Callable[[Path], None]:
    return lambda study: change_array(study, lambda node: node.update(data_type=name))


def zstd_bomb(size: int) -> bytes:
    """A valid Zstandard frame of zeros: blocks of 128 kB that are four bytes each (RFC 8878, 3.1.1)."""
    block = 128 * 1024
    frame = bytearray(struct.pack("<IBBQ", 0xFD2FB528, 3 << 6, 7 << 3, size))
    for start in range(0, size, block):
        length = min(block, size - start)
        frame += (length << 3 | 1 << 1 | (start + block >= size)).to_bytes(3, "little") + b"\0"
    return bytes(frame)


def with_bomb(study: Path, gigabytes: float = 3.4) -> None:
    """Some kilobytes on disk that declare gigabytes, with the right checksum."""
    size = int(gigabytes * 2**30)
    codecs = [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 0, "checksum": False}}, {"name": "crc32c"}]
    node = {
        "zarr_format": 3, "node_type": "array", "shape": [size], "data_type": "uint8", "fill_value": 0, "codecs": codecs,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [size]}}, "dimension_names": ["token"],
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    }  # fmt: skip
    (study / "bomb" / "c").mkdir(parents=True)
    (study / "bomb" / "zarr.json").write_text(json.dumps(node))
    (study / "bomb" / "c" / "0").write_bytes(checked(zstd_bomb(size)))


def checked(body: bytes) -> bytes:
    return body + google_crc32c.value(body).to_bytes(4, "little")


def with_long_text(study: Path) -> None:
    """A text variable whose one chunk claims two thousand million texts."""
    change_array(study, lambda node: node["chunk_grid"]["configuration"].update(chunk_shape=[2]), "label")
    body = numcodecs.Zstd().encode(np.array([2_000_000_000], "<u4").tobytes() + bytes(16))
    (study / "label" / "c" / "0").write_bytes(checked(bytes(body)))


def with_many_chunks(study: Path) -> None:
    """An array that declares 10^15 chunks."""

    def change(node: dict) -> None:
        node.update(shape=[100_000] * 3)
        node["chunk_grid"]["configuration"]["chunk_shape"] = [1, 1, 1]

    change_array(study, change)


def with_deep_attribute(study: Path, levels: int = 400) -> None:
    path = study / "zarr.json"
    node = json.loads(path.read_text())
    deep: object = 1
    for _ in range(levels):
        deep = [deep]
    node["attributes"]["deep"] = deep
    path.write_text(json.dumps(node))


STORED_WRONG: dict[str, Callable[[Path], None]] = {
    "a Zarr 2 array": with_zarr2_array,
    "a Zarr 2 study": as_zarr2,
    "another codec": with_codec("numcodecs.headwise_spy"),
    "a pickle": with_codec("pickle"),
    "Python objects": with_data_type("object"),
    "dates": with_data_type({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}),
    "many chunks": with_many_chunks,
    "deep attributes": with_deep_attribute,
}


def links(atlas: Path, outside: Path) -> dict[str, Callable[[], None]]:
    """Links in an atlas that lead to a file or a folder outside."""

    def replace(key: str, target: Path) -> None:
        path = atlas / key
        path.parent.mkdir(exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            path.rename(atlas.parent / "was")
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(target)

    chunk = next(path for path in (atlas / "profile" / "value" / "c").rglob("*") if path.is_file())
    return {
        "the metadata": lambda: replace("zarr.json", outside / "secret"),
        "a chunk": lambda: replace(chunk.relative_to(atlas).as_posix(), outside / "secret"),
        "a stray file of a study": lambda: replace("profile/secret", outside / "secret"),
        "a study": lambda: replace("profile", outside),
        "a variable": lambda: replace("profile/value", outside),
        "the lock": lambda: replace(".swap/lock", outside / "secret"),
        "the staging directory": lambda: replace(".swap", outside),
    }


def make_fifo(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def opened(atlas: Path) -> None:
    """What a reading verb does with an atlas."""
    found = Atlas.open(atlas)
    for study in found.studies:
        found[study]
    found.provenances()
