"""The verbs of all places: a folder, a store in memory, and S3 as a real server speaks it."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwise.atlas.storage import LocalLocation, Location, ObjectStoreLocation, is_url, objects, open_location
from headwise.core.errors import AtlasError

KINDS = ("folder", "memory", "s3")
_numbers = itertools.count()


@pytest.fixture(params=KINDS)
def location(request, tmp_path, server) -> Location:
    number = next(_numbers)
    return open_location(
        {"folder": tmp_path / "deep" / "atlas", "memory": f"memory://test/{number}/a", "s3": f"s3://bucket/{number}/a"}[
            request.param
        ]
    )


def test_operations(location):
    assert location.name in ("atlas", "a")
    assert location.read("x/y") is None
    assert location.keys() == location.keys("x") == []
    location.delete("x/y")
    location.clear("x")
    for key in ("x/y", "x/z/1", "xx/y", "w"):
        location.write(key, key.encode())
    location.write("x/y", b"second\0")
    assert location.read("x/y") == b"second\0"
    assert location.keys() == ["w", "x/y", "x/z/1", "xx/y"]
    assert location.keys("x") == ["x/y", "x/z/1"]  # whole parts: not xx
    location.delete("x/y")
    assert location.keys("x") == ["x/z/1"]
    location.clear("x")
    assert location.keys() == ["w", "xx/y"]
    assert location.create("x/new", b"1") and not location.create("x/new", b"2") and not location.create("w", b"2")
    assert (location.read("x/new"), location.read("w"), location.read("x")) == (b"1", b"w", None)
    assert location.keys("x") == ["x/new"]


def test_exactly_one_of_several_creates(location):
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda number: location.create("key", b"%d" % number), range(16))) == 1


def test_large_objects_are_read_in_pieces(server, monkeypatch):
    monkeypatch.setattr(objects, "PIECE_BYTES", 1000)
    location = open_location("s3://bucket/large")
    content = bytes(range(256)) * 20
    for size in (0, 1, 999, 1000, 1001, 2000, 5120):
        location.write("key", content[:size])
        assert location.read("key") == content[:size]


def test_a_file_without_permission_is_reported(tmp_path, monkeypatch):
    def refuse(*_: object) -> int:
        raise PermissionError

    location = LocalLocation(tmp_path)
    location.write("key", b"")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AtlasError, match=r"key may not be read; change its permissions"):
        location.read("key")


@pytest.mark.parametrize("url", ["memory://conditions/a", "s3://bucket/conditions/a"])
def test_conditions(url, server):
    location = open_location(url)
    assert isinstance(location, ObjectStoreLocation)
    first = location.create_tagged("key", b"1")
    assert first is not None
    assert location.create_tagged("key", b"2") is None
    assert location.read_tagged("key").tag == first
    second = location.replace("key", b"2", first)
    assert second is not None and second != first
    assert location.replace("key", b"3", first) is None
    assert location.replace("gone", b"3", first) is None
    assert location.read("key") == b"2"
    assert location.top_level_names() == ["key"]
    location.write("folder/key", b"")
    assert location.top_level_names() == ["folder", "key"]
    assert location.read_many(["key", "folder/key", "gone"]) == {"key": b"2", "folder/key": b""}


def test_addresses(tmp_path, monkeypatch):
    assert str(open_location("memory://a/b/")) == "memory://a/b"
    assert str(open_location(Path("memory://a/b"))) == "memory://a/b"  # a Path makes one slash of two
    assert open_location(Path("memory://a/b")).read("x") is None
    assert isinstance(open_location(f"file://{tmp_path}"), LocalLocation)
    assert open_location(f"file://{tmp_path}").folder == tmp_path
    assert isinstance(open_location("c:/atlas"), LocalLocation)
    monkeypatch.chdir(tmp_path)
    assert open_location(".").name == tmp_path.name
    assert open_location("x").address == str(tmp_path.resolve() / "x")
    assert not is_url("hf://datasets/a/b")
    same = open_location("memory://a/b")
    assert open_location(same) is same
    with pytest.raises(
        AtlasError, match=r"'ftp://a/b' is not a storage location that Headwise knows; give a folder, s3://BUCKET"
    ):
        open_location("ftp://a/b")


def refused(url: str) -> str:
    with pytest.raises(AtlasError) as caught:
        open_location(url).read("x")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_a_store_refuses_is_explained(server, monkeypatch):
    assert refused("s3://nowhere/a").startswith(
        "There is no bucket 'nowhere' where s3://nowhere/a points; make it first"
    )
    with pytest.raises(AtlasError, match="There is no bucket"):
        open_location("s3://nowhere/a").write("x", b"")
    with pytest.raises(AtlasError, match="There is no bucket"):
        open_location("s3://nowhere/a").keys()
    with pytest.raises(AtlasError, match="There is no bucket"):
        open_location("s3://nowhere/a").create("x", b"")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    message = refused("s3://bucket/a")
    assert message == (
        "s3://bucket/a cannot be reached: nothing answers there (AWS_ENDPOINT_URL is http://127.0.0.1:9); check that and "
        "the network."
    )


def test_missing_credentials_are_explained(server, monkeypatch):
    """Without any, the store's client asks the machine for its role: here one that has none."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9/169.254.169.254")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # for boto3, which is asked first
    message = refused("s3://bucket/a")
    assert message.startswith(
        "No credentials were found for s3://bucket/a; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS"
    )
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert "set AZURE_STORAGE_ACCOUNT_NAME" in refused("az://container/a")


SAID = {
    "403 Forbidden: <Code>AccessDenied</Code>": "does not let you read or write s3://b/a; check what these credentials may",
    "301 Moved Permanently": "is in another region; set AWS_REGION",
    "501 Not Implemented": "has no conditional writes",
    "400 Bad Request: odd": r"The store refused s3://b/a: 400 Bad Request: odd; try again",
}


@pytest.mark.parametrize("text", SAID)
def test_other_refusals(text):
    from headwise.atlas.storage.objects import error_message

    assert SAID[text] in error_message(OSError(f"{text}\nDebug source: long"), "s3://b/a")


def test_without_obstore_it_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(AtlasError, match=r"needs the package obstore; install it with pip install 'headwise\[cloud\]'"):
        open_location("s3://bucket/a")


@pytest.mark.parametrize("url", ["memory://known/a", "s3://bucket/known/a"])
def test_what_is_known_is_not_sent_again(url, server):
    location = open_location(url)
    location.write("key", b"1")
    known = location.read_tagged("key")
    assert location.read_tagged("key", known) is known
    location.write("key", b"2")
    assert location.read_tagged("key", known).content == b"2"
    location.delete("key")
    assert location.read_tagged("key", known) is None
