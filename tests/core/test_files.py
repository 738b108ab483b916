"""The door for outputs: whole or not at all, with a sentence, for every kind of file that Headwise writes."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from headwise.core.errors import AtlasError, DataError
from headwise.core.files import make_folder, output_file, output_folder, write_output
from headwise.corpora import Question
from headwise.corpora.questions import Questions
from headwise.model.gate import write_gate
from headwise.probes import Detector
from headwise.probes.batched_logistic import LogisticProbe

WRONG = np.arange(40) % 2 == 0
TABLE = np.random.default_rng(0).normal(size=(40, 3)) + WRONG[:, None]
QUESTIONS = Questions("mine", (Question("a", "Why?", ("so",)),))


@pytest.fixture
def full_disk(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)


WRITERS = {
    "detector.json": lambda folder: Detector(folds=2).fit(TABLE, WRONG).save(folder / "detector"),
    "probe.safetensors": lambda folder: LogisticProbe().fit(TABLE, WRONG).save(folder / "probe.safetensors"),
    "headwise_gate.json": lambda folder: write_gate(folder, 0.0),
    "questions.jsonl": lambda folder: QUESTIONS.save(folder / "questions.jsonl"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_what_was_there(name, tmp_path, full_disk):
    (tmp_path / name).write_text("what was there")
    with pytest.raises(AtlasError, match=r"the disk is full; .* What was there before is intact\."):
        WRITERS[name](tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "what was there"


@pytest.mark.parametrize("name", WRITERS)
def test_the_home_folder_is_expanded(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    WRITERS[name](Path("~"))
    assert (tmp_path / name).is_file() and not (tmp_path / "~").exists()


def test_a_folder_appears_as_a_whole_or_gets_its_files(tmp_path):
    with output_folder(tmp_path / "new") as temporary:
        (temporary / "a").write_text("1")
        assert not (tmp_path / "new").exists()
    (tmp_path / "new" / "kept").write_text("2")
    with output_folder(tmp_path / "new") as temporary:
        (temporary / "a").write_text("3")
        assert (tmp_path / "new" / "a").read_text() == "1"
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == {"a": "3", "kept": "2"}
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_on_a_full_disk(tmp_path, full_disk):
    make_folder(tmp_path / "there")
    for name in ("there", "new"):
        with pytest.raises(AtlasError, match="the disk is full"), output_folder(tmp_path / name) as temporary:
            (temporary / "a").write_text("1")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["there"]


def test_safetensors_own_error_for_a_full_disk(tmp_path):
    text = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(AtlasError, match="the disk is full"), output_file(tmp_path / "x"):
        raise SafetensorError(text)
    with pytest.raises(SafetensorError, match="cut"), output_file(tmp_path / "x"):
        raise SafetensorError("the header is cut")


def test_content_is_made_only_for_a_path_that_can_be_one(tmp_path):
    made = []
    with pytest.raises(DataError, match="There is no folder"):
        write_output(tmp_path / "missing" / "x", lambda: made.append("made") or "")
    assert not made
