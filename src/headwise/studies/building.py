"""`build`: run studies on a model and keep their maps in an atlas; on the checkpoints of a training run, in one atlas each.

Steps, for each study: prepare it; if the atlas already holds a map of the same provenance, leave it; otherwise
measure shard by shard (each committed when done, so that a killed build continues where it was), conclude, and put
the maps into the atlas. A map of another provenance is never overwritten unless `redo` names its study, and maps of
different models never share an atlas.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from headwise import engines
from headwise.atlas import Atlas, Location, Provenance, TrainingAtlas, difference, open_location
from headwise.atlas.training_atlas import MeasuredCheckpoint, add_to_manifest, atlas_location
from headwise.core.errors import AtlasError, EngineError, HeadwiseError, ModelError, did_you_mean
from headwise.core.schema import upgraded_provenance
from headwise.corpora import Passages, Questions, Relations, Steps
from headwise.engines import (
    Engine,
    EngineSession,
    Listener,
    ShardsFailedError,
    ShardStore,
    StudyJob,
    shard_prefix,
)
from headwise.model import Model
from headwise.studies.checkpoints import (
    Checkpoints,
    TrainingCheckpoint,
    find_checkpoints,
    recorded_losses,
    refuse_unlike,
)
from headwise.studies.inputs import StudyInputs
from headwise.studies.progress import ProgressListener, progress_display, shows_progress
from headwise.studies.registry import dataset_spec, default_studies, producers, with_dependencies
from headwise.studies.registry import studies as all_studies
from headwise.studies.runner import BuildSpec
from headwise.studies.spec import QUICK_QUESTIONS, StudyOptions

Progress = Callable[[str, int, int], None]  # study, examples done, examples in all
ENGINES = {"local": "LocalEngine", "ray": "RayEngine"}  # classes of `headwise.engines`, loaded when used


@overload
def build(
    model: Any = None,
    studies: Sequence[str | StudyOptions] | None = None,
    *,
    data: str | Path | Passages | None = None,
    questions: str | Path | Questions | None = None,
    limit: int | None = 500,
    relations: str | Path | Relations | None = None,
    steps: str | Path | Steps | None = None,
    reference: str | Path | Model | None = None,
    output: str | Path = "atlas",
    options: dict[str, Any] | None = None,
    redo: Collection[str] = (),
    progress: Progress | Listener | bool | None = None,
    loading: Mapping[str, Any] | None = None,
    engine: str | Engine = "local",
    quick: bool = False,
    checkpoints: None = None,
    against: str | Path | Model | None = None,
) -> Atlas: ...
@overload
def build(
    model: Any = None,
    studies: Sequence[str | StudyOptions] | None = None,
    *,
    data: str | Path | Passages | None = None,
    questions: str | Path | Questions | None = None,
    limit: int | None = 500,
    relations: str | Path | Relations | None = None,
    steps: str | Path | Steps | None = None,
    reference: str | Path | Model | None = None,
    output: str | Path = "atlas",
    options: dict[str, Any] | None = None,
    redo: Collection[str] = (),
    progress: Progress | Listener | bool | None = None,
    loading: Mapping[str, Any] | None = None,
    engine: str | Engine = "local",
    quick: bool = False,
    checkpoints: Checkpoints,
    against: str | Path | Model | None = None,
) -> TrainingAtlas: ...
def build(
    model: Any = None,
    studies: Sequence[str | StudyOptions] | None = None,
    *,
    data: str | Path | Passages | None = None,
    questions: str | Path | Questions | None = None,
    limit: int | None = 500,
    relations: str | Path | Relations | None = None,
    steps: str | Path | Steps | None = None,
    reference: str | Path | Model | None = None,
    output: str | Path = "atlas",
    options: dict[str, Any] | None = None,
    redo: Collection[str] = (),
    progress: Progress | Listener | bool | None = None,
    loading: Mapping[str, Any] | None = None,
    engine: str | Engine = "local",
    quick: bool = False,
    checkpoints: Checkpoints | None = None,
    against: str | Path | Model | None = None,
) -> Atlas | TrainingAtlas:
    """Build an atlas, or add to one.

    What the atlas holds already is left as it is, and a build that was killed goes on where it was. A model that is only
    named stays on disk where all studies read nothing but weights.

    Args:
        model: what `load` takes or gave; None is the default model.
        studies: names, or study objects such as ``hw.studies.Profile(period=64)``; None: all but those that take
            long (`default_studies`; ``headwise studies`` lists both).
        data: texts, or a file of them; None: the packaged ones, as for the three that follow.
        questions: questions, a file of them, or the name of a known set.
        limit: at most so many questions, evenly over topics; None: all.
        relations: pairs of words, or a file of them.
        steps: questions worked out in steps, or a file of them.
        reference: a model (or adapter) that patterns are compared with; None is the sparse adapter that ships for this
            model, if there is one, "none" nothing.
        output: where the atlas is, or will be.
        options: by study, such as ``{"profile": ProfileOptions(period=64)}``.
        redo: studies to measure again even if the atlas holds them.
        progress: a function that is called with the study, the examples done and their total; a `Listener`; True or False.
            By default progress is shown on a terminal and in a notebook.
        loading: what `load` takes in addition to the model, where it is only named, such as ``{"dtype": "bfloat16"}``.
        engine: "local" is this process; "ray", or a `RayEngine`, is the workers of a cluster, which load the model themselves.
        quick: for a first look. Fewer questions (at most `QUICK_QUESTIONS`), texts and shuffles, without the studies that take
            longest; options that are given count. Figures, words and provenance say so, and the atlas takes no other studies.
        checkpoints: of the training run whose folder (or hub id) ``model`` is: a pattern of folders ("step-*"), names of
            folders or of revisions, or a mapping step -> name. Each gets an atlas of its own in the folder ``output``.
        against: deprecated name of ``reference``.

    Returns:
        The atlas; with ``checkpoints`` the `TrainingAtlas` that joins their atlases along ``step``.

    Examples:
        >>> from headwise.corpora import Passage, Passages
        >>> from headwise.studies import ProfileOptions
        >>> words = "the old river was the old river and the old house"
        >>> texts = Passages("mine", (Passage("a", words), Passage("b", words.replace("old", "low"))))
        >>> few = {"profile": ProfileOptions(repeats=2, period=16)}
        >>> built = hw.build(model, ["profile"], data=texts, options=few, output=folder / "mine")
        >>> built.studies
        ['profile']
        >>> built["profile"].value.sel(statistic="induction", layer=1).values.round(2)  # L1H4 does induction
        array([0.  , 0.06, 0.05, 0.04, 1.  , 0.05], dtype=float32)
    """
    if against is not None:
        warnings.warn(
            "build(against=...) is now build(reference=...); use the new name", DeprecationWarning, stacklevel=2
        )
        reference = against
    names = with_dependencies(
        default_studies(quick=quick)
        if studies is None
        else [one if isinstance(one, str) else one.study for one in studies]
    )
    chosen = {one.study: one for one in studies or () if not isinstance(one, str)} | dict(options or {})
    if quick:
        chosen = {name: all_studies()[name].options.for_quick_build() for name in names} | chosen
        limit = QUICK_QUESTIONS if limit is None else min(limit, QUICK_QUESTIONS)
    inputs = StudyInputs(data, questions, limit, relations, steps, reference)
    spec = BuildSpec(model, tuple(names), inputs, chosen, loading or {}, quick=quick)
    with _listener(progress) as listener:
        if checkpoints is not None:
            return _build_over_training(spec, find_checkpoints(model, checkpoints), output, redo, listener, engine)
        return _build_one(spec, output, redo, listener, engine)


def _build_one(spec: BuildSpec, output: Any, redo: Collection[str], listener: Listener, engine: str | Engine) -> Atlas:
    building = _Build(output, producers(redo), listener)
    with engine_of(engine).open(spec, listener) as session:
        return building.run(session, spec.studies)


def _build_over_training(
    spec: BuildSpec, checkpoints: Sequence[TrainingCheckpoint], output: Any, redo: Collection[str], listener: Listener,
    engine: str | Engine,
) -> TrainingAtlas:  # fmt: skip
    """One checkpoint after the other; what is measured already is compared by digest and left as it is."""
    if spec.loading.get("revision") is not None:
        raise ModelError("With checkpoints, revisions are the checkpoints; leave out revision (--revision).")
    refuse_unlike(checkpoints, trust_remote_code=bool(spec.loading.get("trust_remote_code")))
    location = open_location(output)
    if Atlas.exists(location):
        raise AtlasError(
            f"{location} is an ordinary atlas, of one model; choose another folder for the atlas over training with -o."
        )
    for number, one in enumerate(checkpoints, start=1):
        loading = {**spec.loading} | ({} if one.revision is None else {"revision": one.revision})
        at_step = _AtStep(listener, f"step {one.step} ({number} of {len(checkpoints)})")
        atlas = _build_one(
            replace(spec, model=one.model, loading=loading), atlas_location(location, one.step), redo, at_step, engine
        )
        model = next(iter(atlas.provenances().values())).model
        add_to_manifest(
            location, MeasuredCheckpoint(one.step, str(model.get("id")), one.revision, recorded_losses(one))
        )
    return TrainingAtlas.open(location)


@contextmanager
def _listener(progress: Progress | Listener | bool | None) -> Iterator[Listener]:
    """Who hears of progress: a listener, a function, or a display on a terminal or in a notebook."""
    if isinstance(progress, Listener):
        yield progress
    elif callable(progress):
        yield _Calling(progress)
    elif shows_progress() if progress is None else progress:
        with progress_display() as display:
            yield ProgressListener(display)
    else:
        yield Listener()


def engine_of(engine: str | Engine) -> Engine:
    """The engine of this name, or the one that is given."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise EngineError(f"There is no engine {engine!r}. {did_you_mean(engine, ENGINES)}")
    chosen: Engine = getattr(engines, ENGINES[engine])()
    return chosen


