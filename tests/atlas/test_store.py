import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from headwise.atlas import Atlas, pack, unpack
from headwise.atlas.decoding import CorruptionError
from headwise.core.errors import AtlasError
from headwise.core.schema import annotate
from headwise.studies.registry import dataset_spec


def odd_dataset() -> xr.Dataset:
    """Everything that tends to get lost: NaN payloads, -0, infinities, text, booleans, empty things, small floats."""
    bits = np.array([0x7FC00001, 0x80000000, 0x7F800000, 0x00000001], "uint32").view("float32")
    return xr.Dataset(
        {
            "bits": ("layer", bits),
            "zeros": ("layer", np.zeros(4, "float16")),
            "flag": ("layer", [True, False, True, False]),
            "words": (("layer", "rank"), [["a", "λ 漢"], ["", "x" * 300], ["a\nb", '"'], ["-", "nan"]]),
            "one": ((), np.int8(-3)),
            "units": ("layer", np.arange(4), {"units": "days since 2000-01-01", "long_name": "not a date"}),
            "nothing": (("example", "layer"), np.zeros((0, 4), "float32")),
        },
        coords={"layer": np.arange(4), "rank": ["first", "second"], "example": np.array([], "U3"), "kind": "scalar"},
    )


def assert_same_bits(a: xr.Dataset, b: xr.Dataset) -> None:
    xr.testing.assert_identical(a, b)
    assert a.coords.keys() == b.coords.keys()
    for name in a.variables:
        one, other = a[name].values, b[name].values
        if one.dtype.kind in "biuf":
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
        else:
            assert [type(value) for value in other.ravel()] == [str] * other.size
            assert one.tolist() == other.tolist(), name


def test_study_round_trip(tmp_path):
    store = Atlas.create(tmp_path).store
    store.write("odd", odd_dataset())
    assert_same_bits(odd_dataset(), store.read("odd"))
    store.write("odd", store.read("odd"))  # what was read can be written
    assert_same_bits(odd_dataset(), store.read("odd"))


def test_packed_round_trip():
    assert_same_bits(odd_dataset(), unpack(pack(odd_dataset())))
    assert pack(odd_dataset()) == pack(odd_dataset())


def test_objects_are_refused():
    with pytest.raises(
        AtlasError, match=r"variable 'x' holds nan; an atlas stores numbers, truth values and text only"
    ):
        pack(xr.Dataset({"x": ("layer", np.array(["a", np.nan], object))}))


def test_plain_xarray_opens_an_atlas(tmp_path, profile):
    """Warnings are errors in this test run: there is none."""
    atlas = Atlas.create(tmp_path / "atlas")
    assert list(xr.open_datatree(atlas.path, engine="zarr").children) == []
    atlas.add("profile", profile(1.0))
    atlas.store.write("toy", profile(2.0))
    (atlas.path / ".shards" / "profile-0").mkdir(parents=True)
    (atlas.path / "my notes").mkdir()
    with xr.open_datatree(atlas.path, engine="zarr") as tree:
        assert sorted(tree.children) == ["profile", "toy"]
        assert tree.attrs.items() >= {"format": "headwise-atlas", "format_version": 1}.items()
        assert tree.attrs.keys() - {"format", "format_version"} == {"versions"}
        xr.testing.assert_identical(
            tree["profile"].to_dataset().load(), annotate(profile(1.0), dataset_spec("profile").schema)
        )
        assert tree["toy"].value.dtype == "float32"
    assert atlas.studies == ["profile", "toy"]


def chunk(atlas: Atlas, variable: str) -> Path:
    (path,) = (path for path in (atlas.path / "profile" / variable / "c").rglob("*") if path.is_file())
    return path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "flipped": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": lambda path: path.unlink(),
}


