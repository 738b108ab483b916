"""Ctrl-C and SIGTERM: a clean end, one sentence, nothing half done left lying about."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from faults.experiment import Experiment
from faults.verdict import committed

CODES = {"int": 130, "term": 143}
SIGNALS = {"int": signal.SIGINT, "term": signal.SIGTERM}
RESUMABLE = "headwise: interrupted; finished measurements are stored, and the same command resumes from there."


def moments(experiment: Experiment) -> list[int]:
    """A commit, a chunk being written, and each step of the swap."""
    changes = experiment.changes("profile")
    wanted = [("rename", ".shard"), ("open", "/c/"), ("rename", "profile")]
    places = [
        max(number for number, (event, path) in enumerate(changes) if event == kind and part in path)
        for kind, part in wanted
    ]
    return sorted(places)


@pytest.mark.parametrize("kind", ["int", "term"])
def test_at_a_moment(experiment: Experiment, kind: str) -> None:
    for number in moments(experiment):
        unfinished: list[Path] = []
        case = experiment.disturb(
            {"do": kind, "at": number},
            "profile",
            between=lambda atlas, found=unfinished: found.extend(
                [*atlas.glob(".swap/*.new"), *atlas.glob(".shards/*/.*")]
            ),
        )
        assert case.first.code == CODES[kind], case.first.err
        assert case.first.sentence == RESUMABLE
        assert not unfinished
        assert not case.faults


@pytest.mark.parametrize("kind", ["int", "term"])
def test_from_outside(experiment: Experiment, kind: str) -> None:
    """While a shard is measured; those before it are kept."""
    atlas = experiment.fresh()
    run = experiment.zygote.start(experiment.scene.arguments(atlas, "profile"), atlas, {"do": "slow", "seconds": 0.4})
    deadline = time.monotonic() + 60
    while not committed(atlas) and time.monotonic() < deadline:
        time.sleep(0.01)
    run.signal(SIGNALS[kind])
    first = run.wait()
    assert first.code == CODES[kind]
    assert first.sentence == RESUMABLE
    kept = committed(atlas)
    case = experiment.again(atlas, first, {"do": kind}, "profile")
    assert not case.faults
    assert len(case.second.measured) == 4 - len(kept)