class _Calling(Listener):
    """A plain function that hears of progress only."""

    def __init__(self, progress: Progress) -> None:
        self._call = progress

    def progress(self, study: str, done: int, total: int) -> None:
        self._call(study, done, total)


class _Together(Listener):
    """Reports a job that measures several studies as progress of each of them."""

    def __init__(self, listener: Listener, studies: Sequence[str]) -> None:
        self._listener, self._studies = listener, studies

    def progress(self, study: str, done: int, total: int) -> None:
        for name in self._studies:
            self._listener.progress(name, done, total)

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        self._listener.concluding(study, what, done, total)

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        self._listener.workers(self._studies[0], doing)

    def event(self, sentence: str) -> None:
        self._listener.event(sentence)


class _AtStep(Listener):
    """Reports the build of one checkpoint, with its step."""

    def __init__(self, listener: Listener, step: str) -> None:
        self._listener, self._step = listener, step

    def _name(self, study: str) -> str:
        return f"{study} at {self._step}"

    def progress(self, study: str, done: int, total: int) -> None:
        self._listener.progress(self._name(study), done, total)

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        self._listener.concluding(self._name(study), what, done, total)

    def ended(self, study: str) -> None:
        self._listener.ended(self._name(study))

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        self._listener.workers(self._name(study), doing)

    def event(self, sentence: str) -> None:
        self._listener.event(f"{self._step}: {sentence}")