@pytest.mark.parametrize("variable", ["per_example", "layer", "label", "statistic"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_chunk_is_seen_and_named(tmp_path, profile, variable, damage):
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("profile", profile(1.0))
    DAMAGES[damage](chunk(atlas, variable))
    with pytest.raises(AtlasError) as caught:
        atlas["profile"]
    message = str(caught.value)
    assert message.startswith(f"The study 'profile' in {atlas.path} is damaged: variable '{variable}' ")
    assert message.endswith("headwise build again with --redo profile, which recomputes only this study.")
    assert "\n" not in message
    atlas.add("profile", profile(2.0))
    assert (atlas["profile"].value == 2).all()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("node", ["value/zarr.json", "zarr.json"])
def test_damaged_metadata_is_seen(tmp_path, profile, node, damage):
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("profile", profile(1.0))
    DAMAGES[damage](atlas.path / "profile" / node)
    with pytest.raises(AtlasError, match=r"'profile' in .* is damaged: .*metadata.*--redo profile"):
        Atlas.open(atlas.path)["profile"]


def test_changed_provenance_is_seen(tmp_path, profile):
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("profile", profile(1.0))
    path = atlas.path / "profile" / "zarr.json"
    path.write_text(path.read_text().replace("packaged-passages", "packaged-massages"))
    with pytest.raises(AtlasError, match="the metadata of the study was changed or lost"):
        atlas["profile"]


def test_corrupt_packed_datasets_are_seen():
    whole = pack(odd_dataset())
    changed = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 7)]
    for content in (whole[: len(whole) // 2], whole[:-1], b"", whole + b"?", *changed):
        with pytest.raises(CorruptionError):
            unpack(content)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bits", {"shape": [2**40]}), ("bits", {"dims": ["a", "a"]}), ("bits", {"dtype": "|O"}), ("bits", {"size": 1}),
        ("bits", {"more": 1}), ("text", {"dtype": "<f8"}), ("text", {"shape": [1]}),
    ],
)  # fmt: skip
def test_packed_headers_that_lie_are_refused(name, change):
    """Nothing is allocated that the bytes do not hold."""
    whole = pack(xr.Dataset({"bits": ("x", np.arange(4, dtype=np.int8)), "text": ("y", np.array(["a", "b"], object))}))
    size = int.from_bytes(whole[16:24], "little")
    header = json.loads(whole[32 : 32 + size])
    next(one for one in header["arrays"] if one["name"] == name).update(change)
    new = json.dumps(header).encode()
    content = whole[:16] + len(new).to_bytes(8, "little") + zlib.crc32(new).to_bytes(8, "little") + new
    with pytest.raises(CorruptionError):
        unpack(content + whole[32 + size :])


def test_unwritable_locations(tmp_path, profile):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(
        AtlasError, match=r"Could not write to .*/file/atlas: \S*/file is a file where a folder is needed"
    ):
        Atlas.create(file / "atlas")
    with pytest.raises(AtlasError, match="is a file where a folder is needed; choose another folder with -o"):
        Atlas.create(file)
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("profile", profile(1.0))
    swap = atlas.path / ".swap"
    swap.rename(tmp_path / "gone")
    swap.write_text("in the way")
    with pytest.raises(AtlasError, match=r"is a file where a folder is needed.* intact"):
        atlas.add("profile", profile(2.0))
    swap.unlink()
    assert (atlas["profile"].value == 1).all()


@pytest.mark.parametrize(
    ("number", "words"), [("ENOSPC", "the disk is full"), ("EROFS", "may not be written"), ("EACCES", "permissions")]
)
@pytest.mark.parametrize("call", ["fsync", "rename", "replace"])
def test_what_the_disk_refuses_is_explained(tmp_path, profile, monkeypatch, number, words, call):
    import errno
    import os

    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("profile", profile(1.0))

    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, number), "refused")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(AtlasError, match=f"Could not write to .*{words}.* -o, then run the same command again"):
            atlas.add("profile", profile(2.0))
    assert (Atlas.open(atlas.path)["profile"].value == 1).all()
    atlas.add("profile", profile(2.0))
    assert (atlas["profile"].value == 2).all()


def test_names_with_a_common_prefix_are_distinguished():
    """Zarr's count of chunks in a zip file takes `answer_ids` for a chunk of `answer`."""
    dataset = xr.Dataset({"answer": ("example", np.arange(3.0)), "answer_ids": ("example", np.arange(3))})
    xr.testing.assert_identical(unpack(pack(dataset)), dataset)
