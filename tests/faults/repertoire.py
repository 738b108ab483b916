"""Every sort of fault as one round: something goes wrong, the same command is given again, and the books are checked.

A round is a function of an experiment and dice, and gives a `Round`: the faults that were put in, the builds run, and what
was not held. `benchmarks/soak.py` draws rounds for as long as it is told; the tests take chosen ones apart.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults import damage
from faults.experiment import Case, Experiment
from faults.scene import SHARDS
from faults.verdict import committed

KILLED = -signal.SIGKILL
REQUESTS = 90  # about as many as a build of one study into a bucket makes


@dataclass
class Round:
    """What a round came to."""

    faults: int = 1
    builds: int = 2
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)

    def judge(self, case: Case) -> Round:
        self.wrong += case.faults
        self.lost += case.census.lost
        self.doubled += case.census.doubled
        return self

    def expect(self, holds: bool, what: str) -> Round:
        self.wrong += [] if holds else [what]
        return self


Play = Callable[[Experiment, random.Random], Round]


def at_a_change(what: str, codes: tuple[int, ...], said: str = "") -> Play:
    """Struck just before a random change of the atlas."""

    def play(experiment: Experiment, dice: random.Random) -> Round:
        fault = {"do": what, "at": dice.randrange(len(experiment.changes()))}
        case = experiment.disturb(fault)
        ended = case.first.code in codes and (case.first.code <= 0 or said in told(case))
        return Round().judge(case).expect(ended, f"{fault}: ended with {case.first.code}: {case.first.err[-300:]}")

    return play


def told(case: Case) -> str:
    """The sentence of the first run, or what it said instead."""
    try:
        return case.first.sentence
    except AssertionError as error:
        return f"NO SENTENCE: {error}"


def at_a_moment(experiment: Experiment, dice: random.Random) -> Round:
    """Killed as a study is measured or finalized."""
    study = dice.choice(list(SHARDS))
    moments = [f"measure {study} {number}" for number in range(SHARDS[study])] + [
        f"finalize {study}",
        f"finalized {study}",
    ]
    case = experiment.disturb({"do": "kill", "when": dice.choice(moments)})
    return Round().judge(case).expect(case.first.code == KILLED, f"was not killed: {case.first.err[-300:]}")


def by_the_clock(experiment: Experiment, dice: random.Random) -> Round:
    """Killed from outside at any time, up to three runs in a row."""
    atlas, times, round = experiment.fresh(), dice.randint(1, 3), Round(0, 1)
    for _ in range(times):
        sound = committed(atlas)
        run = experiment.zygote.start(experiment.scene.arguments(atlas), atlas)
        time.sleep(dice.uniform(0.05, 4.0))
        run.signal(signal.SIGKILL)
        first = run.wait()
        round.builds += 1
        round.faults += first.code == KILLED
        round.expect(not sound & set(first.measured), "a shard that was there was measured again")
        if first.code == 0:
            break
    round.judge(experiment.again(atlas, first, {"do": "kill", "by": "clock"}))
    shutil.rmtree(atlas)
    return round


def in_a_file(what: str) -> Play:
    """Killed, or refused, at some byte of a file."""

    def play(experiment: Experiment, dice: random.Random) -> Round:
        fault = {"do": what, "bytes": dice.randrange(1, 12_000)}
        case = experiment.disturb(fault, "profile")
        return Round().judge(case).expect("Traceback" not in case.first.err, f"{fault}: {case.first.err[-300:]}")

    return play


def hurt_shard(experiment: Experiment, dice: random.Random) -> Round:
    """A build that was killed; one of its shards is cut, flipped, emptied, zeroed or lost; the build goes on."""
    verb = dice.choice([damage.cut, damage.empty, damage.zeros, damage.lose, damage.flip])
    hurt: set[tuple[str, int]] = set()

    def strike(atlas: Path) -> None:
        file = dice.choice(sorted(atlas.glob(".shards/*/*.shard")))
        hurt.add((file.parent.name.rpartition("-")[0], int(file.name[:5])))
        verb(file, **({"seed": dice.random()} if verb is damage.flip else {}))

    case = experiment.disturb(
        {"do": "kill", "when": "measure answers+spectral 2", "then": verb.__name__}, between=strike, hurt=hurt
    )
    return Round(faults=2).judge(case)


def hurt_plan(experiment: Experiment, dice: random.Random) -> Round:
    """The same with the plan of the shards."""
    verb = dice.choice([damage.cut, damage.lose, damage.flip])

    def strike(atlas: Path) -> None:
        verb(next(atlas.glob(".shards/*/plan.json")), **({"seed": dice.random()} if verb is damage.flip else {}))

    case = experiment.disturb(
        {"do": "kill", "when": "measure profile 3", "plan": verb.__name__}, "profile", between=strike
    )
    return Round(faults=2).judge(case)


def hurt_map(experiment: Experiment, dice: random.Random) -> Round:
    """A file of a finished map is cut, flipped or lost: the build names the study, and `--redo` makes only that anew."""
    atlas = experiment.fresh()
    shutil.copytree(experiment.whole("profile"), atlas)
    file = dice.choice(sorted(path for path in (atlas / "profile").rglob("*") if path.is_file()))
    verb = dice.choice([damage.cut, damage.lose, damage.flip])
    verb(file, **({"seed": dice.random()} if verb is damage.flip else {}))
    return _redone(experiment, atlas, f"{verb.__name__} {file.relative_to(atlas)}")


def hurt_list(experiment: Experiment, dice: random.Random) -> Round:
    """A bit of the atlas's own list is flipped."""
    atlas = experiment.fresh()
    shutil.copytree(experiment.whole("profile"), atlas)
    bit = damage.flip(atlas / "zarr.json", seed=dice.random())
    return _redone(experiment, atlas, f"flip bit {bit} of zarr.json")


