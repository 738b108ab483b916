"""`build`: run studies on a model and keep their maps in an atlas.

Steps, for each study: prepare the work; if the atlas already holds a map of the same provenance, leave it; otherwise
measure shard by shard (each committed when done, so that a killed build continues where it was), conclude, and put
the maps into the atlas. A map of another provenance is never overwritten unless `redo` names its study, and maps of
different models never share an atlas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.atlas import Atlas, Provenance, difference
from headwise.corpora import Passages, Questions, find_questions, packaged_passages, read_passages
from headwise.engines import ShardStore, cut, run
from headwise.errors import AtlasError, StudyError, did_you_mean
from headwise.model import Model, check_finite, load
from headwise.studies import answering, profile, spectral
from headwise.studies.work import Work

Progress = Callable[[str, int, int], None]  # study, examples done, examples in all


@dataclass(frozen=True)
class Sources:
    """What the model is shown, read when a study asks for it."""

    data: str | Path | Passages | None = None  # texts
    asked: str | Path | Questions | None = None  # questions
    limit: int | None = 500  # questions, taken evenly over topics; None: all

    @cached_property
    def passages(self) -> Passages:
        """The user's texts, or the packaged ones."""
        if isinstance(self.data, Passages):
            return self.data
        return packaged_passages() if self.data is None else read_passages(self.data)

    @cached_property
    def questions(self) -> Questions:
        """The user's questions, a known set by name, or the packaged ones."""
        found = find_questions(self.asked)
        return found if self.limit is None else found.sample(self.limit, seed=0)


Prepare = Callable[[Model, Sources, Atlas, Any], Work]

STUDIES: dict[str, Prepare] = {
    profile.NAME: lambda model, sources, atlas, options: profile.prepare(model, sources.passages, options),
    answering.NAME: lambda model, sources, atlas, options: answering.prepare(model, sources.questions, options),
    spectral.NAME: lambda model, sources, atlas, options: spectral.prepare(model, atlas[answering.NAME], options),
}
OPTIONS: dict[str, type] = {  # study -> the dataclass of its options
    profile.NAME: profile.ProfileOptions,
    answering.NAME: answering.AnsweringOptions,
    spectral.NAME: spectral.SpectralOptions,
}
NEEDS = {spectral.NAME: (answering.NAME,)}  # study -> studies whose maps it is made from


def build(
    model: Any = None,
    studies: Sequence[str] | None = None,
    *,
    data: str | Path | Passages | None = None,
    questions: str | Path | Questions | None = None,
    limit: int | None = 500,
    output: str | Path = "atlas",
    options: dict[str, Any] | None = None,
    redo: Collection[str] = (),
    progress: Progress | None = None,
) -> Atlas:
    """Build an atlas, or add to one.

    `model`: what `load` takes or gave; None is the default model. `studies`: names; None is all. `data`: passages, or a
    file of them; `questions`: questions, or a file of them, at most `limit`; None is the packaged sets. `options`: by
    study, such as {"profile": ProfileOptions(period=64)}. `redo`: studies to measure anew even if the atlas holds them.
    """
    names = with_needed(check_studies(list(STUDIES) if studies is None else studies))
    check_studies(redo)
    sources = Sources(data, questions, limit)
    loaded = model if isinstance(model, Model) else load(model)
    check_finite(loaded.hf)
    atlas: Atlas | None = Atlas.open(output) if Path(output, "zarr.json").exists() else None
    for name in names:
        work = STUDIES[name](loaded, sources, atlas, (options or {}).get(name))  # type: ignore[arg-type]
        atlas = atlas or Atlas.create(output)  # only now: what is refused leaves no empty atlas behind
        _refuse_other_model(atlas, work.provenance)
        if name not in redo and _is_there(atlas, work.provenance):
            if progress is not None:
                progress(name, work.examples, work.examples)
            continue
        _measure(atlas, name, work, progress)
    return atlas or Atlas.create(output)


def check_studies(names: Collection[str]) -> list[str]:
    """The names, without repeats; an unknown one is refused."""
    for name in names:
        if name not in STUDIES:
            raise StudyError(f"There is no study {name!r}. {did_you_mean(name, STUDIES)}")
    return list(dict.fromkeys(names))


def with_needed(names: Sequence[str]) -> list[str]:
    """The names, each after the studies it is made from.

    >>> with_needed(["spectral"])
    ['answers', 'spectral']
    """
    return list(dict.fromkeys(one for name in names for one in (*NEEDS.get(name, ()), name)))


def _measure(atlas: Atlas, name: str, work: Work, progress: Progress | None) -> None:
    store = ShardStore(atlas.path, work.provenance, examples=work.examples, size=work.shard_size)
    shards = cut(work.examples, work.shard_size)

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(name, done, total)

    report(0, work.examples)
    parts = run(work.measure, shards, store, progress=report)
    datasets = work.conclude(parts)
    if work.leave is not None:
        work.leave(atlas.path, datasets, parts)
    for study, dataset in datasets.items():  # the study's own comes last: once it is there, all is
        atlas.add(study, dataset.assign_attrs(replace(work.provenance, study=study).to_attrs()))
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
