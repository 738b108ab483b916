"""Files that were hurt while nobody looked: seen, named, and only what is hurt is done again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import damage
from faults.experiment import Case, Experiment

HALF = {"do": "kill", "when": "measure profile 3"}  # shards 0, 1 and 2 are committed


def shard_of(atlas: Path, number: int = 1) -> Path:
    return next(atlas.glob(f".shards/*/{number:05d}.shard"))


def plan_of(atlas: Path) -> Path:
    return next(atlas.glob(".shards/*/plan.json"))


def continued(experiment: Experiment, strike: Callable[[Path], object], hurt: tuple[int, ...] = ()) -> Case:
    return experiment.disturb(HALF, "profile", between=strike, hurt=[("profile", number) for number in hurt])


@pytest.mark.parametrize("verb", [damage.cut, damage.empty, damage.zeros])
def test_a_hurt_shard_is_measured_again_alone(experiment: Experiment, verb: Callable[[Path], None]) -> None:
    case = continued(experiment, lambda atlas: verb(shard_of(atlas)), hurt=(1,))
    assert not case.faults
    assert case.second.measured == [("profile", 1), ("profile", 3)]
    assert "Shard 1 is measured again, because its file was damaged" in case.second.err


def test_a_lost_shard_is_measured_again_alone(experiment: Experiment) -> None:
    case = continued(experiment, lambda atlas: damage.lose(shard_of(atlas)), hurt=(1,))
    assert not case.faults
    assert case.second.measured == [("profile", 1), ("profile", 3)]


def test_a_flipped_bit_of_a_shard(experiment: Experiment) -> None:
    """Wherever it is: either it is seen, or it is where nothing is read (a date in the zip file, say)."""
    seen = 0
    for seed in range(4):
        case = continued(experiment, lambda atlas, seed=seed: damage.flip(shard_of(atlas), seed=seed), hurt=(1,))
        assert not case.faults
        assert set(case.second.measured) - {("profile", 1)} == {("profile", 3)}
        seen += "Shard 1 is measured again" in case.second.err
    assert seen >= 3


def test_a_misplaced_shard(experiment: Experiment) -> None:
    """Whole, but not the examples it should hold: nothing is doubled."""

    def strike(atlas: Path) -> None:
        shutil.copy(shard_of(atlas, 0), shard_of(atlas, 1))

    assert not continued(experiment, strike, hurt=(1,)).faults


@pytest.mark.parametrize("verb", [damage.cut, damage.lose])
def test_a_hurt_plan(experiment: Experiment, verb: Callable[[Path], None]) -> None:
    """The shards are as good as before: they are used."""
    case = continued(experiment, lambda atlas: verb(plan_of(atlas)))
    assert not case.faults
    assert case.second.measured == [("profile", 3)]


def test_a_flipped_bit_of_the_plan(experiment: Experiment) -> None:
    for seed in (0, 1, 3):
        case = continued(experiment, lambda atlas, seed=seed: damage.flip(plan_of(atlas), seed=seed))
        assert not case.faults


@pytest.mark.parametrize("name", [".shards", ".swap"])
def test_a_file_where_a_folder_was(experiment: Experiment, name: str) -> None:
    """Refused in one sentence; once it is out of the way, the same command goes on."""
    atlas = experiment.fresh()
    experiment.run(atlas, HALF, "profile")
    damage.block(atlas / name)
    refused = experiment.run(atlas, None, "profile")
    assert refused.code == 2
    assert f"{atlas / name}" in refused.sentence
    assert "is a file where a folder is needed" in refused.sentence
    (atlas / name).unlink()
    assert not experiment.again(atlas, refused, {"did": f"block {name}"}, "profile").faults


@pytest.fixture
def finished(experiment: Experiment) -> Path:
    atlas = experiment.fresh()
    shutil.copytree(experiment.whole("profile"), atlas)
    return atlas


@pytest.mark.parametrize(
    ("file", "verb", "said"),
    [
        ("value/c/0/0/0", damage.flip, "variable 'value' cannot be read"),
        ("value/c/0/0/0", damage.cut, "variable 'value' cannot be read"),
        ("label/c/0", damage.lose, "variable 'label' has lost a chunk"),
        ("value/zarr.json", damage.lose, "the metadata of variable 'value' was changed or lost"),
        ("zarr.json", damage.cut, "its metadata cannot be read"),
        ("value", damage.block, "the metadata of variable 'value' was changed or lost"),
    ],
)
def test_a_corrupt_map_is_named_and_recomputed_alone(
    experiment: Experiment, finished: Path, file: str, verb: Callable[[Path], object], said: str
) -> None:
    verb(finished / "profile" / file)
    refused = experiment.run(finished, None, "profile")
    assert refused.code == 2
    assert refused.measured == []
    assert f"The study 'profile' in {finished} is damaged: {said}" in refused.sentence
    assert "--redo profile" in refused.sentence
    redone = experiment.run(finished, None, "profile", "--redo", "profile")
    assert redone.code == 0
    assert not experiment.again(finished, redone, {"did": file}, "profile").faults


def test_a_corrupt_dependency_is_recomputed_alone(experiment: Experiment) -> None:
    """The answers are hurt: they are done again, and the maps that were made from them stand."""
    atlas = experiment.fresh()
    shutil.copytree(experiment.whole(), atlas)
    damage.flip(next((atlas / "answers" / "label" / "c").rglob("0")))
    refused = experiment.run(atlas)
    assert refused.code == 2
    assert "The study 'answers'" in refused.sentence
    redone = experiment.run(atlas, None, "profile,spectral", "--redo", "answers")
    assert redone.code == 0
    assert redone.measured == [("answers", number) for number in range(3)]
    assert not experiment.again(atlas, redone, {"did": "answers"}).faults


@pytest.mark.parametrize("verb", [damage.lose, damage.block])
def test_a_map_that_is_gone(experiment: Experiment, finished: Path, verb: Callable[[Path], None]) -> None:
    verb(finished / "profile")
    case = experiment.again(finished, experiment.run(finished, None, "profile"), {"did": verb.__name__}, "profile")
    assert not case.faults
    assert case.second.measured == []


def test_corrupt_metadata(experiment: Experiment, finished: Path) -> None:
    """The consolidated metadata is a copy of the studies' own: it is restored, and nothing is measured."""
    damage.cut(finished / "zarr.json")
    refused = experiment.run(finished, None, "profile")
    assert refused.code == 2
    assert (
        f"The metadata of the atlas {finished} (zarr.json) is damaged; delete that file and run the same"
        in refused.sentence
    )
    damage.lose(finished / "zarr.json")
    case = experiment.again(finished, refused, {"did": "lose zarr.json"}, "profile")
    assert not case.faults
    assert case.second.measured == []