def _redone(experiment: Experiment, atlas: Path, what: str) -> Round:
    first = experiment.run(atlas, None, "profile")
    round = Round(builds=3)
    if first.code == 0:  # what was hurt is not looked at, or was mended on the way
        return round.judge(experiment.again(atlas, first, {"did": what}, "profile"))
    if first.code != 2 or "Traceback" in first.err:
        return round.expect(False, f"{what}: {first.code}, {first.err[-300:]}")
    if "delete that file" in first.err:
        (atlas / "zarr.json").unlink()
    redo = experiment.run(atlas, None, "profile", "--redo", "profile")
    round.expect(redo.code == 0, f"{what}: refused even with --redo: {redo.err.strip()[-300:]}")
    if redo.code == 0:
        round.judge(experiment.again(atlas, first, {"did": what}, "profile"))
        shutil.rmtree(atlas)
    return round


def two_at_once(experiment: Experiment, dice: random.Random) -> Round:
    """The same command twice, at the same time; perhaps one of them is killed."""
    atlas, kill = experiment.fresh(), dice.random() < 0.5
    runs = []
    for _ in range(2):
        runs.append(
            experiment.zygote.start(
                experiment.scene.arguments(atlas, "profile"), atlas, {"do": "slow", "seconds": 0.02}
            )
        )
        time.sleep(dice.uniform(0, 0.5))
    if kill:
        time.sleep(dice.uniform(0, 2))
        runs[0].signal(signal.SIGKILL)
    ends = [run.wait() for run in runs]
    allowed = {0, KILLED} if kill else {0}
    round = Round(builds=3).judge(experiment.again(atlas, ends[1], {"did": "two at once", "killed": kill}, "profile"))
    round.expect(ends[0].code in allowed and ends[1].code == 0, f"two at once: {[end.err[-300:] for end in ends]}")
    return round


def in_a_bucket(experiment: Experiment, dice: random.Random) -> Round:
    """A build into a bucket of a server on the loopback, killed between two of its requests, up to three runs in a row."""
    from loopback_s3 import serving

    url, round = "s3://bucket/atlas", Round(0, 1)
    with serving() as server:
        server.make("bucket")
        for _ in range(dice.randint(1, 3)):
            fault = {"do": "kill", "request": dice.randrange(REQUESTS)}
            first = experiment.run(url, fault, "profile", environment=server.environment)
            round.builds += 1
            round.faults += first.code == KILLED
            if first.code == 0:
                break
        return round.judge(experiment.again(url, first, fault, "profile", environment=server.environment))


def on_ray(experiment: Experiment, dice: random.Random) -> Round:
    """Two workers; one of them, the node, the head or the driver is killed; the build goes on in process."""
    from faults import cluster

    atlas, whom = experiment.fresh(), dice.choice(["worker", "worker", "node", "head", "driver"])
    run, wanted = cluster.start(experiment, atlas), dice.randrange(1, 4)
    struck = cluster.wait_for(run, lambda: len(committed(atlas)) >= wanted)
    if struck and whom == "driver":
        run.signal(signal.SIGKILL)
    elif struck:
        struck = cluster.kill(run, whom, dice.randrange(2))
    first = run.wait(cluster.PATIENCE)
    codes = {"worker": (0,), "driver": (0, KILLED)}.get(whom, (0, 2))  # 0: the build was over just before
    round = Round(faults=int(struck)).expect(
        first.code in codes and "Traceback" not in first.err, f"{whom} killed: {first.code}, {first.err[-300:]}"
    )
    round.judge(experiment.again(atlas, first, {"killed": whom}))
    shutil.rmtree(atlas)
    return round


REPERTOIRE: dict[str, Play] = {
    "kill -9 before a change of the atlas": at_a_change("kill", (KILLED,)),
    "kill -9 as a study is measured or finalized": at_a_moment,
    "kill -9 by the clock, up to three in a row": by_the_clock,
    "kill in mid-file (by the kernel, at a byte)": in_a_file("cut"),
    "SIGTERM": at_a_change("term", (143,), "interrupted; finished measurements are stored"),
    "Ctrl-C": at_a_change("int", (130,), "interrupted; finished measurements are stored"),
    "disk full from a change on": at_a_change("full", (0, 2), "the disk is full"),
    "permission lost from a change on": at_a_change("closed", (0, 2), "it may not be written to"),
    "files limited to so many bytes": in_a_file("limit"),
    "shard cut, flipped, emptied, zeroed or lost": hurt_shard,
    "plan of the shards cut, flipped or lost": hurt_plan,
    "file of a map cut, flipped or lost": hurt_map,
    "bit of the atlas's list flipped": hurt_list,
    "two builds of one atlas at once": two_at_once,
    "s3://: kill -9 between two requests, up to three in a row": in_a_bucket,
    "Ray: kill -9 of a worker, the node, the head or the driver": on_ray,
}
