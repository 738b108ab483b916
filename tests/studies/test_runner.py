"""A spec that is sent to workers: what goes along, what is refused, where the model is put."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from planted import save_tiny, tiny_passages

from headwise.core.errors import EngineError, ModelError
from headwise.corpora import Endpoint, Passages
from headwise.engines import ThreadCounts
from headwise.model import load
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.runner import BuildSpec, WorkerEnv


@pytest.mark.parametrize(
    ("gpus", "loading", "expected"),
    [
        (None, {}, {}),
        (0, {}, {"device": "cpu"}),
        (1, {}, {}),
        (0.5, {}, {}),
        (4, {}, {"device_map": "auto"}),
        (4, {"device_map": {"": 0}}, {"device_map": {"": 0}}),  # what the user said stands
        (4, {"max_memory": "cpu=8GiB", "device_map": None}, {"max_memory": "cpu=8GiB", "device_map": None}),
        (0, {"dtype": "bfloat16", "device": None}, {"dtype": "bfloat16", "device": "cpu"}),
    ],
)
def test_where_a_worker_puts_the_model(gpus, loading, expected) -> None:
    assert BuildSpec(None, ("profile",), loading=loading).for_workers(gpus, None).loading == expected


def test_the_users_files_are_read_before_they_are_sent(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("one text\n\nanother text")
    sent = BuildSpec(None, ("profile",), StudyInputs(file)).for_workers(0, None)
    file.unlink()
    received = pickle.loads(pickle.dumps(sent))  # as Ray does
    assert isinstance(received.inputs.passages_source, Passages)
    assert [item.text for item in received.inputs.passages.items] == ["one text", "another text"]
    assert received.inputs.questions_source is None  # the packaged ones are there wherever Headwise is


def test_the_keys_of_endpoints_go_along_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_KEY", "HF_HOME", "SECRET"):
        monkeypatch.setenv(name, "value")
    options = {"answers": AnsweringOptions(endpoint=Endpoint("http://localhost:1/v1", "m", key_variable="MY_KEY"))}
    found = BuildSpec(None, ("answers",), options=options).environment
    assert found["MY_KEY"] == found["HF_HOME"] == "value"
    assert "SECRET" not in found and "PATH" not in found


def test_threads_are_those_of_this_process_unless_said_otherwise() -> None:
    spec = BuildSpec(None, ("profile",))
    assert spec.threads.torch == torch.get_num_threads()
    assert spec.for_workers(0, None).threads == spec.threads
    assert spec.for_workers(0, 3).threads == ThreadCounts(3, 3)


def test_a_worker_stands_where_the_sender_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder is found, and the model has the name that was typed."""
    save_tiny(tmp_path / "tiny", layers=2)
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    sent = BuildSpec("tiny", ("profile",), StudyInputs(tiny_passages(3))).for_workers(0, None)
    os.chdir("/")
    runner = sent.open()
    assert Path.cwd() == tmp_path
    assert runner.prepare(["profile"], {}).provenance.model["id"] == "tiny"
    assert torch.get_num_threads() == threads


def test_a_folder_that_is_not_on_this_machine_is_said() -> None:
    env = WorkerEnv("/nowhere/at/all", ("models/mine",), ThreadCounts(1, 1))
    with pytest.raises(
        ModelError, match=r"models/mine is a folder where the build was started, and is not on the machine"
    ):
        replace(BuildSpec("models/mine", ("profile",)), worker_env=env).open()


def test_models_in_memory_are_refused(tmp_path: Path) -> None:
    loaded = load(save_tiny(tmp_path / "tiny", layers=2))
    for spec in (BuildSpec(loaded, ("profile",)), BuildSpec(loaded.hf, ("profile",))):
        with pytest.raises(
            EngineError, match=r"Workers load the model themselves, and a \w+ in the memory of this process"
        ):
            spec.for_workers(None, None)
    with pytest.raises(EngineError, match="Workers load the model to compare with"):
        BuildSpec(None, ("patterns",), StudyInputs(reference=loaded)).for_workers(None, None)
