"""What Headwise is built from: pinned, checked by digest where wanted, and with its licences stated."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", re.MULTILINE)
FLOORS = {  # the first versions without a known hole that data from outside could reach
    "numcodecs": (0, 16, 6), "torch": (2, 6), "jinja2": (3, 1, 6), "pillow": (11, 3), "h11": (0, 16),
    "starlette": (0, 49, 1), "ray": (2, 52),
}  # fmt: skip


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    return {plain(name): version for name, version in PIN.findall((ROOT / file).read_text())}


def bounds() -> dict[str, str]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    listed = [*PROJECT["project"]["dependencies"], *(one for extra in extras for one in extra)]
    return {plain(re.match(r"[\w.-]+", one)[0]): one for one in listed if not one.startswith("headwise[")}


def test_every_dependency_and_build_tool_is_pinned():
    tools = [re.match(r"[\w.-]+", one)[0] for one in PROJECT["build-system"]["requires"]]
    needed = {*bounds(), *map(plain, tools), "pip", "editables"} - {"datasets", "inspect-ai"}  # not installed by make
    assert needed - pins("constraints.txt").keys() == set()
    lines = (ROOT / "Makefile").read_text().splitlines()
    install = [line for line in lines if "pip install" in line]
    assert install and all("--constraint constraints.txt" in line for line in install), (
        "make installs pinned versions only"
    )
    own = [line for line in lines if "--editable" in line]
    assert own and all("--no-build-isolation" in line for line in own), "else pip would fetch other build tools"


def test_the_demo_installs_what_it_runs_and_no_development_extras():
    recipe = (ROOT / "Makefile").read_text().partition("\n$(READY):")[2].partition("\n\n")[0]
    extras = re.search(r'--editable "\.\[([\w,]+)\]"', recipe)
    assert extras and set(extras[1].split(",")) == {"gguf", "peft", "web"}
    assert "$(READY_DEV): $(READY)" in (ROOT / "Makefile").read_text(), "make test only adds to it"


def test_unsafe_versions_are_excluded():
    for name, floor in FLOORS.items():
        found = re.search(r">=([\d.]+)", bounds()[name])
        assert found and tuple(map(int, found[1].split("."))) >= floor, name


def test_the_lock_has_the_pinned_versions_with_digests_and_names_no_place():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    assert len(entries) > 80 and all("--hash=sha256:" in entry for entry in entries)
    locked, pinned = pins("requirements.lock"), pins("constraints.txt")
    assert {name: version for name, version in locked.items() if name in pinned and pinned[name] != version} == {}
    extras = ("docs", "dev", "inspect")  # the last does not go with the pinned versions
    left_out = {
        plain(re.match(r"[\w.-]+", one)[0])
        for name in extras
        for one in PROJECT["project"]["optional-dependencies"][name]
    }
    assert bounds().keys() - left_out - {"torch"} <= locked.keys()
    assert not {name for name in locked if name.startswith(("torch", "triton", "nvidia", "cuda"))}


def test_the_notice_covers_all_data_and_is_packaged():
    notice = (ROOT / "NOTICE").read_text()
    data = list((ROOT / "src" / "headwise").rglob("data/*"))
    assert len(data) >= 5
    for path in data:
        assert path.relative_to(ROOT).as_posix() in notice, path
    assert "src/headwise/figures/colour_stops.py" in notice  # sampled from others' colour maps
    assert "Apache License 2.0" in notice
    assert "Apache License" in (ROOT / "src/headwise/model/data/sparse/LICENSE").read_text()
    assert {"LICENSE", "NOTICE"} <= set(PROJECT["project"]["license-files"])
