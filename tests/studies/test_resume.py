"""A build that is killed with SIGKILL goes on where it was, and ends with the same bits as one that was not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from planted import save_tiny, tiny_passages

from headwise.atlas import Atlas
from headwise.corpora import Example
from headwise.studies import ProfileOptions, build
from headwise.studies.profile import measure as study

TEXTS, REPEATS = 8, 4
EXAMPLES = TEXTS + REPEATS
OPTIONS = {"profile": ProfileOptions(repeats=REPEATS, period=20, shard=1)}

CHILD = f"""
import sys, time
sys.path.insert(0, sys.argv[1])
from planted import tiny_passages
from headwise.studies import ProfileOptions, build

build(
    sys.argv[2], ["profile"], data=tiny_passages({TEXTS}, tokens=(20, 50)), output=sys.argv[3],
    options={{"profile": ProfileOptions(repeats={REPEATS}, period=20, shard=1)}},
    progress=lambda study, done, total: time.sleep(0.2 if done else 0),  # time to be killed in
)
"""


def shard_files(atlas: Path) -> list[Path]:
    return sorted(atlas.glob(".shards/*/*.shard"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("resume") / "model", layers=2)


@pytest.fixture(scope="module")
def killed(model: Path) -> Path:
    """An atlas whose build was killed after some shards and before the last."""
    atlas = model.parent / "killed"
    arguments = [sys.executable, "-c", CHILD, str(Path(__file__).parents[1]), str(model), str(atlas)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 120
        while len(shard_files(atlas)) < 3 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        ended_by_itself = child.poll()
        child.kill()
        _, errors = child.communicate()
    assert ended_by_itself is None, errors
    assert 3 <= len(shard_files(atlas)) < EXAMPLES
    return atlas


@pytest.fixture
def half(killed: Path, tmp_path: Path) -> Path:
    """A copy of it, to be gone on with."""
    return Path(shutil.copytree(killed, tmp_path / "atlas"))


@pytest.fixture(scope="module")
def whole(model: Path) -> xr.Dataset:
    """The map of a build that nothing interrupted."""
    return continued(model, model.parent / "whole")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the examples measured since."""
    ids: list[str] = []
    really = study._measure

    def noting(structure: Any, examples: Sequence[Example], *rest: Any) -> xr.Dataset:
        ids.extend(example.id for example in examples)
        return really(structure, examples, *rest)

    monkeypatch.setattr(study, "_measure", noting)
    return ids


def continued(model: Path, atlas: Path) -> xr.Dataset:
    data = tiny_passages(TEXTS, tokens=(20, 50))
    return build(str(model), ["profile"], data=data, output=atlas, options=OPTIONS)["profile"]


def assert_same_bits(a: xr.Dataset, b: xr.Dataset) -> None:
    xr.testing.assert_equal(a, b)
    for name in a.data_vars:
        assert a[name].values.tobytes() == b[name].values.tobytes(), name


def test_a_killed_build_leaves_an_atlas_without_the_study(half: Path) -> None:
    assert Atlas.open(half).studies == []


def test_finished_shards_are_not_measured_again(
    half: Path, model: Path, whole: xr.Dataset, measured: list[str]
) -> None:
    done = [int(file.name[:5]) for file in shard_files(half)]
    result = continued(model, half)
    assert measured == [name for place, name in enumerate(whole.example.values) if place not in done]
    assert_same_bits(result, whole)
    assert shard_files(half) == []  # the map is in the atlas: what led to it is gone


def test_a_damaged_shard_is_measured_again_alone(
    half: Path, model: Path, whole: xr.Dataset, measured: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    damaged = shard_files(half)[1]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    done = [int(file.name[:5]) for file in shard_files(half) if file != damaged]
    result = continued(model, half)
    assert measured == [name for place, name in enumerate(whole.example.values) if place not in done]
    assert_same_bits(result, whole)
    assert "Shard 1 is measured again, because its file was damaged" in caplog.text


def test_other_options_do_not_take_up_what_was_left(half: Path, model: Path, measured: list[str]) -> None:
    before = shard_files(half)
    options = {"profile": ProfileOptions(repeats=REPEATS, period=10, shard=1)}
    build(str(model), ["profile"], data=tiny_passages(TEXTS, tokens=(20, 50)), output=half, options=options)
    assert len(measured) == EXAMPLES
    assert shard_files(half) == before
