import json
import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr

from headwise.atlas import Atlas, pack
from headwise.atlas.storage import location
from headwise.core.errors import AtlasError
from headwise.engines import Shard, split_shards
from headwise.engines import shards as shard_module


def test_split_shards():
    assert split_shards(0, 4) == []
    assert split_shards(8, 4) == [Shard(0, 0, 4), Shard(1, 4, 8)]
    assert split_shards(3, 9) == [Shard(0, 0, 3)]
    with pytest.raises(ValueError, match="at least one example"):
        split_shards(3, 0)


def test_commit_and_load(tmp_path, store, work):
    shards, run = split_shards(23, 4), store(tmp_path)
    assert run.load(shards[0]) is None
    result = work(tmp_path / "log")(shards[2])
    run.commit(shards[2], result)
    assert run.committed(shards) == [shards[2]]
    assert store(tmp_path).committed(shards) == [shards[2]]  # another process finds it
    xr.testing.assert_identical(run.load(shards[2]), result)
    assert sorted(entry.name for entry in run.folder.iterdir()) == ["00002.shard", "plan.json"]
    run.clear()
    assert not run.folder.exists()


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"data": {"digest": "e"}}, {"model": {"digest": "n"}}, {"parameters": {"k": 1}}]
)
def test_another_provenance_has_another_folder(tmp_path, store, work, change):
    shards, run = split_shards(23, 4), store(tmp_path)
    run.commit(shards[0], work(tmp_path / "log")(shards[0]))
    other = store(tmp_path, **change)
    assert other.folder != run.folder
    assert other.folder.parent == tmp_path / ".shards"
    assert other.committed(shards) == []


def test_another_plan_is_refused(tmp_path, store):
    run = store(tmp_path)
    with pytest.raises(
        AtlasError, match=r"split differently \(examples 23 against 23, size 4 against 5\); run with the same"
    ):
        store(tmp_path, size=5)
    assert json.loads((run.folder / "plan.json").read_text())["size"] == 4


@pytest.mark.parametrize("content", [None, "{half", "7", '{"identity": "somebody else\'s", "examples": 23, "size": 4}'])
def test_a_damaged_plan_costs_nothing(tmp_path, store, work, content, caplog):
    """Every shard says itself what it is."""
    shards, run = split_shards(23, 4), store(tmp_path)
    run.commit(shards[0], work(tmp_path / "log")(shards[0]))
    plan = run.folder / "plan.json"
    before = plan.read_text()
    plan.unlink() if content is None else plan.write_text(content)
    again = store(tmp_path)
    assert plan.read_text() == before
    assert again.committed(shards) == [shards[0]]
    xr.testing.assert_identical(again.load(shards[0]), run.load(shards[0]))
    assert ("was damaged and is rewritten; its shards are kept" in caplog.text) == (content is not None)


def test_a_misplaced_shard_is_recognised(tmp_path, store, work, caplog):
    shards, run = split_shards(23, 4), store(tmp_path)
    run.commit(shards[0], work(tmp_path / "log")(shards[0]))
    (run.folder / "00001.shard").write_bytes((run.folder / "00000.shard").read_bytes())
    assert run.load_packed(shards[1]) is None
    assert run.load(shards[1]) is None
    assert "it does not hold examples 4 to 7" in caplog.text
    assert run.committed(shards) == [shards[0]]


def test_a_damaged_shard_is_not_done(tmp_path, store, work, caplog):
    shards, run = split_shards(23, 4), store(tmp_path)
    run.commit(shards[1], work(tmp_path / "log")(shards[1]))
    path = run.folder / "00001.shard"
    path.write_bytes(path.read_bytes()[:-40])
    with caplog.at_level(logging.WARNING):
        assert run.load(shards[1]) is None
    assert "Shard 1 is measured again, because its file was damaged" in caplog.text
    assert run.committed(shards) == []
    (aside,) = run.folder.glob("00001.shard.*.damaged")
    assert str(aside) in caplog.text, "what was committed is moved aside, not deleted"


