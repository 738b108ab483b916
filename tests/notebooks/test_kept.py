"""The notebooks as they are kept: run to the end with full settings, light, and with nothing of the machine that ran them."""

from __future__ import annotations

import getpass
import platform
import re
from typing import Any

import pytest

pytest.importorskip("nbformat", reason="nbformat is not installed (pip install nbclient ipykernel)")

from notebooks.running import FOLDER, parameters, read

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
LARGEST = 1_000_000  # bytes
LONGEST = 28  # lines of a cell
PICTURE = re.compile(r"data:image/[\w+]+;base64,[\w+/=]+")
PATHS = re.compile(r"(?<![\w/.])/(?:tmp|home|root|work|Users|var)/\w+|\b[A-Z]:\\")


def shown(cell: Any) -> str:
    """All that a cell's outputs say, pictures left out."""
    parts = [output.get("text", "") + "".join(output.get("data", {}).values()) for output in cell.outputs]
    return PICTURE.sub("data:", "\n".join(parts))


@pytest.fixture(params=NAMES)
def book(request):
    return read(request.param)


def test_there_are_five():
    assert NAMES == [
        "comparing-two-models",
        "does-this-head-matter",
        "first-look",
        "hallucination-detector",
        "long-context",
    ]


def test_every_cell_was_run_in_order_and_none_failed(book):
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert {output.output_type for cell in code for output in cell.outputs} <= {
        "execute_result",
        "stream",
        "display_data",
    }
    assert sum(bool(cell.outputs) for cell in code) >= 6


def test_it_tells_a_story_in_short_cells(book):
    kinds = [cell.cell_type for cell in book.cells]
    assert kinds[0] == "markdown" and book.cells[0].source.startswith("# ") and kinds[-1] == "markdown"
    assert kinds.count("markdown") >= 6
    assert max(cell.source.count("\n") + 1 for cell in book.cells if cell.cell_type == "code") <= LONGEST
    assert book.cells[parameters(book)].cell_type == "code"


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_light_and_knows_no_machine(name):
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < LARGEST
    book = read(name)
    said = "\n".join(shown(cell) for cell in book.cells if cell.cell_type == "code")
    assert not PATHS.findall(said), PATHS.findall(said)[:3]
    assert not re.search(rf"\b{re.escape(platform.node())}\b", said) and f"/{getpass.getuser()}/" not in said
    assert set(book.metadata) == {"kernelspec", "language_info"}


def test_nothing_is_fetched(book):
    for cell in book.cells:
        if cell.cell_type == "code":
            assert not re.findall(r"(?:src|href)=[\"'](?!data:)", shown(cell))
            assert "<script" not in shown(cell) and "application/vnd.jupyter.widget-view+json" not in str(cell.outputs)


def test_links_between_pages_lead_somewhere(book):
    for target in re.findall(
        r"\]\((?!https?:)([^)#]+)", "\n".join(c.source for c in book.cells if c.cell_type == "markdown")
    ):
        assert (FOLDER / target).resolve().exists(), target


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("does-this-head-matter", r"[1-9] of 269 other heads hurt as much or more: p = 0\.0\d\d"),
        ("does-this-head-matter", r"Rome against Paris: -\d+\.\d nats as it is, \+\d+\.\d with L23H4 steered"),
        ("hallucination-detector", r"Unlike any answer the detector knows in: Log-probability, mean"),
        ("long-context", r"4096 tokens: whole attention maps would take 18\.1 GB"),
        ("long-context", r"the answer, ' Qu', stands 3\d\d\d tokens before the end"),
        ("comparing-two-models", r"dense against itself: \d{1,2} of \d+ values with q < 0\.05 \(0\.\d%\)"),
    ],
)
def test_the_full_run_says_what_the_text_builds_on(name, said):
    assert any(re.search(said, shown(cell)) for cell in read(name).cells if cell.cell_type == "code")
