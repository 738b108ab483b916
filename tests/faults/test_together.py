"""Several at once: two builds of one atlas, and a reader who looks all the time."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import xarray as xr

from faults.experiment import Experiment
from faults.verdict import committed, content, differences
from headwise.atlas import Atlas

SLOW = {"do": "slow", "seconds": 0.1}


def start(experiment: Experiment, atlas: Path):
    return experiment.zygote.start(experiment.scene.arguments(atlas, "profile"), atlas, SLOW)


def test_two_builds_of_one_atlas(experiment: Experiment) -> None:
    atlas = experiment.fresh()
    runs = [start(experiment, atlas) for _ in range(2)]
    ends = [run.wait() for run in runs]
    assert [end.code for end in ends] == [0, 0], [end.err for end in ends]
    case = experiment.again(atlas, ends[1], {"did": "two at once"}, "profile")
    assert not case.faults
    assert case.second.measured == []


def test_two_builds_and_one_is_killed(experiment: Experiment) -> None:
    atlas = experiment.fresh()
    runs = [start(experiment, atlas) for _ in range(2)]
    deadline = time.monotonic() + 60
    while not committed(atlas) and time.monotonic() < deadline:
        time.sleep(0.01)
    runs[0].signal(signal.SIGKILL)
    ends = [run.wait() for run in runs]
    assert ends[1].code == 0, ends[1].err
    assert not experiment.again(atlas, ends[1], {"did": "two at once, one killed"}, "profile").faults


def test_a_reader_sees_whole_studies_only(experiment: Experiment) -> None:
    """During a build from nothing: with Headwise and with plain xarray, every study that is seen is the finished one."""
    expected = content(Atlas.open(experiment.whole()))
    atlas = experiment.fresh()
    run = experiment.zygote.start(experiment.scene.arguments(atlas), atlas)
    looks, seen = 0, set()
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and "spectral" not in seen:
        if not (atlas / "zarr.json").exists():
            time.sleep(0.01)
            continue
        opened = Atlas.open(atlas)
        for study in opened.studies:
            one = {name: value for name, value in expected.items() if name.startswith((f"{study}/", f"{study}@"))}
            assert not differences(content_of(opened, study), one)
            seen.add(study)
        with xr.open_datatree(atlas, engine="zarr") as tree:
            for study in tree.children:
                assert set(tree[study].to_dataset().load().variables) == set(opened[study].variables)
        looks += 1
    assert run.wait().code == 0
    assert looks >= 3
    assert seen == {"profile", "answers", "detection", "spectral"}


def content_of(atlas: Atlas, study: str) -> dict:
    """What `content` tells of one study, which may be the only one there."""
    return {name: value for name, value in content(atlas, [study]).items() if not name.startswith("file ")}
