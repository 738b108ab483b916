"""kill -9, at every sort of moment: the same command again gives the same bits, and measures only what was not there."""

from __future__ import annotations

import random
import signal
import time

import pytest

from faults.experiment import Experiment, chosen, kinds, sort
from faults.verdict import committed

KILLED = -signal.SIGKILL


def test_before_each_kind_of_change(experiment: Experiment) -> None:
    """One moment of every kind there is in a build of one study; `make soak` takes them all."""
    changes = experiment.changes("profile")
    wrong = []
    for number in chosen(changes):
        case = experiment.disturb({"do": "kill", "at": number}, "profile")
        assert case.first.code == KILLED, (changes[number], case.first.err)
        wrong += [f"before {changes[number]}: {fault}" for fault in case.faults]
    assert not wrong, "\n".join(wrong)


def test_the_kinds_are_those_that_matter(experiment: Experiment) -> None:
    """A commit, the plan, a chunk, the metadata, the swap, the list, and the end: none is missed for want of a name."""
    found = set(kinds(experiment.changes("profile")))
    for wanted in [
        ("open", ".shards/*/plan.json"), ("link", ".shards/*/plan.json"), ("open", ".shards/*/*.shard"),
        ("rename", ".shards/*/*.shard"), ("open", ".swap/*.new/c"), ("rename", "profile"), ("rename", "zarr.json"),
        ("delete", ".shards/*/*.shard"),
    ]:  # fmt: skip
        assert wanted in found
    assert len(kinds(experiment.changes("profile"))[("rename", ".shards/*/*.shard")]) == 4
    assert sort(".swap/profile.17.trash/value/c/0") == ".swap/*.trash/c"


@pytest.mark.parametrize(
    ("moment", "left", "rest"),
    [
        ("measure answers+spectral 2", {("answers+spectral", 0), ("answers+spectral", 1)}, 1),
        ("finalize answers+spectral", {("answers+spectral", number) for number in range(3)}, 0),
        ("finalized answers+spectral", {("answers+spectral", number) for number in range(3)}, 0),
    ],
)
def test_at_a_moment_of_a_study(experiment: Experiment, moment: str, left: set, rest: int) -> None:
    seen: list[set] = []
    fault = {"do": "kill", "when": moment}
    case = experiment.disturb(fault, between=lambda atlas: seen.append(committed(atlas)))
    assert case.first.code == KILLED
    assert seen == [left]
    assert not case.faults
    assert len(case.second.measured) == rest


def test_again_and_again(experiment: Experiment) -> None:
    """Killed at a random moment, and the run after that, and the two after that; never is a shard measured twice."""
    draw, atlas = random.Random(0), experiment.fresh()
    for moment in (8, *(draw.randrange(12, 180) for _ in range(3))):
        sound = committed(atlas)
        run = experiment.run(atlas, {"do": "kill", "at": moment}, "profile")
        assert run.code == KILLED
        assert not sound & set(run.measured)
    assert not experiment.again(atlas, run, {"do": "kill"}, "profile").faults


@pytest.mark.parametrize("size", [100, 2000, 9000])
def test_in_the_middle_of_a_file(experiment: Experiment, size: int) -> None:
    """The kernel ends the process when a file gets so long: half a plan, half a shard, half a list is what is left."""
    case = experiment.disturb({"do": "cut", "bytes": size}, "profile")
    assert case.first.code == -signal.SIGXFSZ, case.first.err
    assert not case.faults


def test_at_any_time(experiment: Experiment) -> None:
    """From outside, by the clock; a different one in every run of the tests, and named if it fails."""
    seed = time.time_ns() % 1_000_000
    draw = random.Random(seed)
    for _ in range(3):
        atlas = experiment.fresh()
        run = experiment.zygote.start(experiment.scene.arguments(atlas, "profile"), atlas)
        time.sleep(draw.uniform(0.05, 1.5))
        run.signal(signal.SIGKILL)
        first = run.wait()
        assert first.code in (KILLED, 0)
        assert not experiment.again(atlas, first, {"do": "kill", "seed": seed}, "profile").faults
