"""A study with shards that no worker could measure: it and those that need it are left out, all others are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import answered
import pytest
import xarray as xr
from planted import tiny_passages

from headwise.atlas import Atlas
from headwise.core.errors import EngineError
from headwise.corpora import Passages, read_questions
from headwise.engines import (
    EngineSession,
    Listener,
    LocalEngine,
    ShardsFailedError,
    ShardStore,
    StudyJob,
    StudyResult,
    WorkerSpec,
)
from headwise.model import Model
from headwise.studies import ProfileOptions, build

SMALL = {"profile": ProfileOptions(repeats=3, period=20, shard=4)}


class Poisoned:
    """This process, in which the shards of some studies fail."""

    def __init__(self, *studies: str) -> None:
        self.studies = studies

    @contextmanager
    def open(self, spec: WorkerSpec, listener: Listener) -> Iterator[_Session]:
        with LocalEngine().open(spec, listener) as session:
            yield _Session(session, self.studies)


class _Session:
    def __init__(self, session: EngineSession, studies: tuple[str, ...]) -> None:
        self._session, self._studies = session, studies

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        return self._session.prepare(studies, inputs)

    def run(self, job: StudyJob, store: ShardStore, listener: Listener) -> StudyResult:
        if job.study in self._studies:
            tries = ["worker 1 died: killed", "worker 2 died: killed", "worker 3 failed: ValueError: poison"]
            raise ShardsFailedError(job.study, {"examples 20 to 39": tries})
        return self._session.run(job, store, listener)


def test_the_rest_is_made_and_the_next_run_makes_what_was_left(tiny: Model, passages: Passages, tmp_path: Path) -> None:
    questions = read_questions(answered.write(tmp_path / "asked.jsonl", answered.rows(60)))
    given = {"data": passages, "questions": questions, "output": tmp_path / "atlas", "options": SMALL}
    names = ["answers", "spectral", "profile"]
    with pytest.raises(EngineError) as raised:
        build(tiny, names, engine=Poisoned("answers+spectral", "answers"), **given)
    assert str(raised.value) == (
        "2 of 3 studies could not be finished (answers: examples 20 to 39 (3 tries; worker 3 failed: ValueError: poison). "
        "spectral: needs answers). All else is done and kept; the same command tries only these again."
    )
    assert Atlas.open(tmp_path / "atlas").studies == ["profile"]
    assert build(tiny, names, **given).studies == ["answers", "detection", "profile", "spectral"]


def test_many_are_named_by_the_first_three() -> None:
    error = ShardsFailedError("toy", {f"examples {n}": ["died"] * 3 for n in range(5)}, untried=7)
    assert str(error).endswith("examples 2 (3 tries; died) and 2 more; 7 others were not tried after that")


def test_an_engine_of_ones_own_is_enough(tiny: Model, tmp_path: Path) -> None:
    """What `build` asks of an engine is the contract, and nothing of Ray."""
    built = build(tiny, ["profile"], data=tiny_passages(4), output=tmp_path / "a", options=SMALL, engine=Poisoned())
    assert built.studies == ["profile"]
