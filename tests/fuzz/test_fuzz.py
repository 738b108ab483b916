"""A short run of the fuzzing suite, the same cases every time. `make fuzz MINUTES=30` is the long one."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.callers import CALLERS
from fuzz.files import FILES
from fuzz.harness import Act, Outcome, call, command, try_case
from fuzz.odd import change_bytes, change_tree, dumps
from fuzz.scene import Scene
from headwise.atlas.decoding import CorruptionError, decode
from headwise.atlas.format import ConsolidatedMetadata
from headwise.core.dims import parse_head
from headwise.core.errors import HeadwiseError
from headwise.core.markup import printable
from headwise.core.parsing import parse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches memory and files as Linux tells them")
CASES = {
    "atlas metadata": 60, "attributes and provenance": 60, "arrays": 30, "damaged atlases": 150, "malicious atlases": 60,
    "detectors": 200, "data files": 150, "model folders": 15, "GGUF files": 20, "adapters": 15, "command lines": 80,
    "settings": 200, "conditions": 200, "requests": 200,
}  # fmt: skip
PENDING: set[str] = set()
QUICK = settings(
    derandomize=True, max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
DICE = st.randoms(use_true_random=False)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    fast = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path_factory.getbasetemp()
    folder = fast / f"headwise-fuzz-{os.getpid()}"
    folder.mkdir()
    yield Scene(folder)
    shutil.rmtree(folder)


def test_every_grammar_is_tried():
    assert CASES.keys() == {**FILES, **CALLERS}.keys()


@pytest.mark.parametrize("grammar", [name for name in CASES if name not in PENDING])
@pytest.mark.xdist_group("fuzz")
@pytest.mark.filterwarnings("ignore")
def test_no_case_shows_a_traceback(grammar, scene, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    draw = {**FILES, **CALLERS}[grammar]
    found = [try_case(grammar, draw, scene, number)[0] for number in range(CASES[grammar])]
    findings = [finding for finding in found if finding is not None]
    assert not findings, f"{len(findings)} findings, of which the first: {findings[0]}"


# ---- the same grammars under hypothesis, which finds the smallest case ------------------------------------------------


def one_line(read, refusal: type[Exception]) -> bool:
    """Whether it is read, or refused in one line; any other error passes."""
    try:
        read()
    except refusal as error:
        return "\n" not in str(error)
    return True


@pytest.mark.xdist_group("fuzz")
@given(dice=DICE)
@QUICK
def test_metadata_is_parsed_or_refused(scene, dice):
    tree = {"zarr_format": 3, "node_type": "group", "attributes": {"format": "headwise-atlas", "versions": {}}}
    content = dumps(change_tree(dice, tree)[0])
    for text in (content, change_bytes(dice, content)[0]):
        assert one_line(lambda text=text: ConsolidatedMetadata.parse(text), ValueError)


@pytest.mark.xdist_group("fuzz")
@given(dice=DICE)
@QUICK
def test_files_are_decoded_or_refused(scene, dice):
    files = dict(scene.files("detection"))
    key = dice.choice(sorted(files))
    files[key] = change_bytes(dice, files[key])[0]
    assert one_line(lambda: decode(files), CorruptionError)


@given(st.text() | st.binary())
@QUICK
def test_any_text_is_json_or_refused(text):
    assert one_line(lambda: parse(text, dict[str, int]), ValueError)


@given(st.text(st.characters(exclude_categories=())))
@QUICK
def test_any_text_can_be_printed(text):
    shown = printable(f"\x1b[2J{text}").encode()
    assert b"\x1b" not in shown and b"\x07" not in shown


@given(st.text())
@QUICK
def test_any_text_is_a_head_or_refused(text):
    try:
        layer, head = parse_head(text)
    except HeadwiseError:
        return
    assert layer >= 0 and head >= 0


# ---- the suite itself: it must notice ---------------------------------------------------------------------------------


def wrong(scene, do, **options) -> list[str]:
    finding, _ = try_case("made up", lambda dice, scene, folder: Act("made up", do, **options), scene, 0)
    return [] if finding is None else finding.wrong


def test_what_must_not_be_is_noticed(scene, tmp_path, monkeypatch):
    def divide() -> None:
        raise ZeroDivisionError("by zero")

    def connect() -> None:
        import socket

        with socket.socket() as one:
            one.settimeout(0.1)
            one.connect_ex(("127.0.0.1", 9))

    def write() -> None:
        (tmp_path / "outside").write_text("x")

    def refuse(text: str) -> Outcome:
        return Outcome(2, "", text)

    assert wrong(scene, lambda: call(divide))[0] == "exit code 70"
    assert wrong(scene, lambda: call(connect))[0].startswith("a connection")
    assert wrong(scene, lambda: call(write))[0].startswith("a write outside")
    assert wrong(scene, lambda: call(lambda: os.system("true")))[0].startswith("started a process")
    assert wrong(scene, lambda: refuse("headwise: one sentence.\nand another")) == ["not one sentence"]
    assert wrong(scene, lambda: refuse("headwise: KeyError: 'x'.")) == ["words of Python's ('KeyError')"]
    assert wrong(scene, lambda: refuse("headwise: \x1b[2J.")) == ["terminal codes"]
    assert wrong(scene, lambda: Outcome(0, "the mean of <class 'int'> heads")) == ["words of Python's (\"<class '\")"]
    assert wrong(scene, lambda: call(lambda: len(b"x" * (3 << 29)) * 0)) == ["took 1.6 GB"]
    assert wrong(scene, lambda: refuse("headwise: There is no atlas at x; make one with headwise build -o x.")) == []
    monkeypatch.setattr("fuzz.harness.PATIENCE", 0.2)
    assert wrong(scene, lambda: call(lambda: [None for _ in iter(int, 1)]))[0].startswith("did not end")


def test_a_bug_is_noticed_through_the_command_line(scene, monkeypatch):
    monkeypatch.setattr("headwise.cli.plan.all_studies", lambda: 1 / 0)
    assert wrong(scene, lambda: command("studies")) == ["exit code 70", "words of Python's ('ZeroDivisionError')"]


def test_a_case_is_the_same_every_time(scene):
    from random import Random

    def about(folder: str) -> str:
        (scene.folder / folder).mkdir()
        return FILES["detectors"](Random("detectors 0 3"), scene, scene.folder / folder).about

    assert about("first") == about("second")
