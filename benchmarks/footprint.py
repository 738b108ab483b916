"""What does an example leave on disk while a study runs and afterwards, and how many passes through the model does it take?

    python benchmarks/footprint.py --questions 120 --texts 6 --steps 160 -o footprint.json

A build of the default model on a few examples, whose shards are weighed before they are deleted, and whose forward passes
are counted (a decode step is one). The atlas is weighed study by study at the end. A shard is compressed as the build
compresses it. Bytes per example are what the shards hold over the examples they hold; an atlas also has what does not grow
with examples, so it is weighed at two sizes, and the difference is what an example adds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray as xr

import headwise as hw
from headwise.atlas.packing import unpack
from headwise.corpora import Passages, packaged_passages
from headwise.engines import ShardStore
from headwise.seam import Structure
from headwise.studies.functions.spec import FunctionsOptions
from headwise.studies.probing.spec import ProbingOptions

STUDIES = ("answers", "spectral", "probing", "profile")


class Scales:
    """Weighs shards in the moment before they are deleted."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        self.shards: dict[str, int] = {}
        self.variables: dict[
            str, dict[str, Any]
        ] = {}  # of a study's first shard, by name: dims, sizes, bytes in memory
        self._clear = ShardStore.clear

    def __enter__(self) -> Scales:
        scales = self

        def clear(store: ShardStore) -> None:
            files = list(store.folder.glob("*.shard"))
            study = store.folder.name.rpartition("-")[0]
            scales.bytes[study] = sum(file.stat().st_size for file in files)
            scales.shards[study] = len(files)
            scales.variables[study] = variables_of(unpack(sorted(files)[0].read_bytes()))
            scales._clear(store)

        ShardStore.clear = clear  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        ShardStore.clear = self._clear  # type: ignore[method-assign]


def variables_of(shard: xr.Dataset) -> dict[str, Any]:
    """What a shard holds, to estimate what it would hold of a larger model."""
    return {
        str(name): {
            "dims": list(map(str, one.dims)),
            "sizes": list(one.shape),
            "bytes": one.nbytes,
            "type": str(one.dtype),
        }
        for name, one in shard.variables.items()
    }


def folder_bytes(folder: Path) -> int:
    """Of all files below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def weighed(model: Any, studies: Sequence[str], **shown: Any) -> dict[str, dict[str, Any]]:
    """By study: examples, passes, bytes of shards, bytes in the atlas."""
    counts: dict[str, int] = defaultdict(int)
    now, examples = [""], {}

    def progress(study: str, done: int, total: int) -> None:
        now[0], examples[study] = study, total

    handle = Structure(model).decoder.register_forward_pre_hook(
        lambda *_: counts.__setitem__(now[0], counts[now[0]] + 1)
    )
    with tempfile.TemporaryDirectory() as folder, Scales() as scales:
        try:
            atlas = hw.build(model, list(studies), output=Path(folder) / "atlas", progress=progress, **shown)
        finally:
            handle.remove()
        kept = {study: folder_bytes(Path(folder) / "atlas" / study) for study in atlas.studies}
    return {
        study: {
            "examples": examples[study],
            "passes": counts[study],
            "shards": scales.shards[study],
            "shard_bytes": scales.bytes[study],
            "atlas_bytes": kept[study],
            "variables": scales.variables[study],
        }
        for study in examples
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=120)
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--studies", default=",".join(STUDIES))
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    passages = packaged_passages()
    options = {
        "probing": ProbingOptions(shuffles=40, paper=False),
        "functions": FunctionsOptions(steps=given.steps, seeds=2, shuffles=2),
    }
    found = weighed(
        hw.load(),
        given.studies.split(","),
        data=Passages(passages.name, passages.items[: given.texts]),
        limit=given.questions,
        options=options,
    )
    text = json.dumps(found, indent=1)
    print(
        json.dumps(
            {study: {k: v for k, v in row.items() if k != "variables"} for study, row in found.items()}, indent=1
        )
    )
    if given.output is not None:
        given.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
