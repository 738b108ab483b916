"""A disk that says no: full, closed, or with files only so long. One sentence, exit code 2, and nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.experiment import Experiment, kinds


def refused(experiment: Experiment, fault: dict, said: str, studies: str = "profile") -> list[str]:
    """What was not as it should be when the disk refuses, and after."""
    case = experiment.disturb(fault, studies)
    if case.first.code == 0:
        return case.faults
    if case.first.code != 2 or said not in case.first.sentence:
        return [f"{fault}: {case.first.code}, {case.first.err.strip()[-500:]}"]
    return case.faults


@pytest.mark.parametrize(("what", "said"), [("full", "the disk is full"), ("closed", "it may not be written to")])
def test_from_some_change_on(experiment: Experiment, what: str, said: str) -> None:
    """Refused from one moment of every kind on, files full and closed in turn; `make soak` takes all moments."""
    found = kinds(experiment.changes("profile"))
    files = sorted(numbers[0] for (event, _), numbers in found.items() if event == "open")
    other = "make" if what == "full" else "rename"
    moments = [numbers[0] for (event, _), numbers in found.items() if event == other] + files[what == "full" :: 2]
    wrong = [line for number in moments for line in refused(experiment, {"do": what, "at": number}, said)]
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def small_disk(experiment: Experiment) -> Iterator[Path]:
    """A real file system of 400 KiB."""
    disk = experiment.fresh()
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_that_is_really_full(experiment: Experiment, small_disk: Path) -> None:
    """So much is free at first; then something else goes away, and the same command is given again."""
    ends = []
    for free in range(8, 400, 48):
        ballast, atlas = small_disk / "ballast", small_disk / "atlas"
        ballast.write_bytes(bytes(1024 * (400 - free)))
        first = experiment.run(atlas, None, "profile")
        if first.code:
            assert "the disk is full; free some space" in first.sentence
        ballast.unlink()
        assert not experiment.again(atlas, first, {"free": free}, "profile").faults
        ends.append(first.code)
        shutil.rmtree(atlas)
    assert ends == sorted(ends, reverse=True)
    assert set(ends) == {0, 2}


@pytest.mark.parametrize("size", [400, 2000, 9000])  # the limit holds for what the build says, too
def test_files_may_only_be_so_long(experiment: Experiment, size: int) -> None:
    assert not refused(experiment, {"do": "limit", "bytes": size}, "no file may be longer")


def test_permission_lost_for_real(experiment: Experiment) -> None:
    """The folder is closed to the one who builds, in the middle, and opened again."""
    atlas = experiment.fresh()
    number = max(
        n
        for n, (event, path) in enumerate(experiment.changes("profile"))
        if path.endswith(".shard") and event == "rename"
    )
    first = experiment.run(atlas, {"do": "chmod", "at": number}, "profile", obeying=True)
    assert first.code == 2, first.err
    assert "it may not be written to; change its permissions" in first.sentence
    for parent, _, _ in os.walk(atlas):
        os.chmod(parent, 0o755)
    case = experiment.again(atlas, first, {"do": "chmod"}, "profile")
    assert not case.faults
    assert case.second.measured == [("profile", 3)]
