"""The page about the store does what it says, and what it says of the format holds."""

from pathlib import Path

from page_code import DOCS, run
from synthetic.atlas import synthetic_atlas

(PAGE,) = DOCS.rglob("store.md")


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    atlas = synthetic_atlas(tmp_path / "atlas", studies=["profile", "relations"])
    atlas.copy_to("s3://bucket/atlas")
    assert run(PAGE) == 6
