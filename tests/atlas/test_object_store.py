"""An atlas in an object store: what is written is read, by Headwise and by plain xarray, and damage is seen and named."""

import itertools
import json

import numpy as np
import pytest
import xarray as xr
from obstore.store import from_url
from zarr.storage import ObjectStore
from zarr_in_memory import zarr_memory_store

from headwise.atlas import Atlas
from headwise.atlas.encoding import encode_files
from headwise.atlas.format import ConsolidatedMetadata, study_keys
from headwise.atlas.storage import ObjectStoreLocation, open_location
from headwise.core.errors import AtlasError
from headwise.core.schema import annotate
from headwise.studies.registry import dataset_spec

_numbers = itertools.count()


@pytest.fixture(params=["memory", "s3"])
def url(request, server) -> str:
    return f"{request.param}://bucket/atlases/{next(_numbers)}"


@pytest.fixture
def memory() -> str:
    return f"memory://bucket/atlases/{next(_numbers)}"


def plain(atlas: Atlas) -> xr.DataTree:
    """By plain xarray and zarr; for S3 through obstore's own store, without Headwise."""
    location = atlas.location
    if location.prefix:  # in memory: all keys
        store = zarr_memory_store({key: location.read(key) for key in location.keys()})  # noqa: SIM118
    else:
        store = ObjectStore(from_url(str(location), client_options={"allow_http": True}), read_only=True)
    return xr.open_datatree(store, engine="zarr").load()


def test_an_atlas_at_a_url(url, profile):
    with pytest.raises(AtlasError, match=rf"There is no atlas at {url}; make one with headwise build -o {url}"):
        Atlas.open(url)
    assert not Atlas.exists(url)
    atlas = Atlas.create(url)
    assert Atlas.exists(url) and atlas.studies == []
    assert list(plain(atlas).children) == []
    atlas.add("profile", profile(1.0))
    atlas.store.write("toy", profile(5.0, study="toy"))
    again = Atlas.open(url)
    assert again.studies == ["profile", "toy"] and "profile" in again
    xr.testing.assert_identical(again["profile"], annotate(profile(1.0), dataset_spec("profile").schema))
    assert again.provenance("profile").parameters == {"version": 1.0}
    assert again.heads().index[0] == "L0H0"
    tree = plain(atlas)
    assert sorted(tree.children) == ["profile", "toy"]
    xr.testing.assert_identical(tree["profile"].to_dataset(), annotate(profile(1.0), dataset_spec("profile").schema))
    assert str(again).startswith(f"Atlas {url}\n  profile: tiny on packaged-passages (4)")
    assert "Atlas of tiny" in again._repr_html_() and url in again._repr_html_()
    with pytest.raises(AtlasError, match="is not a folder of this machine, which this needs; copy it to one"):
        _ = again.path


def test_replacing_leaves_nothing_of_the_old(url, profile):
    atlas = Atlas.create(url)
    atlas.store.write("toy", profile(1.0, layers=7).assign(extra=("head", [1, 2])))
    states = {atlas.fingerprint}
    atlas.store.write("toy", profile(2.0))
    assert len({*states, atlas.fingerprint}) == 2
    assert (atlas.store.read("toy").value == 2).all()
    kept = {f"toy/{key}" for key in encode_files(profile(2.0))}
    assert set(atlas.location.keys()) == {"zarr.json", ".swap/toy/lease", *kept}


def test_the_same_bytes_as_in_a_folder(tmp_path, memory, profile):
    """A study is the same files at every location, so that copying them by any tool gives an atlas."""
    local, remote = Atlas.create(tmp_path / "a"), Atlas.create(memory)
    for atlas in (local, remote):
        atlas.add("profile", profile(1.0))
    keys = local.location.keys("profile")
    assert keys == remote.location.keys("profile")
    assert all(local.location.read(key) == remote.location.read(key) for key in keys)
    uploaded = open_location(f"{memory}-uploaded")
    for key in [*keys, "zarr.json"]:
        uploaded.write(key, local.location.read(key))
    xr.testing.assert_identical(Atlas.open(uploaded)["profile"], local["profile"])
    downloaded = open_location(tmp_path / "downloaded")
    for key in [*keys, "zarr.json"]:
        downloaded.write(key, remote.location.read(key))
    copied = Atlas.open(downloaded.folder)
    xr.testing.assert_identical(copied["profile"], local["profile"])
    copied.add("profile", profile(2.0))  # what was said of the version at the URL goes
    assert ConsolidatedMetadata.parse(downloaded.read("zarr.json")).versions["profile"].keys() == {"sha256"}
    assert (Atlas.open(downloaded.folder)["profile"].value == 2).all()


