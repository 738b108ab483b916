"""Which checkpoints there are, at which steps, and what is refused before anything is measured."""

import json

import pytest
from planted import save_tiny, tiny_model

import headwise as hw
from headwise.core.errors import DataError, ModelError
from headwise.studies.checkpoints import TrainingCheckpoint, find_checkpoints, recorded_losses, refuse_unlike, step_of


@pytest.fixture
def run(tmp_path):
    for name in ("step-0", "step-16", "step-128", "logs"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_folders_by_a_pattern_in_the_order_of_their_steps(run):
    found = find_checkpoints(run, "step-*")
    assert [(one.step, one.model) for one in found] == [(s, str(run / f"step-{s}")) for s in (0, 16, 128)]
    assert [one.step for one in find_checkpoints(run, ["step-16", "step-0"])] == [0, 16]
    assert [one.step for one in find_checkpoints(None, f"{run}/step-*")] == [0, 16, 128]
    named = find_checkpoints(run, "5=logs,1=step-0")
    assert [(one.step, one.name) for one in named] == [(1, str(run / "step-0")), (5, str(run / "logs"))]


def test_revisions_on_the_hub():
    found = find_checkpoints("EleutherAI/pythia-70m", ["step1000", "step0"])
    assert [(one.step, one.model, one.revision) for one in found] == [
        (0, "EleutherAI/pythia-70m", "step0"), (1000, "EleutherAI/pythia-70m", "step1000"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("step-0", "at least two checkpoints"),
        ("step-0,logs", "'logs' has no step number in its name; give the step, as in --checkpoints 0=logs"),
        ("ckpt-*", r"No folder in .* matches 'ckpt-\*'"),
        ({0: "step-0", -1: "logs"}, "whole number from 0 on, not -1"),
        (["step-0", "step-16", "./step-16"], "are checkpoints of step 16; leave one out"),
    ],
)
def test_what_is_refused(run, given, message):
    with pytest.raises(DataError, match=message):
        find_checkpoints(run, given)


def test_more_that_is_refused(run):
    with pytest.raises(ModelError, match=r"There is no folder .*nowhere"):
        find_checkpoints(run / "nowhere", "step-*")
    with pytest.raises(DataError, match="there is no folder a/b; revisions on the hub are not listed here"):
        find_checkpoints("a/b", "step*")
    with pytest.raises(DataError, match=r"several step numbers \(2, 7\)"):
        step_of("checkpoint-2-step7")


def test_checkpoints_of_different_shapes_are_refused(tmp_path):
    save_tiny(tmp_path / "step-0", layers=2)
    save_tiny(tmp_path / "step-1", layers=3)
    with pytest.raises(ModelError, match=r"3 layers, 4 heads per layer.* and .* 2 layers, 4 heads per layer"):
        hw.build(tmp_path, ["profile"], checkpoints="step-*", output=tmp_path / "atlas")
    assert not (tmp_path / "atlas").exists()
    memory = [TrainingCheckpoint(step, hw.load(*tiny_model(layers=2))) for step in (0, 1)]
    refuse_unlike(memory)
    with pytest.raises(ModelError, match="leave out revision"):
        hw.build(tmp_path, ["profile"], checkpoints={0: memory[0].model, 1: memory[1].model}, loading={"revision": "a"})


def test_losses_are_those_of_the_step(tmp_path):
    state = {
        "global_step": 20,
        "log_history": [
            {"step": 10, "loss": 3.0},
            {"step": 20, "loss": 2.0, "epoch": 1.0, "learning_rate": 0.1},
            {"step": 20, "eval_loss": 2.5, "eval_runtime": 3.0},
            {"step": 20, "train_loss": float("nan")},
        ],
    }
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert recorded_losses(TrainingCheckpoint(20, tmp_path)) == {"loss": 2.0, "eval_loss": 2.5}
    assert recorded_losses(TrainingCheckpoint(30, tmp_path)) == {}
    assert recorded_losses(TrainingCheckpoint(0, "a/b", "step0")) == {}
    (tmp_path / "trainer_state.json").write_text("[1]")
    with pytest.raises(DataError, match="not a record of transformers' Trainer"):
        recorded_losses(TrainingCheckpoint(20, tmp_path))
