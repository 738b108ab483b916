"""One fault, the same command again, and the verdict."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.scene import Scene
from faults.verdict import Census, census, committed, content, differences, examples
from faults.zygote import Outcome, Zygote
from headwise.atlas import Atlas
from headwise.atlas.storage import open_location

STUDIES = "profile,spectral"


@dataclass(frozen=True)
class Case:
    """What came of a fault."""

    fault: dict[str, Any]
    first: Outcome  # the run that the fault was in
    second: Outcome  # the same command again, undisturbed
    differ: list[str]  # what is not as in the undisturbed atlas
    census: Census
    needless: list[tuple[str, int]]  # (study, shard) that the second run measured though it was there, whole

    @property
    def faults(self) -> list[str]:
        """What was not held; empty where all was."""
        said = []
        if self.second.code != 0:
            said.append(f"the second run ended with {self.second.code}: {self.second.err.strip()[-400:]}")
        if self.differ:
            said.append(f"not the same: {', '.join(self.differ[:4])}")
        if self.census != (0, 0):
            said.append(f"{self.census.lost} examples lost, {self.census.doubled} doubled")
        if self.needless:
            said.append(f"measured needlessly: {self.needless}")
        return [f"{self.fault}: {one}" for one in said]


class Experiment:
    """A scene, what an undisturbed build of it gives, and disturbed ones."""

    def __init__(self, folder: Path, zygote: Zygote) -> None:
        self.folder, self.zygote, self.count = folder, zygote, 0
        self.scene = Scene(folder / "scene")
        self._whole: dict[str, Path] = {}
        self._changes: dict[str, list[tuple[str, str]]] = {}
        self._content: dict[str, tuple[dict[str, Any], dict[str, list[str]]]] = {}

    def whole(self, studies: str = STUDIES) -> Path:
        """The atlas of a build that nothing disturbed."""
        if studies not in self._whole:
            atlas = self.folder / f"whole-{studies}"
            done = self.zygote.run(self.scene.arguments(atlas, studies), atlas, noting=True)
            assert done.code == 0, done.err
            self._whole[studies], self._changes[studies] = atlas, done.changes
            self._content[studies] = content(Atlas.open(atlas)), examples(Atlas.open(atlas))
        return self._whole[studies]

    def changes(self, studies: str = STUDIES) -> list[tuple[str, str]]:
        """The changes of such a build, in order."""
        self.whole(studies)
        return self._changes[studies]

    def names(self, study: str, studies: str = STUDIES) -> list[str]:
        """The examples of a map, in order."""
        self.whole(studies)
        return self._content[studies][1][study]

    def fresh(self) -> Path:
        """Where a new atlas may be made."""
        self.count += 1
        return self.folder / f"atlas{self.count:04d}"

    def run(
        self, atlas: str | Path, fault: dict[str, Any] | None = None, studies: str = STUDIES, *more: str, **how: Any
    ) -> Outcome:
        """The command, once."""
        return self.zygote.run(self.scene.arguments(atlas, studies, *more), atlas, fault, **how)

    def disturb(
        self,
        fault: dict[str, Any],
        studies: str = STUDIES,
        *,
        atlas: str | Path | None = None,
        between: Callable[[Path], object] | None = None,
        hurt: Iterable[tuple[str, int]] = (),
        **how: Any,
    ) -> Case:
        """A build with a fault; what happens `between`; the same command again. `hurt`: shards that must be done anew."""
        place = atlas or self.fresh()
        first = self.run(place, fault, studies, **how)
        if between is not None:
            between(place)
        case = self.again(place, first, fault, studies, hurt, how.get("environment"))
        if not case.faults and atlas is None:
            shutil.rmtree(place)
        return case

    def again(
        self,
        place: str | Path,
        first: Outcome,
        fault: dict[str, Any],
        studies: str = STUDIES,
        hurt: Iterable[tuple[str, int]] = (),
        environment: dict[str, str] | None = None,
    ) -> Case:
        """The same command again on what a fault left, and the verdict."""
        self.whole(studies)
        sound, finished = committed(place) - set(hurt), listed(place)
        second = self.run(place, None, studies, environment=environment or {})
        needless = [one for one in second.measured if one in sound or one[0] in finished]
        if second.code != 0:
            return Case(fault, first, second, ["no atlas"], Census(0, 0), needless)
        expected, names = self._content[studies]
        result = Atlas.open(place)
        differ = differences(content(result), expected) + leftovers(place)
        return Case(fault, first, second, differ, census(examples(result), names), needless)


def listed(atlas: str | Path) -> set[str]:
    """The studies that the atlas lists, as its file has it: looking must not mend anything."""
    try:
        nodes = json.loads(open_location(atlas).read("zarr.json") or b"")["consolidated_metadata"]["metadata"]
    except (ValueError, KeyError):
        return set()
    return {path.split("/")[0] for path in nodes}


def leftovers(atlas: str | Path) -> list[str]:
    """What a finished build should not leave: shards, and parts of a swap."""
    place = open_location(atlas)
    parts = [key for key in place.keys(".swap") if key.count("/") > 1 and not key.endswith("/lease")]
    return [f"left over: {key}" for key in (*place.keys(".shards"), *parts)]


def kinds(changes: list[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
    """The numbers of the changes by kind: what is done to which sort of path, names and numbers taken out of it."""
    found: dict[tuple[str, str], list[int]] = {}
    for number, (event, path) in enumerate(changes):
        found.setdefault((event, sort(path)), []).append(number)
    return found


def sort(path: str) -> str:
    """A path without what differs between studies, variables, shards and processes.

    >>> sort(".swap/profile.new/value/c/0/1"), sort(".shards/answers-0a1b/.00002.shard.77.tmp")
    ('.swap/*.new/c', '.shards/*/*.shard')
    """
    top, *below = path.split("/")
    if top == ".shards" and below:
        files = ["*.shard" if ".shard" in name else re.sub(r"^\.|(\.\d+)+\.tmp$", "", name) for name in below[1:]]
        return "/".join([top, "*", *files])
    if top == ".swap" and below and below[0].endswith((".new", ".old", ".trash")):
        kind = next((name for name in ("c", "zarr.json") if name in below), "*" if below[1:] else "")
        return "/".join(filter(None, [top, f"*.{below[0].rpartition('.')[2]}", kind]))
    return path


def chosen(changes: list[tuple[str, str]], each: int = 1) -> list[int]:
    """Some changes of every kind: the first, and others spread evenly up to the last."""
    numbers = set()
    for places in kinds(changes).values():
        steps = max(1, min(each, len(places)))
        numbers |= {places[round(step * (len(places) - 1) / max(1, steps - 1))] for step in range(steps)}
    return sorted(numbers)
