"""Run as a program by test_crashes.py: children of this process write and are killed; others look at what is left.

The parent forks and never touches Zarr itself, so that every child starts clean and no child pays for the imports. It
prints one JSON object.
"""

import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import xarray as xr
from forked import at_random, child, result

from headwise.atlas import Atlas
from headwise.atlas.local_store import LocalStore

make_profile = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["make_profile"]


def version_of(dataset: xr.Dataset) -> int:
    """The one version that all numbers and the provenance are of."""
    version = json.loads(dataset.attrs["provenance"])["parameters"]["version"]
    for name in ("value", "low", "layers"):
        assert (dataset[name] == version).all(), f"{name} is not of version {version}"
    assert dataset.sizes["layer"] == 3 + version % 2
    return int(version)


def version(number: int, study: str = "toy") -> xr.Dataset:
    """Few variables, so that a round is short; their shapes change from version to version."""
    dataset = make_profile(number, layers=3 + number % 2, study=study)[["value", "low"]]
    dataset["layers"] = ("layer", [number] * dataset.sizes["layer"])
    return dataset.drop_vars(["statistic", "label", "definition", "unit"]).assign_attrs(record="[]")


def look(path: Path, note: Path) -> None:
    """First with plain xarray, then with Headwise, which looks and writes nothing."""
    with xr.open_datatree(path, engine="zarr") as tree:
        plain = version_of(tree["toy"].to_dataset()) if "toy" in tree.children else None
    note.write_text(json.dumps([plain, version_of(Atlas.open(path)["toy"])]))


def looked(path: Path, note: Path) -> list:
    assert result(child(lambda: look(path, note))) == 0
    return json.loads(note.read_text())


def killed(atlas: Atlas, note: Path, kills: int) -> dict:
    """At any moment of a child that replaces the study again and again."""
    return {
        "seen": at_random(lambda number: atlas.add("toy", version(number)), lambda: looked(atlas.path, note), kills)
    }


def count_down(left: int) -> None:
    """Let this process die just before it has renamed so often."""
    for name in ("rename", "replace"):
        real = getattr(os, name)

        def mortal(*args: object, real: Callable = real) -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            real(*args)

        setattr(os, name, mortal)


def at_each_rename(atlas: Atlas, note: Path) -> dict:
    """Die just before the n-th rename, for every n, until a child gets through."""
    seen = []
    for step in range(20):
        assert result(child(lambda: atlas.add("toy", version(0)))) == 0

        def die(step: int = step) -> None:
            real_commit = LocalStore._commit
            LocalStore._commit = lambda *args: (count_down(step), real_commit(*args))  # Zarr renames too, before this
            atlas.add("toy", version(1))

        died = result(child(die)) != 0
        seen.append(looked(atlas.path, note))
        if not died:
            break
    return {"seen": seen}


def together(atlas: Atlas, note: Path) -> dict:
    """Two writers of different studies, two of the same, and a reader, all at once."""

    def write(study: str) -> None:
        for number in range(6):
            atlas.add(study, version(number, study=study))

    def read() -> None:
        for _ in range(12):
            version_of(atlas["toy"])

    assert result(child(lambda: atlas.add("toy", version(0)))) == 0
    children = [child(lambda study=study: write(study)) for study in ("toy", "toy", "other", "third")]
    children.append(child(read))
    assert [result(pid) for pid in children] == [0] * 5
    return {"seen": [looked(atlas.path, note)], "studies": atlas.studies}


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2])
    atlas, note = Atlas.create(folder / "atlas"), folder / "note.json"
    assert result(child(lambda: atlas.add("toy", version(0)))) == 0
    verbs = {"random": lambda: killed(atlas, note, 25), "rename": lambda: at_each_rename(atlas, note)}
    found = verbs.get(verb, lambda: together(atlas, note))()
    assert result(child(lambda: atlas.add("toy", version(99_999)))) == 0
    found["left"] = sorted(entry.name for entry in (atlas.path / ".swap").iterdir() if entry.suffix != ".lock")
    found["last"] = looked(atlas.path, note)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
