"""A real full disk: a tiny tmpfs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headwise.atlas import Atlas, open_location, pack
from headwise.core.errors import AtlasError


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no mount command")
    if made.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_leaves_what_was_there(tiny_disk, profile):
    atlas = Atlas.create(tiny_disk / "atlas")
    atlas.add("profile", profile(1.0))
    large = profile(2.0, layers=100, heads=200)
    noise = np.random.default_rng(0).random(large.per_example.shape, "float32")
    with pytest.raises(AtlasError, match=r"the disk is full; free some space.* What was there before is intact"):
        atlas.add("profile", large.assign(per_example=large.per_example.copy(data=noise)))
    with pytest.raises(AtlasError, match="the disk is full"):
        open_location(tiny_disk).write("shard.zip", pack(large.assign(per_example=large.per_example.copy(data=noise))))
    assert (Atlas.open(atlas.path)["profile"].value == 1).all()
    atlas.add("profile", profile(3.0))  # the space was given back
    assert (atlas["profile"].value == 3).all()
