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
from headwise.corpora import (
    Passages,
    Questions,
    Relations,
    Steps,
    find_questions,
    packaged_passages,
    packaged_relations,
    packaged_steps,
    read_passages,
    read_relations,
    read_steps,
)
from headwise.engines import ShardStore, cut, run
from headwise.errors import AtlasError, ModelError, StudyError, did_you_mean
from headwise.model import Model, StoredModel, check_finite, load, open_stored
from headwise.seam import HeadWeights
from headwise.studies import (
    answers,
    circuits,
    function_masking,
    functions,
    patterns,
    probing,
    profile,
    samples,
    sparsity,
    spectral,
)
from headwise.studies import relations as relating
from headwise.studies.relations import validation
from headwise.studies.work import Work

Progress = Callable[[str, int, int], None]  # study, examples done, examples in all


@dataclass(frozen=True)
class Sources:
    """What the model is shown, read when a study asks for it."""

    data: str | Path | Passages | None = None  # texts
    asked: str | Path | Questions | None = None  # questions
    limit: int | None = 500  # questions, taken evenly over topics; None: all
    related: str | Path | Relations | None = None  # pairs of words
    stepped: str | Path | Steps | None = None  # questions in steps, each labelled with a function
    against: str | Path | Model | None = None  # the model to compare with; None: what ships for this one, if anything

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

    @cached_property
    def relations(self) -> Relations:
        """The user's relations, or the packaged ones."""
        if isinstance(self.related, Relations):
            return self.related
        return packaged_relations() if self.related is None else read_relations(self.related)

    @cached_property
    def steps(self) -> Steps:
        """The user's steps, or the packaged ones."""
        if isinstance(self.stepped, Steps):
            return self.stepped
        return packaged_steps() if self.stepped is None else read_steps(self.stepped)


Prepare = Callable[[Any, Sources, Atlas, Any], Work]

STUDIES: dict[str, Prepare] = {
    profile.NAME: lambda model, sources, atlas, options: profile.prepare(model, sources.passages, options),
    patterns.NAME: lambda model, sources, atlas, options: patterns.prepare(
        model, sources.passages, options, sources.against
    ),
    circuits.NAME: lambda model, sources, atlas, options: circuits.prepare(model, options, sources.against),
    sparsity.NAME: lambda model, sources, atlas, options: sparsity.prepare(model, sources.passages, options),
    answers.NAME: lambda model, sources, atlas, options: answers.prepare(model, sources.questions, options),
    spectral.NAME: lambda model, sources, atlas, options: spectral.prepare(model, atlas[answers.NAME], options),
    probing.NAME: lambda model, sources, atlas, options: probing.prepare(model, atlas[answers.NAME], options),
    samples.NAME: lambda model, sources, atlas, options: samples.prepare(
        model, atlas[answers.NAME], atlas[probing.NAME], sources.questions, options
    ),
    relating.NAME: lambda model, sources, atlas, options: relating.prepare(model, sources.relations, options),
    validation.NAME: lambda model, sources, atlas, options: validation.prepare(
        model, sources.relations, atlas[relating.NAME], options
    ),
    functions.NAME: lambda model, sources, atlas, options: functions.prepare(model, sources.steps, options),
    function_masking.NAME: lambda model, sources, atlas, options: function_masking.prepare(
        model, sources.steps, atlas[functions.NAME], options
    ),
}
OPTIONS: dict[str, type] = {  # study -> the dataclass of its options
    profile.NAME: profile.ProfileOptions,
    patterns.NAME: patterns.PatternsOptions,
    circuits.NAME: circuits.CircuitsOptions,
    sparsity.NAME: sparsity.SparsityOptions,
    answers.NAME: answers.AnsweringOptions,
    spectral.NAME: spectral.SpectralOptions,
    probing.NAME: probing.ProbingOptions,
    samples.NAME: samples.SamplingOptions,
    relating.NAME: relating.RelationsOptions,
    validation.NAME: validation.RelationValidationOptions,
    functions.NAME: functions.FunctionsOptions,
    function_masking.NAME: function_masking.FunctionMaskingOptions,
}
NEEDS = {  # study -> studies whose maps it is made from
    spectral.NAME: (answers.NAME,),
    probing.NAME: (answers.NAME,),
    samples.NAME: (answers.NAME, probing.NAME),
    validation.NAME: (relating.NAME,),
    function_masking.NAME: (functions.NAME,),
}
ON_REQUEST = (samples.NAME, circuits.NAME, sparsity.NAME)  # studies that take long: made only when named
FROM_WEIGHTS = (relating.NAME,)  # studies that run no model: it can stay on disk


def build(
    model: Any = None,
    studies: Sequence[str] | None = None,
    *,
    data: str | Path | Passages | None = None,
    questions: str | Path | Questions | None = None,
    limit: int | None = 500,
    relations: str | Path | Relations | None = None,
    steps: str | Path | Steps | None = None,
    against: str | Path | Model | None = None,
    output: str | Path = "atlas",
    options: dict[str, Any] | None = None,
    redo: Collection[str] = (),
    progress: Progress | None = None,
) -> Atlas:
    """Build an atlas, or add to one.

    `model`: what `load` takes or gave; None is the default model. `studies`: names; None is all but those in `ON_REQUEST`.
    `data`: passages, or a file of them; `questions`: questions, or a file of them, at most `limit`; `relations`: pairs of
    words, or a file of them; `steps`: questions worked out in steps, or a file of them; None is the packaged sets.
    `against`: a model (or adapter) that patterns are compared with; None is the sparse adapter that ships for this model,
    if there is one, "none" nothing. `options`: by study, such as {"profile": ProfileOptions(period=64)}. `redo`: studies
    to measure anew even if the atlas holds them. A model that is only named stays on disk where all studies read nothing
    but weights (`FROM_WEIGHTS`).
    """
    names = with_needed(check_studies(default_studies() if studies is None else studies))
    check_studies(redo)
    sources = Sources(data, questions, limit, relations, steps, against=against)
    loaded = model if isinstance(model, Model | StoredModel) else model_for(names, model)
    if isinstance(loaded, Model):
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


def model_for(studies: Sequence[str] | None, model: Any = None, **loading: Any) -> Model | StoredModel:
    """The model that these studies need: loaded; or left on disk, where all of them read nothing but weights.

    What cannot be read from disk (packed weights, no safetensors, an adapter) is loaded after all. ``loading``: what
    `load` takes beside the model.
    """
    only_weights = bool(studies) and set(studies or ()) <= set(FROM_WEIGHTS)
    asked = {name: value for name, value in loading.items() if value not in (None, "auto")}
    on_disk = set(asked) <= {"device", "revision", "trust_remote_code"}
    if only_weights and on_disk and (model is None or isinstance(model, str | Path)):
        try:
            stored = open_stored(model, **asked)
            HeadWeights(stored).check()
            return stored
        except ModelError:
            pass
    return load(model, **loading)


def default_studies() -> list[str]:
    """All that are made when none is named."""
    return [name for name in STUDIES if name not in ON_REQUEST]


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