@pytest.mark.parametrize("fault", [OSError(5, "Input/output error"), MemoryError()])
@pytest.mark.parametrize("where", ["read", "unpack"])
def test_a_passing_fault_costs_no_shard(tmp_path, store, work, monkeypatch, fault, where):
    """Too little memory and a disk that fails say nothing about what is stored."""
    shards, run = split_shards(23, 4), store(tmp_path)
    run.commit(shards[1], work(tmp_path / "log")(shards[1]))

    def fail(*_: object) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(*((location, "read_plain", fail) if where == "read" else (shard_module, "unpack_first", fail)))
        with pytest.raises(AtlasError, match=r"cannot be read now \(Input/output error\)|too little memory"):
            run.load(shards[1])
    assert run.committed(shards) == [shards[1]]
    assert run.load(shards[1]) is not None


def test_plain_xarray_does_not_see_shards(tmp_path, store, work):
    atlas = Atlas.create(tmp_path / "atlas")
    run = store(atlas.path)
    run.commit(split_shards(23, 4)[0], work(tmp_path / "log")(split_shards(23, 4)[0]))
    with xr.open_datatree(atlas.path, engine="zarr") as tree:
        assert list(tree.children) == []
    assert atlas.studies == []


def test_an_unwritable_location_is_explained(tmp_path, store):
    (tmp_path / ".shards").write_text("in the way")
    with pytest.raises(AtlasError, match=r"Could not write to .* is a file where a folder is needed"):
        store(tmp_path)


def test_shards_at_a_url(tmp_path, store, work, caplog):
    """The same operations; a worker without access to the location sends packed bytes."""
    shards, url = split_shards(23, 4), "memory://shards/atlas"
    run = store(url)
    results = [work(tmp_path / "log")(shard) for shard in shards[:3]]
    run.commit(shards[0], results[0])
    run.commit_packed(shards[2], pack(results[2]))
    other = store(url)
    assert other.committed(shards) == [shards[0], shards[2]]
    xr.testing.assert_identical(other.load(shards[2]), results[2])
    assert run.where.startswith("memory://shards/atlas/.shards/toy-")
    with pytest.raises(AtlasError, match="is not a folder"):
        _ = run.folder
    run.location.write(run.location.keys(run.prefix)[0], b"half")
    with caplog.at_level(logging.WARNING):
        assert run.load(shards[0]) is None
    assert run.committed(shards) == [shards[2]]
    with pytest.raises(AtlasError, match="split differently"):
        store(url, size=5)
    run.clear()
    assert run.location.keys() == []


def test_many_who_begin_a_run_at_once_keep_what_is_done(tmp_path, store, work):
    """The plan is made by one of them; nobody takes another's shards for leftovers."""
    shards = split_shards(23, 4)
    for place in (tmp_path, "memory://shards/together"):

        def begin(shard: Shard, place: object = place) -> None:
            run = store(place)
            run.commit(shard, work(tmp_path / "log")(shard))

        with ThreadPoolExecutor(len(shards)) as pool:
            list(pool.map(begin, shards))
        assert store(place).committed(shards) == shards


def test_large_variables_are_read_where_they_are_used(tmp_path, store):
    """Any region of a large variable is what it was, whether it is read layer by layer or otherwise."""
    values = np.random.default_rng(0).normal(size=(6, 2, 5, 7, 2000)).astype(np.float16)
    shard, run = Shard(0, 0, 6), store(tmp_path)
    dims = ("example", "site", "layer", "token", "width")
    run.commit(
        shard, xr.Dataset({"large": (dims, values), "small": ("example", np.arange(6))}, {"example": list("abcdef")})
    )
    loaded = run.load(shard)
    assert not loaded["large"].variable._in_memory
    assert loaded["small"].variable._in_memory
    every = slice(None)
    for key in (
        (every, 1, 3), (every, 0, slice(1, 4)), (2,), (slice(1, 5, 2), every, every, 6), (every, every, every, every, 17),
        (slice(4, 1, -1), 1, -1, slice(0, 0)), (every,), (5, 1, 4, 6, 1999), ([3, 1], 0),
    ):  # fmt: skip
        np.testing.assert_array_equal(loaded["large"][key].values, values[key])
    path = run.folder / "00000.shard"
    path.write_bytes(path.read_bytes()[:-10_000])
    with pytest.raises(AtlasError, match="was cut off while it was read"):
        loaded["large"].load()
