"""The wheel and the source archive: complete, typed, one version, and working where nothing else of this repository is."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import headwise as hw

ROOT = Path(__file__).parents[1]


def run(*command: object, **settings: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(source_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive, as pip builds it for a user."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(source_archive) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist", cwd=unpacked)
    (made,) = (folder / "dist").iterdir()
    return made


def source_files() -> set[str]:
    files = (path for path in (ROOT / "src" / "headwise").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in files if path.suffix != ".pyc"}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        described = {name.rpartition(".dist-info/")[2] for name in archive.namelist()} - names
    assert names == source_files()
    assert "headwise/py.typed" in names
    assert {"licenses/LICENSE", "licenses/NOTICE"} <= described


def test_the_source_archive_has_what_builds_the_package_and_what_a_reader_needs(source_archive: Path) -> None:
    with tarfile.open(source_archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in names if name.startswith("src/")} == {f"src/{name}" for name in source_files()}
    wanted = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "CITATION.cff", "CONTRIBUTING.md"}
    assert wanted <= names
    assert not {name for name in names if name.startswith(("tests/", "docs/", "benchmarks/", ".cache/"))}


def test_there_is_one_version(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("/METADATA"))
        described = message_from_string(archive.read(name).decode())
    assert described["Version"] == hw.__version__
    assert f"\n## {hw.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None and cited[1] == hw.__version__
    assert f"version {hw.__version__}," in (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """Dependencies are those of this environment; Headwise itself is the wheel's, and its command is the installed one."""
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    (site / "shared.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    found = run(python, "-c", "import headwise; print(headwise.__file__)", cwd=tmp_path, env=settings)
    assert found.startswith(str(site))
    said = run(python, ROOT / "scripts" / "smoke.py", cwd=tmp_path, env=settings)
    assert said.startswith(f"headwise {hw.__version__}\n") and said.endswith("work here\n")
