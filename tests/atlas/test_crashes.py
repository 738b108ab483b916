"""kill -9 at any moment leaves the previous or the new state, whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.errors import AtlasError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def crash(verb: str, folder: Path) -> dict:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = Path(__file__).with_name("crashes.py")
    run = subprocess.run(
        [sys.executable, program, verb, folder],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["last"] == [99_999, 99_999]
    assert not [name for name in found["left"] if name.endswith((".new", ".old", ".trash"))]
    return found


def test_killed_at_random_moments(tmp_path):
    seen = crash("random", tmp_path)["seen"]
    assert len(seen) == 25
    recovered = [version for _, version in seen]
    assert recovered == sorted(recovered)  # never older than what stood before
    assert len(set(recovered)) == 25  # every child had replaced the study before it died
    assert all(plain in (None, version) for plain, version in seen)


def test_killed_before_each_rename(tmp_path):
    """The study is out of plain xarray's sight only between the four renames of the commit itself."""
    assert crash("rename", tmp_path)["seen"] == [
        [0, 0],  # before the metadata without the study is in place
        [None, 0],  # before the old folder goes aside
        [None, 0],  # before the new folder comes in: undone
        [None, 1],  # before the new metadata is in place: finished
        [1, 1],  # before the old folder is trashed
        [1, 1],
    ]


def test_many_at_once(tmp_path):
    found = crash("together", tmp_path)
    assert found["studies"] == ["other", "third", "toy"]
    assert found["seen"] == [[5, 5]]


@pytest.fixture
def atlas(tmp_path, profile) -> Atlas:
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("profile", profile(1.0))
    atlas.store.write("toy", profile(5.0, study="toy"))
    return atlas


def test_an_interrupted_commit_is_undone(atlas):
    (atlas.path / "profile").rename(atlas.path / ".swap" / "profile.old")
    again = Atlas.open(atlas.path)
    assert again.studies == ["profile", "toy"]
    assert (again["profile"].value == 1).all()
    assert list((atlas.path / ".swap").glob("*.old")), "a reader writes nothing"
    assert Atlas.create(atlas.path).studies == ["profile", "toy"]
    assert (atlas.path / "profile").is_dir()
    with xr.open_datatree(atlas.path, engine="zarr") as tree:
        assert sorted(tree.children) == ["profile", "toy"]


def test_an_interrupted_commit_is_finished(atlas, tmp_path, profile):
    other = Atlas.create(tmp_path / "other")
    other.add("profile", profile(2.0))
    (atlas.path / "profile").rename(atlas.path / ".swap" / "profile.old")
    (other.path / "profile").rename(atlas.path / "profile")
    root = json.loads((atlas.path / "zarr.json").read_text())
    nodes = root["consolidated_metadata"]["metadata"]
    root["consolidated_metadata"]["metadata"] = {path: node for path, node in nodes.items() if path.startswith("toy")}
    (atlas.path / "zarr.json").write_text(json.dumps(root))
    again = Atlas.open(atlas.path)
    assert (again["profile"].value == 2).all()
    assert again.provenance("profile").parameters == {"version": 2.0}
    assert (Atlas.create(atlas.path)["profile"].value == 2).all()
    assert not list((atlas.path / ".swap").glob("*.old"))


def test_leftovers_are_no_studies_and_go_with_the_next_write(atlas, profile):
    for name in ("profile.new", "toy.new", "gone.new", "profile.1.trash"):
        (atlas.path / ".swap" / name / "value").mkdir(parents=True)
    assert Atlas.open(atlas.path).studies == ["profile", "toy"]
    atlas.add("profile", profile(2.0))
    assert {entry.suffix for entry in (atlas.path / ".swap").iterdir()} <= {"", ".lock", ".json"}


def test_a_folder_that_was_deleted_is_no_longer_listed(atlas):
    import shutil

    shutil.rmtree(atlas.path / "toy")
    assert Atlas.open(atlas.path).studies == ["profile"]
    assert sorted(Atlas.open(atlas.path).provenances()) == ["profile"]
    assert Atlas.create(atlas.path).studies == ["profile"]
    with xr.open_datatree(atlas.path, engine="zarr") as tree:
        assert list(tree.children) == ["profile"]


def test_recovering_does_not_whitewash_damage(atlas):
    """Restoring the metadata of one study keeps the consolidated copy of the others."""
    path = atlas.path / "toy" / "zarr.json"
    path.write_text(path.read_text().replace("packaged", "unpacked"))
    (atlas.path / "profile").rename(atlas.path / ".swap" / "profile.old")
    with pytest.raises(AtlasError, match="the metadata of the study was changed"):
        Atlas.open(atlas.path)["toy"]
