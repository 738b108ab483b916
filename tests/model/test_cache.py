from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from headwise.core.errors import ModelError
from headwise.model.cache import ABANDONED_AFTER, UNFINISHED, cache_folder, get_or_create


def is_whole(folder: Path) -> bool:
    return (folder / "done").is_file()


def write(folder: Path) -> None:
    (folder / "done").write_text("new")


def leftovers(folder: Path) -> list[Path]:
    return list(folder.glob(f"{UNFINISHED}*"))


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("HEADWISE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "headwise"
    monkeypatch.delenv("XDG_CACHE_HOME")
    if sys.platform != "win32":
        assert cache_folder() == Path.home() / ".cache" / "headwise"


def test_made_once(tmp_path: Path) -> None:
    folder = get_or_create(tmp_path / "a" / "b", write, is_whole)
    assert (folder / "done").read_text() == "new"

    def again(_: Path) -> None:
        raise AssertionError("it is there already")

    assert get_or_create(folder, again, is_whole) == folder
    assert leftovers(folder.parent) == []


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise ModelError("no")

    with pytest.raises(ModelError, match=r"^no$"):
        get_or_create(tmp_path / "x", fail, is_whole)
    assert list(tmp_path.iterdir()) == []


def test_the_first_of_two_wins(tmp_path: Path) -> None:
    def overtaken(folder: Path) -> None:
        write(folder)
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "done").write_text("other")

    assert (get_or_create(tmp_path / "x", overtaken, is_whole) / "done").read_text() == "other"
    assert leftovers(tmp_path) == []


def test_a_damaged_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "half").write_text("")
    assert [p.name for p in get_or_create(tmp_path / "x", write, is_whole).iterdir()] == ["done"]


def test_what_killed_processes_left_is_swept_later(tmp_path: Path) -> None:
    old, fresh = tmp_path / f"{UNFINISHED}old", tmp_path / f"{UNFINISHED}fresh"
    for folder in (old, fresh):
        folder.mkdir()
        (folder / "part").write_text("")
    past = time.time() - ABANDONED_AFTER - 10
    for path in (old / "part", old):
        os.utime(path, (past, past))
    get_or_create(tmp_path / "x", write, is_whole)
    assert leftovers(tmp_path) == [fresh]  # its process may still be at work


def test_no_room_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ModelError, match=r"could not write to its cache folder .*; free some space, or set HEADWISE_CACHE"
    ):
        get_or_create(tmp_path / "file" / "x", write, is_whole)
