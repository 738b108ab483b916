"""An atlas that somebody sent runs no code, writes nowhere, leads nowhere, and takes no more memory than there is."""

import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import hostile
import numpy as np
import pytest
import xarray as xr

from headwise.atlas import Atlas, hub, local_store, plain_files
from headwise.atlas.decoding import RefusedError
from headwise.atlas.encoding import encode_files, unzip_files, zip_files
from headwise.core import memory
from headwise.core.errors import AtlasError, HeadwiseError


@pytest.fixture
def atlas(tmp_path, profile) -> Path:
    hostile.RAN.clear()
    made = Atlas.create(tmp_path / "atlas")
    made.add("profile", profile(1.0))
    return made.path


@pytest.fixture
def outside(tmp_path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("mine")
    return folder


@pytest.fixture(autouse=True)
def patience():
    """A reader that hangs fails its test."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def content(folder: Path) -> dict[str, tuple]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("kind", hostile.STORED_WRONG)
@pytest.mark.parametrize("entrance", ["open", "verify", "push"])
def test_nothing_but_headwises_own_form_is_decoded(atlas, kind, entrance):
    hostile.STORED_WRONG[kind](atlas / "profile")
    hostile.relist(atlas)
    ways = {
        "open": hostile.opened,
        "verify": hub.verify,
        "push": lambda path: hub.push(path, hub.HubAddress("a/b"), ""),
    }
    with pytest.raises(
        AtlasError, match=r"^The study 'profile' in .* is refused: .* No version of Headwise writes this"
    ):
        ways[entrance](atlas)
    assert hostile.RAN == []


@pytest.mark.parametrize("kind", hostile.STORED_WRONG)
def test_pending_studies_of_a_bucket_are_checked_too(atlas, kind, tmp_path):
    from headwise.atlas.decoding import digest
    from headwise.atlas.format import ConsolidatedMetadata

    hostile.STORED_WRONG[kind](atlas / "profile")
    study = atlas / "profile"
    files = {path.relative_to(study).as_posix(): path.read_bytes() for path in study.rglob("*") if path.is_file()}
    bucket = Atlas.create(f"memory://hostile/{tmp_path.name}")
    version = {"id": "0", "sha256": digest(files)}
    bucket.location.write(".swap/profile/0.zarr.zip", zip_files(files))
    metadata = ConsolidatedMetadata(bucket.store.metadata().attrs, {}).with_pending("profile", version, {})
    bucket.location.write("zarr.json", metadata.to_bytes())
    with pytest.raises(AtlasError, match=r"is refused: "):
        Atlas.open(bucket.location)["profile"]
    assert hostile.RAN == []


@pytest.mark.parametrize("place", ["the metadata", "a chunk", "a stray file of a study", "a study", "a variable", "the lock",
                                   "the staging directory"])  # fmt: skip
def test_links_are_not_followed(atlas, outside, place):
    hostile.links(atlas, outside)[place]()
    before = content(outside)
    for read in (hostile.opened, hub.verify):
        with pytest.raises(AtlasError, match="symbolic link"):
            read(atlas)
    with contextlib.suppress(AtlasError):
        assert not [path for path in hub.committed_files(atlas).values() if outside in path.resolve().parents]
    with contextlib.suppress(AtlasError):  # a link in the place of a study is itself replaced
        Atlas.create(atlas).add("profile", one())
    assert content(outside) == before
    assert (outside / "secret").read_text() == "mine"


def one() -> xr.Dataset:
    from synthetic.profile import profile_dataset

    return profile_dataset(3, 2, texts=4, randoms=2)


def test_a_link_in_the_place_of_a_staged_file_is_not_written_through(atlas, outside, profile):
    shutil.copytree(atlas / "profile", atlas / "toy")  # present and not listed: a reader used to list it
    for name in ("with.json", "without.json"):
        (atlas / ".swap" / name).unlink(missing_ok=True)
        (atlas / ".swap" / name).symlink_to(outside / "secret")
    before = content(atlas)
    hostile_names = Atlas.open(atlas).studies
    assert hostile_names == ["profile", "toy"]
    assert content(atlas) == before, "a reader wrote"
    Atlas.open(atlas).add("profile", profile(2.0))
    assert (outside / "secret").read_text() == "mine"
    assert (Atlas.open(atlas)["profile"].value == 2).all()


def test_a_link_in_the_place_of_a_study_being_written_is_not_written_through(atlas, outside, profile):
    (atlas / ".swap" / "profile.new").symlink_to(outside)
    Atlas.open(atlas).add("profile", profile(2.0))
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


@pytest.mark.parametrize("key", [".swap/lock", "zarr.json", "profile/zarr.json", "profile/pipe"])
def test_a_pipe_does_not_hang_a_reader(atlas, key):
    hostile.make_fifo(atlas / key)
    with pytest.raises(AtlasError, match="a pipe, a socket or a device"):
        hostile.opened(atlas)


def test_shards_lead_nowhere(atlas, outside):
    location = Atlas.open(atlas).location
    (atlas / ".shards").symlink_to(outside)
    for way in (
        lambda: location.read(".shards/secret"),
        lambda: location.write(".shards/secret", b"new"),
        lambda: location.delete(".shards/secret"),
        lambda: location.keys(".shards"),
        lambda: location.clear(".shards"),
        lambda: location.read("../outside/secret"),
    ):
        with pytest.raises(AtlasError, match=r"symbolic link|leads out of the atlas"):
            way()
    assert (outside / "secret").read_text() == "mine"


@pytest.mark.parametrize("path", ["../../etc", "profile/../../x", "/etc", "profile/..", "Profile", "profile/a/b", ""])
def test_names_in_the_metadata_lead_nowhere(atlas, path):
    root = json.loads((atlas / "zarr.json").read_text())
    root["consolidated_metadata"]["metadata"][path] = {"zarr_format": 3, "node_type": "group"}
    (atlas / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(AtlasError, match=r"metadata of the atlas .* is damaged"):
        Atlas.open(atlas)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_a_bomb_is_refused_before_it_is_unpacked(atlas):
    """In a process that may take 3 GB: the array would take 3.4."""
    hostile.with_bomb(atlas / "profile")
    hostile.relist(atlas)
    assert sum(path.stat().st_size for path in (atlas / "profile" / "bomb").rglob("*") if path.is_file()) < 500_000
    program = textwrap.dedent(
        f"""
        import resource
        from headwise.atlas import Atlas
        from headwise.core.errors import AtlasError
        for limit in (10 << 30, 3 << 30):
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            try:
                Atlas.open({str(atlas)!r})["profile"]
            except AtlasError as error:
                print(error)
        # not ru_maxrss, which Linux hands down from the process that started this one
        print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
        """
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second, most = run.stdout.splitlines()
    assert "'bomb' unpacks 3.7 GB from" in first and "as no measurement does" in first
    assert "There is too little memory to read the study 'profile'" in second and "it declares 3.7 GB" in second
    assert int(most) < 1_000_000, "kilobytes"


def test_texts_that_claim_to_be_many_are_refused(atlas):
    hostile.with_long_text(atlas / "profile")
    hostile.relist(atlas)
    with pytest.raises(AtlasError, match="variable 'label' does not hold the 2 texts that it declares"):
        Atlas.open(atlas)["profile"]


def test_a_file_longer_than_memory_is_not_read(atlas):
    with open(atlas / "zarr.json", "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(AtlasError, match=r"zarr.json has 1.1 TB, more than there is memory"):
        Atlas.open(atlas)


def test_bombs_in_archives_are_refused(profile):
    files = encode_files(profile(1.0))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("bomb", bytes(10**6))
    with pytest.raises(RefusedError, match="compressed archive"):
        unzip_files(buffer.getvalue())


def test_deep_json_is_a_sentence(atlas):
    text, deep = (atlas / "zarr.json").read_text(), "[" * 99_999 + "]" * 99_999
    (atlas / "zarr.json").write_text(text.replace('"attributes": {', f'"attributes": {{"deep": {deep},', 1))
    with pytest.raises(AtlasError, match="is damaged"):
        Atlas.open(atlas)


def test_swapped_chunks_are_noticed(tmp_path):
    """Both have the right length and the right checksum: only their names are wrong."""
    dataset = xr.Dataset({"x": ("token", np.arange(1_000_000, dtype="int64"))})
    made = Atlas.create(tmp_path / "atlas")
    made.store.write("toy", dataset)
    first, second = (made.path / "toy" / "x" / "c" / name for name in ("0", "1"))
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    with pytest.raises(AtlasError, match=r"'toy' in .* is damaged: its files are not those that were written together"):
        made.store.read("toy")
    hostile.relist(made.path)  # as an atlas of an earlier version, which lists no digest
    assert made.store.read("toy").sizes["token"] == 1_000_000


def test_every_refusal_is_one_sentence_and_no_damage_of_memory(atlas, monkeypatch):
    """Too little memory, or a disk that fails, says nothing about what is stored."""
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    monkeypatch.setattr(plain_files, "LARGE", 0)
    with pytest.raises(AtlasError) as caught:
        Atlas.open(atlas)["profile"]
    assert "more than there is memory" in str(caught.value) and "damaged" not in str(caught.value)
    monkeypatch.undo()

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    opened = Atlas.open(atlas)
    monkeypatch.setattr(local_store, "PlainFiles", fail)
    with pytest.raises(HeadwiseError) as caught:
        opened["profile"]
    assert "Input/output error" in str(caught.value)
    assert "damaged" not in str(caught.value) and "--redo" not in str(caught.value)
