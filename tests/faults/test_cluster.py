"""The same build on Ray: workers die, the driver dies; a build in process takes up what is there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from faults import cluster
from faults.experiment import Experiment, listed
from faults.verdict import committed

pytestmark = [pytest.mark.xdist_group("ray")]
pytest.importorskip("ray", reason="the package ray is not installed (pip install 'headwise[ray]')")


def shards(atlas: Path, study: str) -> int:
    return sum(1 for name, _ in committed(atlas) if name == study)


def test_a_worker_dies_then_the_driver(experiment: Experiment) -> None:
    """Bits and books are as if nothing had happened, though two engines have worked on the atlas."""
    atlas = experiment.fresh()
    run = cluster.start(experiment, atlas)
    assert cluster.wait_for(run, lambda: shards(atlas, "profile")), run.wait().err
    assert cluster.kill(run, "worker")  # replaced: the build goes on
    assert cluster.wait_for(run, lambda: shards(atlas, "answers+spectral")), run.wait().err
    run.signal(signal.SIGKILL)
    ended = run.wait()
    assert ended.code == -signal.SIGKILL
    case = experiment.again(atlas, ended, {"did": "killed a worker, then the driver"})
    assert not case.faults
    assert {study for study, _ in case.second.measured} <= {"answers+spectral"}


def test_an_example_that_kills_every_worker_is_quarantined(experiment: Experiment) -> None:
    """Tried three times and named; all else is finished, and only this is left for the next run."""
    atlas = experiment.fresh()
    poison = experiment.names("profile")[9]  # in shard 2, examples 8 to 11
    run = cluster.start(experiment, atlas, fault={"do": "poison", "example": poison})
    first = run.wait(cluster.PATIENCE)
    assert first.code == 2, first.err
    assert "1 of 3 studies could not be finished (profile: examples 8 to 11 (3 tries; " in first.sentence
    assert committed(atlas) == {("profile", 0), ("profile", 1), ("profile", 3)}
    assert listed(atlas) == {"answers", "detection", "spectral"}
    case = experiment.again(atlas, first, {"did": "poison"})
    assert not case.faults
    assert case.second.measured == [("profile", 2)]
