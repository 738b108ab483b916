import json
import logging

import pytest
import xarray as xr

from headwise.atlas import Atlas
from headwise.engines import Shard, cut
from headwise.errors import AtlasError


def test_cut():
    assert cut(0, 4) == []
    assert cut(8, 4) == [Shard(0, 0, 4), Shard(1, 4, 8)]
    assert cut(3, 9) == [Shard(0, 0, 3)]
    with pytest.raises(ValueError, match="at least one example"):
        cut(3, 0)


def test_commit_and_load(tmp_path, store, work):
    shards, run = cut(23, 4), store(tmp_path)
    assert run.load(shards[0]) is None
    result = work(tmp_path / "log")(shards[2])
    run.commit(shards[2], result)
    assert run.done(shards) == [shards[2]]
    assert store(tmp_path).done(shards) == [shards[2]]  # another process finds it
    xr.testing.assert_identical(run.load(shards[2]), result)
    assert sorted(entry.name for entry in run.folder.iterdir()) == ["00002.zarr.zip", "plan.json"]
    run.clear()
    assert not run.folder.exists()


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"data": {"digest": "e"}}, {"model": {"digest": "n"}}, {"parameters": {"k": 1}}]
)
def test_another_provenance_has_another_folder(tmp_path, store, work, change):
    shards, run = cut(23, 4), store(tmp_path)
    run.commit(shards[0], work(tmp_path / "log")(shards[0]))
    other = store(tmp_path, **change)
    assert other.folder != run.folder
    assert other.folder.parent == tmp_path / ".shards"
    assert other.done(shards) == []


def test_another_plan_is_refused(tmp_path, store):
    run = store(tmp_path)
    with pytest.raises(
        AtlasError, match=r"cut differently \(examples 23 against 23, size 4 against 5\); run with the same"
    ):
        store(tmp_path, size=5)
    plan = json.loads((run.folder / "plan.json").read_text())
    (run.folder / "plan.json").write_text(json.dumps(plan | {"identity": "somebody else's"}))
    with pytest.raises(AtlasError, match="delete that folder to start anew"):
        store(tmp_path)


def test_shards_without_a_plan_are_not_used(tmp_path, store, work):
    shards, run = cut(23, 4), store(tmp_path)
    run.commit(shards[0], work(tmp_path / "log")(shards[0]))
    (run.folder / "plan.json").write_text("{half")
    assert store(tmp_path).done(shards) == []


def test_a_damaged_shard_is_not_done(tmp_path, store, work, caplog):
    shards, run = cut(23, 4), store(tmp_path)
    run.commit(shards[1], work(tmp_path / "log")(shards[1]))
    path = run.folder / "00001.zarr.zip"
    path.write_bytes(path.read_bytes()[:-40])
    with caplog.at_level(logging.WARNING):
        assert run.load(shards[1]) is None
    assert "Shard 1 is measured again, because its file was damaged" in caplog.text
    assert run.done(shards) == []


def test_plain_xarray_does_not_see_shards(tmp_path, store, work):
    atlas = Atlas.create(tmp_path / "atlas")
    run = store(atlas.path)
    run.commit(cut(23, 4)[0], work(tmp_path / "log")(cut(23, 4)[0]))
    with xr.open_datatree(atlas.path, engine="zarr") as tree:
        assert list(tree.children) == []
    assert atlas.studies == []


def test_an_unwritable_place_is_explained(tmp_path, store):
    (tmp_path / ".shards").write_text("in the way")
    with pytest.raises(AtlasError, match=r"Could not write to .* is a file where a folder is needed"):
        store(tmp_path)
