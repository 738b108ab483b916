"""`build`: run studies on a model and keep their maps in an atlas.

Steps, for each study: prepare the work; if the atlas already holds a map of the same provenance, leave it; otherwise
measure shard by shard (each committed when done, so that a killed build continues where it was), conclude, and put
the map into the atlas. A map of another provenance is never overwritten unless `redo` names its study, and maps of
different models never share an atlas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from headwise.atlas import Atlas, Provenance, difference
from headwise.corpora import Passages, packaged_passages, read_passages
from headwise.engines import ShardStore, cut, run
from headwise.errors import AtlasError, StudyError, did_you_mean
from headwise.model import Model, check_finite, load
from headwise.studies import profile
from headwise.studies.work import Work

Progress = Callable[[str, int, int], None]  # study, examples done, examples in all

STUDIES: dict[str, Callable[..., Work]] = {profile.NAME: profile.prepare}


def build(
    model: Any = None,
    studies: Sequence[str] | None = None,
    *,
    data: str | Path | Passages | None = None,
    output: str | Path = "atlas",
    options: dict[str, Any] | None = None,
    redo: Collection[str] = (),
    progress: Progress | None = None,
) -> Atlas:
    """Build an atlas, or add to one.

    `model`: what `load` takes or gave; None is the default model. `studies`: names; None is all. `data`: passages, or a
    file of them; None is the packaged set. `options`: by study, such as {"profile": ProfileOptions(period=64)}. `redo`:
    studies to measure anew even if the atlas holds them.
    """
    names = check_studies(list(STUDIES) if studies is None else studies)
    check_studies(redo)
    passages = data if isinstance(data, Passages) else packaged_passages() if data is None else read_passages(data)
    atlas = Atlas.create(output)
    loaded = model if isinstance(model, Model) else load(model)
    check_finite(loaded.hf)
    for name in names:
        work = STUDIES[name](loaded, passages, (options or {}).get(name))
        _refuse_other_model(atlas, work.provenance)
        if name not in redo and _is_there(atlas, work.provenance):
            if progress is not None:
                progress(name, work.examples, work.examples)
            continue
        _measure(atlas, name, work, progress)
    return atlas


def check_studies(names: Collection[str]) -> list[str]:
    """The names, without repeats; an unknown one is refused."""
    for name in names:
        if name not in STUDIES:
            raise StudyError(f"There is no study {name!r}. {did_you_mean(name, STUDIES)}")
    return list(dict.fromkeys(names))


def _measure(atlas: Atlas, name: str, work: Work, progress: Progress | None) -> None:
    store = ShardStore(atlas.path, work.provenance, examples=work.examples, size=work.shard_size)
    shards = cut(work.examples, work.shard_size)

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(name, done, total)

    report(0, work.examples)
    dataset = work.conclude(run(work.measure, shards, store, progress=report))
    atlas.add(name, dataset.assign_attrs(work.provenance.to_attrs()))
    store.clear()


def _is_there(atlas: Atlas, wanted: Provenance) -> bool:
    """Whether the atlas holds this very map; a map of the same study with another origin is refused."""
    if wanted.study not in atlas:
        return False
    found = atlas.provenance(wanted.study)
    if found.key() == wanted.key():
        return True
    raise AtlasError(
        f"{atlas.path} already holds a {wanted.study} of another origin ({'; '.join(difference(found, wanted))}); "
        f"replace it with --redo {wanted.study}, or choose another folder with -o"
    )


def _refuse_other_model(atlas: Atlas, wanted: Provenance) -> None:
    for study in atlas.studies:
        found = atlas.provenance(study)
        if found.model.get("digest") != wanted.model.get("digest"):
            raise AtlasError(
                f"{atlas.path} is an atlas of {found.model.get('id')} ({found.model.get('digest')}), and this model is "
                f"{wanted.model.get('id')} ({wanted.model.get('digest')}); choose another folder with -o"
            )