class _Build:
    """Studies, one after the other, by one engine into one atlas."""

    def __init__(self, output: str | Path | Location, redo: Collection[str], listener: Listener) -> None:
        self._output, self._redo, self._listener = output, redo, listener
        self._atlas = Atlas.create(output) if Atlas.exists(output) else None
        self._left: dict[str, str] = {}  # studies that were not made -> why

    def run(self, session: EngineSession, names: Sequence[str]) -> Atlas:
        """Make all that can be made; an error at the end names what could not."""
        groups = _by_pass(names)
        while groups:
            group = groups.pop(0)
            if not self._make_together(session, group):
                self._make_alone(session, group[0])
                groups[:0] = [group[1:]] if group[1:] else []
        if self._left:
            raise EngineError(
                f"{len(self._left)} of {len(names)} studies could not be finished ({'. '.join(self._left.values())}). All "
                "else is done and kept; the same command tries only these again."
            )
        return self._atlas or Atlas.create(self._output)

    def _make_together(self, session: EngineSession, group: Sequence[str]) -> bool:
        """Measure several studies in one pass; False where the first of them has to be made by itself.

        That is where one of them is refused, has passes of its own (answers that are generated), or is in the atlas already
        (unless a build was killed while it stored them), or where a killed build has left shards of one.
        """
        needs = {need for name in group for need in all_studies()[name].depends_on} - set(group)
        present = [name for name in group if self._atlas is not None and name in self._atlas]
        if len(group) < 2 or len(present) == len(group) or needs & set(self._left) or set(present) & set(self._redo):
            return False
        try:
            job = session.prepare(group, {need: self._open_atlas()[need] for need in needs})
        except HeadwiseError:  # refused again, with its message, when its turn comes
            return False
        atlas = self._open_atlas()
        _refuse_mixture(atlas, job.provenance)
        begun = bool(atlas.location.keys(shard_prefix(job.provenance)))
        if not begun and (present or any(atlas.location.keys(shard_prefix(part)) for part in job.parts.values())):
            return False
        for name in present:
            _is_stored(atlas, job.parts[name])  # else refused
        try:
            self._measure(session, atlas, job, present)
        except ShardsFailedError:
            return False
        for name in group:
            self._listener.ended(name)
        return True

    def _make_alone(self, session: EngineSession, name: str) -> None:
        missing = [need for need in all_studies()[name].depends_on if need in self._left]
        if missing:
            self._left[name] = f"{name}: needs {missing[0]}"
            return
        try:
            self._make(session, name)
        except ShardsFailedError as error:
            self._left[name] = str(error)

    def _make(self, session: EngineSession, name: str) -> None:
        job = session.prepare([name], {need: self._open_atlas()[need] for need in all_studies()[name].depends_on})
        atlas = self._open_atlas()  # only now: what is refused leaves no empty atlas behind
        _refuse_mixture(atlas, job.provenance)
        if name not in self._redo and _is_stored(atlas, job.provenance):
            atlas.location.clear(shard_prefix(job.provenance))  # left by a build that was killed when all was done
            self._listener.progress(name, job.examples, job.examples)
            return
        before = _made(atlas, name)
        try:
            self._measure(session, atlas, job)
            self._listener.ended(name)
        except (AtlasError, OSError):
            # another build of the same may have finished meanwhile, and taken the shards away
            if _made(atlas, name) in (None, before) or not _is_stored(atlas, job.provenance):
                raise
            atlas.location.clear(shard_prefix(job.provenance))

    def _open_atlas(self) -> Atlas:
        self._atlas = self._atlas or Atlas.create(self._output)
        return self._atlas

    def _measure(self, session: EngineSession, atlas: Atlas, job: StudyJob, present: Collection[str] = ()) -> None:
        """Measure and store; of several studies only those that are not ``present``."""
        store = ShardStore(atlas.location, job.provenance, examples=job.examples, size=job.shard_size)
        datasets, artifacts = session.run(job, store, _Together(self._listener, tuple(job.parts) or (job.study,)))
        for key, content in artifacts.items():
            atlas.location.write(key, content)
        for study, dataset in datasets.items():  # the study's own comes last: once it is there, all is
            if study in present:
                continue
            own = {} if job.parts else replace(job.provenance, study=study).to_attrs()
            atlas.add(study, dataset.assign_attrs(own))
        store.clear()


