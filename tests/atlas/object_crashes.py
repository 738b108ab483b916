"""Run as a program by test_object_server.py: children write to an object store and are killed; others look at what is left.

The parent forks and never touches the store itself, so that every child starts clean and none pays for the imports. It
prints one JSON object.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import obstore.store
import xarray as xr
from forked import at_random, child, result
from zarr.storage import ObjectStore

from headwise.atlas import Atlas
from headwise.atlas.storage import ObjectStoreLocation
from headwise.core.provenance import Provenance

VERBS = ("read_tagged", "write", "_put", "delete", "delete_many", "keys")


def version(number: int, study: str = "toy") -> xr.Dataset:
    """Few variables, so that a round is short; their shapes change from version to version."""
    layers = 3 + number % 2
    provenance = Provenance(study, 1, {"id": "tiny", "digest": "d"}, {"name": "n", "size": 1}, {"version": number}, 0)
    values = {
        "value": (("layer", "head"), np.full((layers, 2), number, "float32")),
        "low": ("layer", [number] * layers),
    }
    if number % 2:
        values["odd"] = ("layer", [number] * layers)
    return xr.Dataset(values, attrs=provenance.to_attrs())


def version_of(dataset: xr.Dataset) -> int:
    """The one version that all numbers and the provenance are of."""
    number = json.loads(dataset.attrs["provenance"])["parameters"]["version"]
    assert set(dataset.data_vars) == {"value", "low", *(["odd"] if number % 2 else [])}
    for name in dataset.data_vars:
        assert (dataset[name] == number).all(), f"{name} is not of version {number}"
    assert dataset.sizes["layer"] == 3 + number % 2
    return int(number)


def done(work: Callable[[], object]) -> None:
    assert result(child(work)) == 0


def plain(url: str) -> int | None:
    """What xarray sees without Headwise."""
    store = ObjectStore(obstore.store.from_url(url, client_options={"allow_http": True}), read_only=True)
    with xr.open_datatree(store, engine="zarr") as tree:
        return version_of(tree["toy"].to_dataset()) if "toy" in tree.children else None


def looked(url: str, note: Path) -> list:
    def look() -> None:
        before = plain(url)
        headwise = version_of(Atlas(url).store.read("toy"))
        assert version_of(Atlas.create(url).store.read("toy")) == headwise  # finishes what a dead writer began
        note.write_text(json.dumps([before, headwise, plain(url)]))

    done(look)
    return json.loads(note.read_text())


def kill(url: str, note: Path) -> list:
    """Die just before the n-th request, for every n, until a child gets through."""
    seen = []
    for left in range(100):

        def die(left: int = left) -> None:
            Atlas(url).store.write("toy", version(0))
            for verb in VERBS:
                real = getattr(ObjectStoreLocation, verb)

                def mortal(self: ObjectStoreLocation, *args: object, real: Callable = real) -> object:
                    nonlocal left
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1
                    return real(self, *args)

                setattr(ObjectStoreLocation, verb, mortal)
            Atlas(url).store.write("toy", version(1))

        died = result(child(die)) != 0
        seen.append(looked(url, note))
        if not died:
            break
    return seen


def killed(url: str, note: Path, kills: int) -> list:
    """At any moment of a child that replaces the study again and again."""
    return at_random(lambda number: Atlas(url).store.write("toy", version(number)), lambda: looked(url, note), kills)


def together(url: str, note: Path) -> list:
    """Writers of different studies, two of the same, and a reader, all at once."""

    def write(study: str) -> None:
        for number in range(5):
            Atlas(url).store.write(study, version(number, study=study))

    def read() -> None:
        for _ in range(10):
            version_of(Atlas.open(url).store.read("toy"))

    children = [child(lambda study=study: write(study)) for study in ("toy", "toy", "other")]
    children.append(child(read))
    assert [result(pid) for pid in children] == [0] * 4
    return looked(url, note)


def main() -> None:
    verb, url = sys.argv[1:3]
    verbs = {"kill": kill, "together": together, "random": lambda url, note: killed(url, note, int(sys.argv[3]))}
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "note.json")
        done(lambda: Atlas.create(url).store.write("toy", version(0)))
        found: dict[str, object] = {"seen": verbs[verb](url, note)}

        def tell() -> None:
            atlas = Atlas.open(url)
            left = [key for key in atlas.location.keys(".swap") if not key.endswith("/lease")]
            note.write_text(json.dumps({"studies": atlas.studies, "left": left}))

        done(tell)
        print(json.dumps(found | json.loads(note.read_text())))


if __name__ == "__main__":
    main()
