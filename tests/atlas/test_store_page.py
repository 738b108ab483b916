"""The page about the store does what it says, and what it says of the format holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_s3 import Server, serving
from page_code import DOCS, run
from synthetic.atlas import synthetic_atlas

(PAGE,) = DOCS.rglob("store.md")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        found.make("bucket")
        yield found


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    atlas = synthetic_atlas(tmp_path / "atlas", studies=["profile", "relations"])
    atlas.copy_to("s3://bucket/atlas")
    assert run(PAGE) == 6