def _by_pass(names: Sequence[str]) -> list[list[str]]:
    """The studies in their order, those that can share a forward pass together.

    >>> _by_pass(["profile", "answers", "spectral", "probing", "relations"])
    [['profile'], ['answers', 'spectral', 'probing'], ['relations']]
    """
    groups: list[list[str]] = []
    for name in names:
        shared = all_studies()[name].shares_pass
        if shared and groups and all_studies()[groups[-1][-1]].shares_pass == shared:
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _made(atlas: Atlas, study: str) -> str | None:
    """When the map that is there was made."""
    return atlas.provenance(study).created if study in atlas else None


def _is_stored(atlas: Atlas, wanted: Provenance) -> bool:
    """Whether the atlas holds this very map; a map of the same study with another origin is refused."""
    if wanted.study not in atlas:
        return False
    found = _upgraded(atlas, wanted.study)
    if found.key() == wanted.key():
        return True
    raise AtlasError(
        f"{atlas.location} already contains the study {wanted.study}, measured with other settings or data "
        f"({'; '.join(difference(found, wanted))}); replace it with --redo {wanted.study}, or choose another folder with -o"
    )


def _upgraded(atlas: Atlas, study: str) -> Provenance:
    """A provenance under the current names, also where it names the map that it was made from by that map's older key."""
    found = atlas.provenance(study)
    for other in all_studies()[study].depends_on if study in all_studies() else ():
        if other in atlas and found.data.get("digest") == atlas.provenance(other).key():
            found = replace(found, data=found.data | {"digest": _upgraded(atlas, other).key()})
    spec = dataset_spec(study)
    return found if spec is None else upgraded_provenance(found, spec.schema)


def _refuse_mixture(atlas: Atlas, wanted: Provenance) -> None:
    """Refuse an atlas of another model, and one that would then hold quick and full measurements."""
    for study in atlas.studies:
        found = atlas.provenance(study)
        if found.model.get("digest") != wanted.model.get("digest"):
            raise AtlasError(
                f"{atlas.location} is an atlas of {found.model.get('id')} ({found.model.get('digest')}), and this model is "
                f"{wanted.model.get('id')} ({wanted.model.get('digest')}); choose another folder with -o"
            )
        if found.quick != wanted.quick:
            kinds = [f"a {'quick' if quick else 'full'} build" for quick in (found.quick, wanted.quick)]
            raise AtlasError(
                f"{atlas.location} is the atlas of {kinds[0]}, and this is {kinds[1]}, whose numbers are not comparable; "
                f"{'omit' if wanted.quick else 'add'} --quick, or choose another folder with -o"
            )