def test_copies(tmp_path, url, profile, provenance):
    local = Atlas.create(tmp_path / "a")
    local.add("profile", profile(1.0))
    local.location.write("detector.json", b"{}")
    there = local.copy_to(url)
    assert there.location.read("detector.json") == b"{}"
    xr.testing.assert_identical(there["profile"], local["profile"])
    back = there.copy_to(tmp_path / "b")
    assert back.place.keys("profile") == local.location.keys("profile")
    other = Atlas.create(tmp_path / "c")
    other.store.write("profile", profile(2.0, model={"id": "other", "digest": "d2"}))
    with pytest.raises(AtlasError, match="is an atlas of another model than"):
        other.copy_to(url)


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = {"flipped": flip, "truncated": lambda content: content[:-3], "emptied": lambda content: b"", "deleted": None}


def damage(location: ObjectStoreLocation, key: str, how: str) -> None:
    change = DAMAGES[how]
    if change is None:
        location.delete(key)
    else:
        location.write(key, change(location.read(key)))


@pytest.mark.parametrize("variable", ["per_example", "label"])
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_chunk_is_seen_and_named(memory, profile, variable, how):
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    (key,) = atlas.location.keys(f"profile/{variable}/c")
    damage(atlas.location, key, how)
    with pytest.raises(AtlasError) as caught:
        atlas["profile"]
    message = str(caught.value)
    assert message.startswith(f"The study 'profile' in {memory} is damaged: variable '{variable}' ")
    assert message.endswith("headwise build again with --redo profile, which recomputes only this study.")
    atlas.add("profile", profile(2.0))
    assert (atlas["profile"].value == 2).all()


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("node", ["value/zarr.json", "zarr.json"])
def test_damaged_metadata_is_seen(memory, profile, node, how):
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    damage(atlas.location, f"profile/{node}", how)
    with pytest.raises(AtlasError, match=r"'profile' in .* is damaged: .*metadata.*--redo profile"):
        Atlas.open(memory)["profile"]


def test_parts_of_two_versions_are_never_one_study(memory, profile):
    """Every chunk has a right checksum of its own: only the study's digest tells."""
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    (key,) = atlas.location.keys("profile/value/c")
    old = atlas.location.read(key)
    atlas.add("profile", profile(2.0))
    atlas.location.write(key, old)
    with pytest.raises(AtlasError, match="damaged: its files are not those that were written together"):
        atlas["profile"]


def test_a_reader_reads_again_when_the_study_was_replaced(memory, profile, monkeypatch):
    """Half of the objects are read, then another process replaces the study, then the rest is read."""
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    real, calls = ObjectStoreLocation.read_many, []

    def replaced_meanwhile(self, keys):
        calls.append(len(keys))
        early = real(self, keys[: len(keys) // 2])
        if len(calls) == 1:
            Atlas.open(memory).add("profile", profile(2.0))
        return early | real(self, keys[len(keys) // 2 :])

    monkeypatch.setattr(ObjectStoreLocation, "read_many", replaced_meanwhile)
    assert (atlas["profile"].to_array("variable").sel(variable="value") == 2).all()
    assert len(calls) == 2


def test_a_study_that_is_replaced_again_and_again_is_reported(memory, profile, monkeypatch):
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    real, numbers = ObjectStoreLocation.read_many, itertools.count(2)

    def replaced_always(self, keys):
        atlas.add("profile", profile(float(next(numbers))))
        return real(self, keys[:-1])

    monkeypatch.setattr(ObjectStoreLocation, "read_many", replaced_always)
    with pytest.raises(AtlasError, match="is replaced again and again; try again when that is over"):
        atlas["profile"]


def test_other_things_are_not_taken_for_an_atlas(memory, profile):
    location = open_location(memory)
    location.write("photos/1.jpg", b"jpg")
    with pytest.raises(
        AtlasError, match=r"is not empty \(it holds photos\) and is not an atlas; choose a new or empty"
    ):
        Atlas.create(memory)
    location.write("zarr.json", b"{}")
    with pytest.raises(AtlasError, match="is not an atlas"):
        Atlas.open(memory)
    location.write("zarr.json", b"half")
    with pytest.raises(AtlasError, match="is not an atlas"):
        Atlas.open(memory)
    location.write("zarr.json", ConsolidatedMetadata({"format": "headwise-atlas", "format_version": 9}, {}).to_bytes())
    with pytest.raises(AtlasError, match="has format version 9"):
        Atlas.open(memory)


def test_damaged_metadata_of_the_atlas_is_reported(memory, profile):
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    atlas.location.write("zarr.json", b"{half")
    with pytest.raises(AtlasError, match=r"The metadata .*zarr.json is damaged"):
        _ = atlas.studies
    atlas.location.delete("zarr.json")
    with pytest.raises(AtlasError, match="There is no atlas at"):
        _ = atlas.studies
    with pytest.raises(AtlasError, match=r"any more: zarr.json was deleted meanwhile"):
        atlas.add("profile", profile(1.0))


def test_a_store_that_overwrites_is_refused(memory, monkeypatch):
    def ignoring(self, key, content, mode):
        self.write(key, content)
        return {"e_tag": "always"}

    monkeypatch.setattr(ObjectStoreLocation, "_put", ignoring)
    with pytest.raises(AtlasError, match="ignores the condition of a conditional write"):
        Atlas.create(memory)


def test_a_copy_that_was_made_in_the_middle_of_a_write_is_refused(tmp_path, memory, profile):
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    root = ConsolidatedMetadata.parse(atlas.location.read("zarr.json"))
    pending = root.with_pending("profile", {"id": "x", "sha256": "y"}, root.of("profile"))
    copy = open_location(tmp_path / "copy")
    for key in atlas.location.keys("profile"):
        copy.write(key, atlas.location.read(key))
    copy.write("zarr.json", pending.to_bytes())
    with pytest.raises(AtlasError, match="was copied from a store while profile was being committed there"):
        Atlas.open(tmp_path / "copy")


def test_odd_numbers_keep_their_bits(memory):
    bits = np.array([0x7FC00001, 0x80000000, 0x7F800000, 1], "uint32").view("float32")
    odd = xr.Dataset({"bits": ("layer", bits), "words": ("layer", ["a", "", "λ", "nan"])})
    atlas = Atlas.create(memory)
    atlas.store.write("odd", odd)
    found = atlas.store.read("odd")
    assert found.bits.values.tobytes() == bits.tobytes()
    assert found.words.values.tolist() == ["a", "", "λ", "nan"]


def test_the_list_promises_exactly_the_files_that_are_there(memory):
    odd = xr.Dataset(
        {
            "scalar": 1,
            "none": (("example", "head"), np.zeros((0, 2000))),
            "large": (("layer", "head"), np.zeros((3000, 2000))),
            "words": ("layer", ["a"] * 3000),
        }
    )
    atlas = Atlas.create(memory)
    atlas.store.write("odd", odd)
    promised = study_keys(atlas.store.metadata().of("odd"), "odd")
    assert {f"odd/{key}" for key in promised} == set(atlas.location.keys("odd"))
    assert len(promised) > len(odd.variables) * 2  # one has several chunks
    atlas.location.write("odd/.DS_Store", b"")  # what is not promised is not looked at
    atlas.location.write("odd/more/zarr.json", b"{}")
    atlas.location.write("odd/large/c/999/0", b"")
    xr.testing.assert_identical(atlas.store.read("odd"), odd)


def test_the_list_is_plain_json(memory, profile):
    atlas = Atlas.create(memory)
    atlas.add("profile", profile(1.0))
    root = json.loads(atlas.location.read("zarr.json"))
    assert root["attributes"]["versions"]["profile"].keys() == {"id", "sha256"}
    assert "profile/value" in root["consolidated_metadata"]["metadata"]
